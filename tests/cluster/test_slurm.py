"""A study on a real Slurm of two hosts: submit, follow, stop, resume, and the time limit."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from loopscale.cluster import slurm as module
from loopscale.cluster.base import ClusterError, Request, Submission
from loopscale.cluster.package import build_package
from loopscale.cluster.slurm import Slurm
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from tests.cluster.slurm_here import missing, slurm
from tests.runner.drivers import TRACING

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(2700)]

STUDY = """\
question: Does the error fall with the loops?
source: nowhere
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 4, batch_size: 4, window: 1, eval_every: 2}
scientific:
  training.loops: [1, 2]
replicates: 2
evaluate: {loops: 2, prompts: 16}
"""
LONG = STUDY.replace("steps: 4,", "steps: 2500,").replace("eval_every: 2", "eval_every: 100")


@pytest.fixture(scope="module")
def site() -> Iterator[None]:
    if lacking := missing():
        pytest.fail(
            f"{', '.join(lacking)} not installed: apt-get install slurmctld slurmd slurm-client munge"
        )
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    try:
        with slurm(folder) as settings:
            os.environ["SLURM_CONF"] = str(settings)
            yield
    finally:
        os.environ.pop("SLURM_CONF", None)
        shutil.rmtree(folder)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    return tmp_path / 'it is $(shared) by "all"'


def cluster(folder: Path, **more: object) -> Slurm:
    settings = {"folder": str(folder), "python": sys.executable, "cpus_per_task": 1, "workers": 2}
    return Slurm.model_validate(settings | {"setup": ["export OMP_NUM_THREADS=1"]} | more)


def request(text: str, tmp_path: Path) -> Request:
    package = build_package("deep/tiny", text)
    return Request("deep/tiny", text, {}, package.write(tmp_path), package.digest, {"cpu": 1.0})


def end(cluster: Slurm, submission: Submission, seconds: float = 900) -> Submission:
    until = time.monotonic() + seconds
    while True:
        found = next(each for each in cluster.submissions("here") if each.id == submission.id)
        if found.state not in ("pending", "running"):
            return found
        assert time.monotonic() < until, "".join(cluster.logs(submission, follow=False))
        time.sleep(1)


def log(cluster: Slurm, submission: Submission) -> str:
    return "".join(cluster.logs(submission, follow=False))


def outcomes(folder: Path) -> list[str | None]:
    return [record.outcome for record in recorded_trials(open_store(folder / "records"), "deep/tiny")]


def job_processes(*submissions: Submission) -> list[str]:
    """The processes with the temporary folder of a job, `/tmp/loopscale-ID`. No other Slurm has these numbers."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or ())
        if any(re.search(rf"/tmp/loopscale-{each.id}\b", line) for each in submissions):
            found.append(line)
    return found


def wait_until(condition: Callable[[], object], cluster: Slurm, submission: Submission) -> None:
    until = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < until, log(cluster, submission)
        time.sleep(0.5)


@pytest.mark.usefixtures("site")
def test_a_study_runs_on_two_hosts_and_leaves_no_process_behind(shared: Path, tmp_path: Path):
    here = cluster(shared, nodes=2)
    made = here.submit("here", request(STUDY, tmp_path))
    again = here.submit("here", request(STUDY, tmp_path))
    assert (again.id, again.attached) == (made.id, True)
    text = "".join(here.logs(made, follow=True))
    assert end(here, made).state == "succeeded", text
    assert "2 of 2 hosts have joined" in text
    assert outcomes(shared) == ["finished"] * 4
    wait_until(lambda: not job_processes(made), here, made)
    assert not list((shared / "jobs").glob("*/token"))


