"""On PYTHONPATH: each Ray worker except the first waits before Tune until $ENOUGH trials have a checkpoint.

Each worker with Tune writes a line to $STARTS, and each process of a worker a line to $PROCESSES.
"""

import importlib.abc
import os
import sys
import time
from pathlib import Path


class DelayTune(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "ray.tune":
            return None
        sys.meta_path.remove(self)
        with open(os.environ["STARTS"], "a") as file:
            first = file.tell() == 0
            file.write(f"{os.getpid()}\n")
        while not first and len(list(Path(os.environ["CHECKPOINTS"]).iterdir())) < int(os.environ["ENOUGH"]):
            time.sleep(0.1)
        return None


if "STARTS" in os.environ and any("default_worker" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, DelayTune())
    with open(os.environ["PROCESSES"], "a") as processes:
        processes.write(f"{os.getpid()}\n")
