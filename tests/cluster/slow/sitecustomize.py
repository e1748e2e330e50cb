"""On every host's PYTHONPATH: saves leave a line, as in the kill tests, and disks are slow while $SLOW_DISK exists.

The file holds the seconds that each `fsync` and each replacing of a file takes longer.
"""

import os
import runpy
import time
from pathlib import Path

runpy.run_path(str(Path(__file__).parents[2] / "runner/tracing/sitecustomize.py"))


def _slow(call):
    def slowly(*arguments, **named):
        try:
            with open(os.environ["SLOW_DISK"]) as file:
                time.sleep(float(file.read()))
        except (KeyError, OSError, ValueError):
            pass
        return call(*arguments, **named)

    return slowly


os.fsync, os.replace = _slow(os.fsync), _slow(os.replace)
