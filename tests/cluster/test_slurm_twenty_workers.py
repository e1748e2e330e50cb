"""Twenty elastic workers on a real Slurm: all join, leave at their limit and are renewed, and idle ones go."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Network, until
from tests.cluster.slurm_elastic import JOINS, LEAVES, RAY_ENDED, ElasticStudy
from tests.cluster.slurm_hosts import Site, scontrol, site

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.long, pytest.mark.timeout(5400)]

WORKERS = tuple(f"w{number}" for number in range(1, 21))
GROUPS = tuple(WORKERS[first : first + 2] for first in range(0, len(WORKERS), 2))
"""Hosts that start at the same time. The Ray of a host dies if its agents do not start within 15 s (Ray 2.60)."""
LAST = WORKERS[-3:]
"""The hosts that still train while the others are idle."""
SECONDS = 1200
"""Longest wait for the starts of a group, on a busy machine."""


@pytest.fixture(scope="module")
def there() -> Iterator[Site]:
    with Network() as network, site(network, WORKERS) as made:
        yield made


class HeldHosts:
    """Trials on a host wait in a save, once the host has saved as many checkpoints as it may."""

    def __init__(self, there: Site) -> None:
        self.shared = there.network.root / "shared"

    def hold_after(self, saves: int) -> None:
        for host in WORKERS:
            (self.shared / f"most-{host}").write_text(str(saves))

    def release(self, *hosts: str) -> None:
        for host in hosts:
            (self.shared / f"most-{host}").unlink()


def test_twenty_worker_jobs_join_leave_at_their_limit_are_renewed_and_go_when_idle(
    there: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    study = ElasticStudy(there, tmp_path, steps=100, replicates=30, nodes=len(WORKERS), quick=False)
    held, times = HeldHosts(there), {"begin": time.monotonic()}

    def until_saved(group: tuple[str, ...], saves: int) -> None:
        what = f"every host of {', '.join(group)} has saved {saves} checkpoints"
        until(lambda: study.runs(all(study.saves(host).total() >= saves for host in group)), SECONDS, what)

    held.hold_after(2)
    study.submit()
    try:
        for group in GROUPS:
            for host in group:
                there.start(host)
            until_saved(group, 2)
        times["all twenty hosts train"] = time.monotonic()
        first = study.workers()
        assert set(first) == set(WORKERS)
        for group in GROUPS:
            for host in group:
                scontrol("update", f"jobid={first[host]}", "TimeLimit=1")
            until_saved(group, 3)
        times["all twenty jobs have left and are renewed"] = time.monotonic()
        renewed = study.workers()
        assert set(renewed) == set(WORKERS)
        assert not set(renewed.values()) & set(first.values())
        held.release(*(host for host in WORKERS if host not in LAST))
        until(lambda: study.runs(set(study.workers()) == set(LAST)), SECONDS, "idle workers have left")
        times["idle workers have left"] = time.monotonic()
        held.release(*LAST)
        text = study.check_end(SECONDS)
        times["the study has ended"] = time.monotonic()
    except BaseException:
        print(study.log(), there.jobs(), sep="\n")
        raise
    joined, left = text.count(JOINS), text.count(LEAVES) + text.count(RAY_ENDED)
    assert joined >= 2 * len(WORKERS)
    assert left >= 2 * len(WORKERS)
    with capsys.disabled():
        start = times.pop("begin")
        print("", *(f"{at - start:6.0f} s: {what}" for what, at in times.items()), sep="\n")
        print(f"{joined} workers joined, {left} left, {study.repeated()} intervals repeated")
