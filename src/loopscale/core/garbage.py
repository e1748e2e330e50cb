"""Python's search for cyclic garbage, in a process that imports torch.

The imports make a million objects that live as long as the process. By default Python searches all of them for cycles
again and again.
"""

import atexit
import gc
import sys


def search_rarely() -> None:
    """Search new objects after 200,000 of them, all objects seldom, and none at the end of the process.

    Processor time saved at the start: .6 s for `loopscale plan`, and .25 s for a worker. At the end: .4 s for every
    process with torch. The operating system frees the memory at the end anyway.
    """
    gc.set_threshold(200_000, 20, 100)
    atexit.unregister(_end)
    atexit.register(_end)


def _end() -> None:
    # DuckDB prints a list of its types as leaks, unless a search frees them.
    if "duckdb" not in sys.modules:
        gc.freeze()