@pytest.mark.usefixtures("site")
@pytest.mark.long
def test_a_study_stops_cleanly_resumes_and_survives_its_time_limit(shared: Path, tmp_path: Path):
    slow = tmp_path / "save-seconds"
    slow.write_text("3")  # a trial takes more than a minute: time for the commands between two saves
    words = f"PYTHONPATH={TRACING} TRACE_SAVES={tmp_path}/saves SAVE_SECONDS={slow} OMP_NUM_THREADS=1"
    here = cluster(shared, setup=[f"export {words}"])
    first = here.submit("here", request(LONG, tmp_path))
    trained(shared, here, first)
    here.stop(here.submissions("here")[0])
    assert end(here, first).state == "stopped", log(here, first)
    assert "interrupted" in outcomes(shared)
    second = here.submit("here", request(LONG, tmp_path))
    assert second.id != first.id
    assert not second.attached
    before = trained(shared, here, second)
    subprocess.run(
        ["scancel", "--signal=USR1", "--batch", second.id], check=True
    )  # as Slurm does near the end
    wait_until(lambda: "is queued again" in log(here, second), here, second)
    slow.unlink()
    assert end(here, second, 1500).state == "succeeded", log(here, second)
    assert outcomes(shared) == ["finished"] * 4
    assert before < 2500
    store = open_store(shared / "records")
    for record in recorded_trials(store, "deep/tiny"):
        steps = [point.step for point in store.client.get_metric_history(record.run, "error")]
        assert steps == sorted(set(steps)), "no step is recorded twice"
        assert steps[-1] == 2500
    wait_until(lambda: not job_processes(first, second), here, second)


@pytest.mark.usefixtures("site")
@pytest.mark.long
def test_a_waiting_job_is_removed_from_the_queue(shared: Path, tmp_path: Path):
    here = cluster(shared, options=["--hold"])
    made = here.submit("here", request(STUDY, tmp_path))
    assert here.submissions("here")[-1].state == "pending"
    here.stop(here.submissions("here")[-1])
    assert end(here, made).state == "stopped"
    with pytest.raises(ClusterError, match="has printed nothing yet"):
        list(here.logs(made, follow=True))


@pytest.mark.usefixtures("site")
@pytest.mark.long
def test_a_refusal_of_sbatch_is_one_line(shared: Path, tmp_path: Path):
    here = cluster(shared, partition="it's $(not) there")
    with pytest.raises(ClusterError, match=r"sbatch says: .*partition") as told:
        here.submit("here", request(STUDY, tmp_path))
    assert "\n" not in str(told.value)
    assert here.submissions("here") == []


@pytest.mark.usefixtures("site")
@pytest.mark.long
def test_a_killed_job_has_failed_and_names_the_remedy(shared: Path, tmp_path: Path):
    here = cluster(shared, setup=["sleep 1000"])
    made = here.submit("here", request(STUDY, tmp_path))
    wait_until(lambda: here.submissions("here")[-1].state != "pending", here, made)
    subprocess.run(["scancel", "--signal=KILL", "--full", made.id], check=True)
    found = end(here, made)
    assert (found.state, found.detail) == ("failed", "Slurm ended it; submit it again to resume")


def trained(folder: Path, cluster: Slurm, submission: Submission, seconds: float = 600) -> int:
    """Wait until a trial has saved a new checkpoint. Returns the largest recorded step."""
    until, since = time.monotonic() + seconds, time.time()
    while True:
        fresh = [path for path in folder.glob("storage/checkpoints/*") if path.stat().st_mtime > since]
        if fresh and (
            steps := [
                record.step or 0 for record in recorded_trials(open_store(folder / "records"), "deep/tiny")
            ]
        ):
            return max(steps)
        assert time.monotonic() < until, log(cluster, submission)
        time.sleep(0.5)


def test_the_accounts_are_asked_for_fields_that_slurm_knows(site: None, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr(module, "run_command", lambda words: asked.extend(words) or "PREEMPTED\n")
    assert module._reason_without_exit_code("7") == "Slurm ended it (PREEMPTED); submit it again to resume"
    (fields,) = [word.removeprefix("--format=") for word in asked if word.startswith("--format=")]
    program = Path(
        shutil.which("sacct") or ""
    ).read_bytes()  # its list of fields; `--helpformat` asks a database
    assert all(b"\0%b\0" % field.encode() in program for field in fields.split(","))
