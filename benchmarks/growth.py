"""What grows with the trials of one study: memory, descriptors and threads of the driver, and files.

    python benchmarks/growth.py [--trials 1000] [--json]

A study of one-step trials runs in this process, two at a time. A row is printed whenever a tenth of the trials has
finished. Descriptors and threads should not grow. Files are those of the store and of Ray's session, and should grow by
a constant number a trial.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from machine import describe
from overhead import WORKERS, one_step_study

from loopscale.records.stores.opening import open_store
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.run import run


@dataclass(frozen=True)
class Row:
    finished: int
    seconds: float
    memory_mib: float
    """Resident memory of the driver."""
    descriptors: int
    threads: int
    store_files: int
    ray_files: int


def look(finished: int, began: float, store: Path) -> Row:
    import ray  # after the run has started Ray

    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
    return Row(
        finished,
        time.perf_counter() - began,
        int(status["VmRSS"].split()[0]) / 1024,
        len(os.listdir("/proc/self/fd")),
        int(status["Threads"]),
        count_files(store),
        count_files(session),
    )


def count_files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def measure_rows(trials: int, folder: Path) -> list[Row]:
    rows, began = list[Row](), time.perf_counter()
    report = Conductor.report

    def observed(self: Conductor, key: str, progress: Any) -> bool:
        result = report(self, key, progress)
        finished = self.counts().get("finished", 0)
        if finished >= (len(rows) + 1) * trials / 10 and len(rows) < 9:
            rows.append(look(finished, began, folder))
            print_row(rows[-1])
        return result

    Conductor.report = observed
    try:
        conductor = run(one_step_study(trials), open_store(folder / "store", create=True), WORKERS)
    finally:
        Conductor.report = report
    assert conductor.counts() == {"finished": trials}
    return rows


def print_row(row: Row) -> None:
    print(
        f"{row.finished:8,}{row.seconds:10.0f}{row.memory_mib:10.0f}{row.descriptors:13}{row.threads:9}"
        f"{row.store_files:13,}{row.ray_files:11,}",
        file=sys.stderr,
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = describe()
    print(machine, file=sys.stderr)
    print(
        f"{'trials':>8}{'seconds':>10}{'MiB':>10}{'descriptors':>13}{'threads':>9}{'store files':>13}{'Ray files':>11}",
        file=sys.stderr,
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = measure_rows(options.trials, Path(folder))
    if options.json:
        json.dump({"machine": machine.to_dict(), "rows": [asdict(row) for row in rows]}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
