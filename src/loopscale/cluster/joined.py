"""Wait until the hosts of a Slurm allocation have joined Ray.

A missing host is no failure: the study begins on the hosts that are there, and a late host still helps.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence


def wait_for_hosts(
    hosts: Sequence[str], seconds: float, alive: Callable[[], Collection[str]], pause: float = 1.0
) -> list[str]:
    """Wait until all `hosts` are `alive`, or until the time is up; the hosts that are missing then."""
    until = time.monotonic() + seconds
    while missing := [host for host in hosts if host not in alive()]:
        if time.monotonic() > until:
            break
        time.sleep(pause)
    return missing


def wait_at(address: str, seconds: float, hosts: Sequence[str]) -> bool:
    """Wait for the hosts at the address of a Ray. True if at least one host has joined."""
    import ray  # here, because a look-up of a cluster's kind imports this module

    ray.init(address, logging_level=logging.ERROR, log_to_driver=False)
    missing = wait_for_hosts(
        hosts, seconds, lambda: {str(node["NodeName"]) for node in ray.nodes() if node["Alive"]}
    )
    count = len(hosts) - len(missing)
    print(f"{count} of {len(hosts)} hosts have joined Ray at {address}", flush=True)
    if missing:
        print(f"missing after {seconds:g} s: {' '.join(missing)}; see their ray-*.log", flush=True)
    ray.shutdown()
    return count > 0
