"""On PYTHONPATH: every Ray worker but the first that comes to Tune takes 10 s longer, and leaves a line in $STARTS."""

import importlib.abc
import os
import sys
import time


class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "ray.tune":
            return None
        sys.meta_path.remove(self)
        with open(os.environ["STARTS"], "a") as file:
            first = file.tell() == 0
            file.write(f"{os.getpid()}\n")
        time.sleep(0 if first else 10)
        return None


if "STARTS" in os.environ and any("default_worker" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Slow())
