"""On every host's PYTHONPATH: traces saves as the kill tests do, and slows disks while the file $SLOW_DISK exists.

The file holds the seconds that are added to each `fsync` and each replacement of a file.
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
