"""An elastic study on a real Slurm of four hosts: worker jobs start late, reach a limit, are drained and killed."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscale.cluster.base import ENDED, Request, Submission
from loopscale.cluster.package import build_package
from loopscale.cluster.slurm import Slurm
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from tests.cluster.hosts import Network, until
from tests.cluster.servers import KEYS
from tests.cluster.slurm_hosts import Site, site

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(900)]

STEPS, EVERY = 400, 20
STUDY = f"""\
question: Does an elastic study survive?
source: nowhere
fixed:
  task: {{kind: linear_regression, dim: 2, points: 4}}
  model: {{kind: looped, width: 8, heads: 1}}
  training: {{steps: {STEPS}, batch_size: 4, window: 1, eval_every: {EVERY}}}
scientific:
  training.loops: [1, 2]
replicates: 3
evaluate: {{loops: 2, prompts: 16}}
"""
WORKERS = ("w1", "w2", "w3")


@pytest.fixture(scope="module")
def there() -> Iterator[Site]:
    with Network() as network, site(network, WORKERS) as made:
        yield made


def cluster(there: Site, **more: object) -> Slurm:
    root = there.network.root
    keys = [f"export {name}={value}" for name, value in KEYS.items() if name.startswith("RAY_health")]
    setup = [
        f"export PYTHONPATH={Path(__file__).parent}/slow OMP_NUM_THREADS=1 SLURM_CONF={there.conf}",
        f"export SLOW_DISK={root}/shared/slow TRACE_SAVES={root}/traces/$(hostname)",
        *keys,
    ]
    settings = {"folder": f"{root}/shared/it is shared", "python": sys.executable, "setup": setup}
    settings |= {
        "mode": "elastic",
        "nodes": 3,
        "cpus_per_task": 1,
        "partition": "work",
        "time_limit": "30 min",
    }
    settings |= {"driver": {"cpus": 1, "memory_gib": None, "partition": "driver"}, "idle_seconds": 15}
    return Slurm.model_validate(settings | more)


def request(folder: Path) -> Request:
    package = build_package("deep/tiny", STUDY)
    return Request("deep/tiny", STUDY, {}, package.write(folder), package.digest, {"cpu": 1.0})


def saves(there: Site, host: str = "*") -> Counter[tuple[str, int]]:
    """The number of checkpoints of each step of each trial, saved on a host or on all."""
    lines = [
        line for file in (there.network.root / "traces").glob(host) for line in file.read_text().splitlines()
    ]
    return Counter((line.split()[0], int(line.split()[1])) for line in lines)


def worker_on(there: Site, host: str) -> str | None:
    """The number of the worker job that runs on a host."""
    running = [job[0] for job in there.jobs() if job[2:] == ["RUNNING", host] and "worker" in job[1]]
    return running[0] if running else None


def scontrol(*words: str) -> None:
    subprocess.run(["scontrol", *words], check=True, capture_output=True)


def log(elastic: Slurm, made: Submission) -> str:
    folder = Path(elastic.folder)
    files = [folder / f"logs/{made.id}.log", *sorted((folder / "jobs" / made.id).glob("*.log"))]
    return "\n".join(f"--- {file.name}\n{file.read_text()}" for file in files if file.exists())


def test_slurm_names_mistakes_before_anything_is_queued(there: Site, tmp_path: Path):
    def lines(**more: object) -> list[str]:
        problems = cluster(there, **more).queue_problems("there", request(tmp_path))
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
    elastic = cluster(there)
    there.start("w1")
    made = elastic.submit("there", request(tmp_path))

    def runs(condition: object) -> bool:
        assert not (end := ended(elastic, made)), end
        return bool(condition)

    try:
        until(lambda: runs(saves(there, "w1")), 200, "the first host trains")
        assert len([job for job in there.jobs() if job[2] == "PENDING"]) == 2, (
            "two worker jobs wait for hosts"
        )
        hosts = elastic.host_states(made)
        assert [host.holds.rpartition(" ")[0] for host in hosts if host.state == "running"].count(
            "driver"
        ) == 1
        waiting = [host for host in hosts if host.state == "pending"]
        assert [host.holds.startswith("worker job ") for host in waiting] == [True, True]
        assert all(host.reason for host in waiting), "Slurm says why a job waits"
        assert {host.name for host in hosts} >= {"w1"}
        there.start("w2")
        there.start("w3")
        until(lambda: runs(saves(there, "w2") and saves(there, "w3")), 200, "the late hosts train")
        first = {host: worker_on(there, host) for host in WORKERS}
        assert all(first.values())
        scontrol("update", f"jobid={first['w1']}", "TimeLimit=1")
        scontrol("update", "nodename=w2", "state=drain", "reason=repair")
        there.hosts["w3"].kill()
        before = saves(there, "w1")
        until(
            lambda: runs(worker_on(there, "w1") not in (None, first["w1"])), 200, "the job of w1 is renewed"
        )
        slow.unlink()
        until(lambda: worker_on(there, "w2") is None, 100, "the drained host is free")
        until(lambda: saves(there, "w1") - before, 200, "the renewed job trains")
        end = until(lambda: ended(elastic, made), 300, "the study has ended")
    except BaseException:
        print(log(elastic, made), there.jobs(), sep="\n")
        raise
    text = log(elastic, made)
    assert end.state == "succeeded", text
    assert text.count("leaves Ray: its time is over, or it is not needed") >= 2
    check_records(elastic, there, text)
    until(lambda: not there.jobs(), 100, "no worker job is left")
    assert not list(Path(elastic.folder).glob("jobs/*/token"))


def ended(elastic: Slurm, made: Submission) -> Submission | None:
    found = next(each for each in elastic.submissions("there") if each.id == made.id)
    return found if found.state in ENDED else None


def check_records(elastic: Slurm, there: Site, text: str) -> None:
    """Every trial is finished, no step is missing or recorded twice, and little work was repeated."""
    store = open_store(Path(elastic.folder) / "records")
    records = list(recorded_trials(store, "deep/tiny"))
    assert [record.outcome for record in records] == ["finished"] * 6
    wanted = list(range(EVERY, STEPS + 1, EVERY))
    for record in records:
        steps = [point.step for point in store.client.get_metric_history(record.run, "error")]
        assert steps == wanted, "each step is recorded once"
    counted = saves(there)
    assert sorted({step for _, step in counted}) == wanted
    repeated = sum(times - 1 for times in counted.values())
    assert repeated <= text.count(": joins Ray at"), "a host that leaves repeats at most one interval"
