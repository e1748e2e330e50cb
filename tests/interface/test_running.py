"""Runs from Python with real Ray: interrupted, ended by a callback, resumed; and one count of trials everywhere."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import loopscale
from loopscale.cli.main import main
from loopscale.records.stores.opening import open_store
from loopscale.runner.callbacks import Callback
from loopscale.runner.lease import lock_holder
from loopscale.training import checkpoint

TREE = {
    "question": "Do more loops help?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 1},
        "training": {"steps": 200, "batch_size": 8, "window": 1, "eval_every": 20},
    },
    "scientific": {"training.loops": [1, 2]},
    "nuisance": {"training.lr": {"real": [1e-3, 1e-2], "scale": "log"}},
    "search": {"kind": "random", "trials": 2},
    "replicates": 2,
    "evaluate": {"loops": 4, "prompts": 64},
    "baselines": ["least_squares", "gradient_descent"],
}
VALIDATIONS = 2 * (2 + 2) * 200 // 20


class Seen(Callback):
    """Counts what a run shows, and does something at one of the reports."""

    def __init__(self, at: int = 0, action=None) -> None:
        self.steps, self.ends, self.stages = Counter[str](), list[tuple[str, str]](), list[str]()
        self.at, self.action, self.reports, self.closed = at, action, 0, 0

    def on_stage(self, stage: str) -> None:
        self.stages.append(stage)

    def on_report(self, job, report) -> None:
        self.reports += 1
        self.steps.update(step for step, _ in report.progress for step in [f"{job.key} {step}"])
        if self.reports == self.at:
            self.action()

    def on_trial_end(self, job, report) -> None:
        self.ends.append((job.role, job.outcome))

    def on_end(self) -> None:
        self.closed += 1


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def fail() -> None:
    raise ValueError("the disk of the plot is full")


@pytest.mark.slow
def test_a_run_is_interrupted_ended_by_a_callback_and_resumed_and_loses_nothing(tmp_path: Path):
    store, study = tmp_path / "records", loopscale.Study.parse(TREE, "mine")
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    first = Seen(12, interrupt)
    with pytest.raises(KeyboardInterrupt):
        loopscale.run(study, store, [first], workers=1)
    assert signal.getsignal(signal.SIGINT) is handlers[0]
    assert 12 <= first.reports < 16
    second = Seen(12, fail)
    with pytest.raises(loopscale.errors.CallbackError) as caught:
        loopscale.run(study, store, [second], workers=1)
    assert str(caught.value) == (
        "the callback Seen.on_report raised ValueError: the disk of the plot is full; "
        "another run of mine goes on from here"
    )
    assert isinstance(caught.value.__cause__, ValueError)
    assert second.reports == 12, "a callback is not called after its exception"
    assert lock_holder(open_store(store).storage, "mine") is None
    third = Seen()
    summary = loopscale.run(study, store, [third], workers=1)
    assert summary.outcomes == {"finished": 8}
    assert summary.baselines == {"finished": 2}
    assert not summary.failed
    assert [each.closed for each in (first, second, third)] == [1, 1, 1]
    # All validations are seen, and each trial and baseline ends once.
    assert len(first.steps | second.steps | third.steps) == VALIDATIONS
    assert len(first.ends + second.ends + third.ends) == 8 + 2
    assert third.stages[:3] == [f"the records of mine in {store}", "the start of Ray", "the first worker"]
    assert third.stages[-1] == ""
    table = loopscale.query(
        "SELECT trial, count(*) AS points FROM history WHERE metric = 'error' GROUP BY ALL", store
    )
    assert sorted(table["points"]) == [10] * 8, "no validation is lost or recorded twice"
    best = loopscale.results("mine", store).best()
    assert len(best) == 2
    assert len(checkpoint.keys(open_store(store).checkpoints)) == 8
    assert summary.results.name == "mine"

    again = Seen()
    loopscale.run(study, store, [again], workers=1)
    assert (again.reports, again.ends, again.closed) == (0, [], 1)

    failing = Seen()
    failing.on_start = lambda conductor: fail()
    with pytest.raises(loopscale.errors.CallbackError, match=r"Seen.on_start raised ValueError"):
        loopscale.run(study, store, [failing], workers=1)


@pytest.mark.slow
def test_a_study_runs_in_a_thread_without_signals(tmp_path: Path):
    study = loopscale.Study.parse(TREE | {"nuisance": {}, "replicates": 1, "baselines": []}, "thread")
    summaries = []
    thread = threading.Thread(
        target=lambda: summaries.append(loopscale.run(study, tmp_path / "records", [], workers=1))
    )
    thread.start()
    thread.join(300)
    assert [summary.outcomes for summary in summaries] == [{"finished": 2}]


@pytest.mark.slow
def test_run_list_report_status_and_simulate_count_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOOPSCALE_STORE", raising=False)
    steps = {"training": TREE["fixed"]["training"] | {"steps": 40}}
    tree = TREE | {"fixed": TREE["fixed"] | steps, "scheduler": {"kind": "none"}}
    wide = tree | {"scientific": {"training.loops": [1, 2, 3]}}
    loopscale.run(loopscale.Study.parse(wide, "mine"), ".loopscale", [], workers=1)
    study = loopscale.Study.parse(tree, "mine")
    Path("mine.yaml").write_text(study.text)

    def counted(*words: str) -> dict[str, int]:
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        return (answer[0] if isinstance(answer, list) else answer)["outcomes"]

    by_run = counted("run", "mine.yaml", "--workers", "1")
    assert by_run == {"finished": 8}, "a removed cell of four trials, and two baselines, do not count"
    assert counted("list") == by_run
    assert counted("simulate", "mine.yaml", "--curves", ".loopscale", "--workers", "1") == by_run
    submit = [sys.executable, "-m", "loopscale.cli.main", "submit", "mine.yaml"]
    subprocess.run(submit, check=True, capture_output=True)
    assert main(["logs", "-f", "mine"]) == 0  # until the driver ends
    assert counted("status", "mine") == by_run
    assert main(["report", "mine.yaml", "--out", "page.html"]) == 0
    (sentence,) = re.findall(r"<h2>All trials</h2>\s*<p>(.*?)</p>", Path("page.html").read_text(), re.DOTALL)
    assert " ".join(sentence.split()) == "8 finished. 4 more of removed cells."
