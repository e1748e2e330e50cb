"""The check in the first minute of a job, and its line as the detail of the submission."""

import json
import time
from pathlib import Path

import pytest

from loopscale.cluster.job_check import main, submitter
from loopscale.cluster.preflight import Submitter, check_report
from loopscale.cluster.slurm import Slurm
from loopscale.runner.machine import ORIGIN, PACKAGES, versions

HERE = versions(PACKAGES)


def node(**changes: object) -> dict[str, object]:
    about = {
        "address": "10.0.0.2",
        "host": "n1",
        "python": "3.11.9",
        "versions": HERE,
        "storage": "",
        "skew": 0.0,
    }
    return about | {"resources": {"CPU": 4.0}, "time": time.time()} | changes


def lines(
    nodes: list[dict], submitter: Submitter | None = None, gpu: float = 0.0, **changes: object
) -> list[tuple[bool, str]]:
    now = time.time()
    settings = {"store": "http://m:5000", "storage": "/s", "grows": False} | changes
    problems = check_report(
        node(nodes=nodes, store=""),
        {"cpu": 1.0, "gpu": gpu},
        (now - 1, now + 1),
        submitter=submitter,
        **settings,  # pyright: ignore[reportArgumentType]
    )
    return [(problem.fatal, problem.text) for problem in problems]


def test_a_host_that_cannot_write_checkpoints_ends_the_job_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    problem = tmp_path / "problem"
    good = tmp_path / "storage"
    good.mkdir()
    assert main(["--this-host", "--storage", str(good), "--problem", str(problem)]) == 0
    assert not problem.exists()
    assert main(["--this-host", "--storage", str(tmp_path / "none"), "--problem", str(problem)]) == 2
    said = problem.read_text()
    assert "cannot write checkpoints: there is no folder" in said
    assert said.strip() in capsys.readouterr().out


def test_the_line_of_the_first_minute_is_the_detail_of_the_submission(tmp_path: Path):
    job = tmp_path / "jobs/7"
    job.mkdir(parents=True)
    (job / "about.json").write_text(json.dumps({"study": "a", "submitted": 1.0}))
    (job / "exit").write_text("2\n")
    (job / "problem").write_text("n1 has no torch; install torch>=2.6 there\n")
    found = Slurm.model_validate({"folder": str(tmp_path)})._submission("s", job / "about.json", None)
    assert (found.state, found.detail) == ("failed", "n1 has no torch; install torch>=2.6 there")


def test_versions_are_compared_with_the_machine_that_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert submitter() is None
    (tmp_path / ORIGIN).write_text(json.dumps({"submitted_with.torch": "9.9", "git_commit": "abc"}))
    known = submitter()
    assert known == Submitter("the machine that submitted", {"torch": "9.9"})
    said = lines([node()], known)
    assert (
        False,
        f"the head has torch {HERE['torch']}, and the machine that submitted has 9.9; results may differ",
    ) in (said)
    assert lines([node()]) == []


def test_a_cluster_that_grows_may_have_no_host_for_a_trial_yet():
    small = [node(resources={"CPU": 0.0})]
    ((fatal, text),) = lines(small)
    assert fatal
    assert "no present machine has that" in text
    ((fatal, _),) = lines(small, grows=True)
    assert not fatal


def test_gpus_of_running_machines_that_the_study_does_not_use_are_a_note():
    ((fatal, text),) = lines([node(resources={"CPU": 4.0, "GPU": 2.0})])
    assert not fatal
    assert text.startswith("the study asks for no GPU, and a machine of the cluster has 2")


def test_a_machine_with_a_gpu_that_its_torch_cannot_use_is_one_line():
    with_cuda, without = (
        HERE | {"torch": f"{HERE['torch'].partition('+')[0]}{build}"} for build in ("", "+cpu")
    )
    nodes = [
        node(address="10.0.0.1", resources={"CPU": 4.0}, versions=without),
        node(address="10.0.0.2", resources={"CPU": 4.0, "GPU": 1.0}, versions=without),
        node(address="10.0.0.3", resources={"CPU": 4.0, "GPU": 1.0}, versions=with_cuda),
    ]
    fatal = [text for fatal, text in lines(nodes, gpu=0.25) if fatal]
    what = f"10.0.0.2 has torch {without['torch']}, which is built without CUDA"
    assert fatal == [f"{what}; install a build with CUDA there"]
    assert not any(fatal for fatal, _ in lines(nodes[:1]))
