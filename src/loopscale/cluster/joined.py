"""Wait until the hosts of an allocation have joined Ray: `python -m loopscale.cluster.joined ADDRESS SECONDS HOST...`

Says who is missing when time is up. That is no failure: whoever is there begins, and who comes later still helps.
"""

import logging
import sys
import time
from collections.abc import Callable, Collection, Sequence


def wait(
    hosts: Sequence[str], seconds: float, alive: Callable[[], Collection[str]], pause: float = 1.0
) -> list[str]:
    """The hosts that are not there when all have come or the time is up; `alive` tells who is."""
    until = time.monotonic() + seconds
    while missing := [host for host in hosts if host not in alive()]:
        if time.monotonic() > until:
            break
        time.sleep(pause)
    return missing


def main(words: Sequence[str]) -> int:
    """0 if at least one host is there, else 1."""
    address, seconds, *hosts = words
    import ray

    ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
    missing = wait(
        hosts, float(seconds), lambda: {str(node["NodeName"]) for node in ray.nodes() if node["Alive"]}
    )
    here = len(hosts) - len(missing)
    print(f"{here} of {len(hosts)} hosts have joined Ray at {address}", flush=True)
    if missing:
        print(f"missing after {float(seconds):g} s: {' '.join(missing)}; see their ray-*.log", flush=True)
    ray.shutdown()
    return 0 if here else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # the job was told to stop
        sys.exit(3)
