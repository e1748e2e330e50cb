"""An elastic study on a real Slurm of four hosts: worker jobs start late, reach a limit, are drained and killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import Network, until
from tests.cluster.slurm_elastic import LEAVES, ElasticStudy, elastic_cluster
from tests.cluster.slurm_hosts import Site, scontrol, site

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(900)]

WORKERS = ("w1", "w2", "w3")


@pytest.fixture(scope="module")
def there() -> Iterator[Site]:
    with Network() as network, site(network, WORKERS) as made:
        yield made


def test_slurm_names_mistakes_before_anything_is_queued(there: Site, tmp_path: Path):
    request = ElasticStudy(there, tmp_path).request()

    def lines(**more: object) -> list[str]:
        problems = elastic_cluster(there, **more).queue_problems("there", request)
        return [problem.text for problem in problems if problem.fatal]

    assert lines() == []
    assert lines(partition="gpu") == ["there is no partition gpu; write partition: one of driver, work"]
    (line,) = lines(time_limit="2 h")
    assert line.startswith("partition work ends jobs after 01:00:00, and the file asks for 02:00:00")
    (line,) = lines(gpu="a100:1")
    assert line.startswith("partition work has 0 hosts with 1 CPUs, 1 a100, and a job needs 1")
    assert there.jobs() == []


def test_worker_jobs_start_late_leave_and_die_and_the_study_is_complete_and_exact(
    there: Site, tmp_path: Path
):
    slow = there.network.root / "shared/slow"
    slow.write_text("1.5")
    study = ElasticStudy(there, tmp_path)
    there.start("w1")
    study.submit()
    try:
        until(lambda: study.runs(study.saves("w1")), 200, "the first host trains")
        assert len([job for job in there.jobs() if job[2] == "PENDING"]) == 2, (
            "two worker jobs wait for hosts"
        )
        hosts = study.cluster.host_states(study.made)
        assert [host.holds.rpartition(" ")[0] for host in hosts if host.state == "running"].count(
            "driver"
        ) == 1
        waiting = [host for host in hosts if host.state == "pending"]
        assert [host.holds.startswith("worker job ") for host in waiting] == [True, True]
        assert all(host.reason for host in waiting), "Slurm says why a job waits"
        assert {host.name for host in hosts} >= {"w1"}
        there.start("w2")
        there.start("w3")
        until(lambda: study.runs(study.saves("w2") and study.saves("w3")), 200, "the late hosts train")
        first = study.workers()
        assert set(first) == set(WORKERS)
        scontrol("update", f"jobid={first['w1']}", "TimeLimit=1")
        scontrol("update", "nodename=w2", "state=drain", "reason=repair")
        there.hosts["w3"].kill()
        before = study.saves("w1")
        until(
            lambda: study.runs(study.workers().get("w1") not in (None, first["w1"])),
            200,
            "the job of w1 is renewed",
        )
        slow.unlink()
        until(lambda: "w2" not in study.workers(), 100, "the drained host is free")
        until(lambda: study.saves("w1") - before, 200, "the renewed job trains")
        text = study.check_end(300)
    except BaseException:
        print(study.log(), there.jobs(), sep="\n")
        raise
    assert text.count(LEAVES) >= 2
