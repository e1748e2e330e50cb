"""The check of a cluster in the first minute of a job. It prints the lines of `loopscale submit`.

    python -m loopscale.cluster.job_check --address ADDRESS --study NAME --store URL --storage URL --trial JSON
    python -m loopscale.cluster.job_check --this-host --storage URL

A batch system starts a job hours after its submission. So the job first looks at its own hosts. The exit code is 0 if
the study can run, 1 if Ray does not answer, and 2 after a fatal problem. The problem is also written to a file.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from loopscale.cluster.base import ClusterProblem
from loopscale.cluster.machine_report import describe_cluster, report_on_machine
from loopscale.cluster.preflight import Submitter, check_machine, check_report
from loopscale.runner.machine import ORIGIN, PACKAGES

TAG_PREFIX = "submitted_with."
"""The start of the keys of the submitting machine's versions in the package's origin."""


def submitter() -> Submitter | None:
    """The machine that submitted the package in the working directory; None without a package."""
    try:
        origin = json.loads(Path(ORIGIN).read_text())
    except (OSError, ValueError):
        return None
    versions = {
        key.removeprefix(TAG_PREFIX): value for key, value in origin.items() if key.startswith(TAG_PREFIX)
    }
    return Submitter("the machine that submitted", versions)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--address", "--study", "--store", "--storage", "--problem"):
        parser.add_argument(option)
    parser.add_argument("--trial", type=json.loads, default={}, help="the resources of a trial, as JSON")
    parser.add_argument("--grows", action="store_true", help="more hosts come later")
    parser.add_argument("--this-host", action="store_true", help="check this host, without Ray")
    parser.add_argument("--seconds", type=float, default=0.0, help="time for the hosts to join")
    parser.add_argument("--hosts", nargs="*", default=[], help="hosts that join Ray")
    options = parser.parse_args(words)
    known = submitter()
    if options.this_host:
        report = report_on_machine(PACKAGES, options.storage)
        return _end(check_machine(report["host"], report, known), options.problem)
    if options.hosts and not wait_at(options.address, options.seconds, options.hosts):
        return 1
    before = time.time()
    report = describe_cluster(PACKAGES, options.store, options.storage, options.study, options.address)
    problems = check_report(
        report,
        options.trial,
        (before, time.time()),
        store=options.store,
        storage=options.storage,
        grows=options.grows,
        submitter=known,
    )
    return _end(problems, options.problem)


def _end(problems: Sequence[ClusterProblem], file: str | None) -> int:
    """Print the problems. Returns the exit code."""
    for problem in problems:
        print(problem.text if problem.fatal else f"note: {problem.text}", flush=True)
    fatal = [problem.text for problem in problems if problem.fatal]
    if fatal and file:
        Path(file).write_text(fatal[0] + "\n")
    return 2 if fatal else 0


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


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # the job is being stopped
        sys.exit(3)
