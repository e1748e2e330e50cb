"""Processor time of a process and its descendants, read from /proc."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def processor_times(root: int) -> dict[int, tuple[str, float]]:
    """Name and processor seconds of `root` and of its living descendants, by process number."""
    parents, times = dict[int, int](), dict[int, tuple[str, float]]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:  # the process has ended
                continue
            fields, process = rest.split(), int(entry.name)
            parents[process] = int(fields[1])
            times[process] = (head.partition("(")[2], (int(fields[11]) + int(fields[12])) / TICK)
    family, grown = {root}, True
    while grown:
        children = {process for process, parent in parents.items() if parent in family} - family
        family, grown = family | children, bool(children)
    return {process: times[process] for process in family if process in times}
