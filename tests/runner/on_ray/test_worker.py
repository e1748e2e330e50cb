"""Reports of a worker on its orders, without Ray: outcomes of trials, and the steps at which they resume."""

import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loopscale.evaluate import Evaluation, evaluate
from loopscale.records.model import LEARNING
from loopscale.regret import floor
from loopscale.runner.decide.job import Baseline, Order, Report
from loopscale.runner.on_ray import worker
from loopscale.runner.on_ray.worker import work
from loopscale.training import checkpoint
from loopscale.training.checkpoint_stores import Folder, open_checkpoint_store
from loopscale.training.storage import StorageMissing, StorageUnavailable
from loopscale.training.trial import Trial
from tests.buckets import CREDENTIALS, Bucket
from tests.disks import small_disk

EVALUATION = Evaluation(loops=5, prompts=32)


def make_trial(**training: Any) -> Trial:
    options = {"steps": 30, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10}
    return Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 8, "heads": 2},
            "training": options | training,
        }
    )


def make_order(folder: Path, trial: Trial, kind: str = "train") -> Order:
    folder.mkdir(exist_ok=True)
    return Order(kind=kind, key=trial.key, trial=trial, evaluation=EVALUATION, checkpoints=str(folder))  # pyright: ignore


def checkpoint_file(order: Order) -> Path:
    return Path(order.checkpoints, f"{order.key}.safetensors")


def all_progress(reports: list[Report]) -> dict[int, dict[str, float]]:
    """Metrics by step."""
    return {step: metrics for report in reports for step, metrics in report.progress}


def without_times(progress: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    return {step: metrics | {"seconds": 0.0} for step, metrics in progress.items()}


def test_a_trial_reports_its_progress_and_ends_with_its_curve(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    reports = list(work(order))
    assert list(all_progress(reports)) == [10, 20, 30]
    last = reports[-1]
    assert last.outcome == "finished"
    assert last.curve
    assert last.curve.error.shape == (5, 4)
    assert last.metrics
    assert last.metrics["evaluate/error"] == pytest.approx(last.curve.error[2].mean())


def test_nets_and_solvers_of_bandits_report_their_play(tmp_path: Path):
    bandit = {"kind": "bandit", "dim": 2, "points": 4}
    trial = Trial.model_validate(make_trial().model_dump(mode="json") | {"task": bandit})
    *_, net = work(make_order(tmp_path, trial))
    solver = Baseline.model_validate({"task": bandit, "solver": {"kind": "thompson"}})
    asked = {"kind": "baseline", "key": solver.key, "baseline": solver, "evaluation": EVALUATION}
    *_, thompson = work(Order.model_validate(asked | {"checkpoints": str(tmp_path)}))
    for report in (net, thompson):
        assert report.metrics
        assert report.curve
        assert report.curve.play
        assert report.curve.play.sampled[-1] == report.metrics["evaluate/play_regret"]
        assert report.curve.play.greedy[-1] == report.metrics["evaluate/play_regret_greedy"]
        for name in ("target_kl", *trial.task.outcome_names, "play_regret_sem"):
            assert 0 <= report.metrics[f"evaluate/{name}"] < 10
    assert thompson.metrics
    assert thompson.metrics["evaluate/play_regret_ratio"] == pytest.approx(1)
    assert thompson.metrics["evaluate/target_kl"] == pytest.approx(0, abs=1e-6)


def test_a_trial_resets_torch_and_records_how_it_ran(tmp_path: Path):
    for precision, ran in {"bf16": "bf16 on cpu", "tf32": "float32 (no TF32 here) on cpu"}.items():
        torch.set_float32_matmul_precision("medium")  # as an earlier trial of the process may leave it
        *_, last = work(make_order(tmp_path, make_trial(precision=precision)))
        assert torch.get_float32_matmul_precision() == "highest"
        assert last.execution == ran


def test_the_curve_is_of_the_reloaded_checkpoint(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    *_, last = work(order)
    net = checkpoint.load_net(open_checkpoint_store(order.checkpoints), order.key, make_trial())
    assert last.curve
    np.testing.assert_array_equal(last.curve.error, evaluate(net, make_trial().task, EVALUATION).error)


def test_a_trial_records_regret_and_learning_of_itself(tmp_path: Path):
    trial = make_trial(lr=1e-2, steps=300, eval_every=25)
    *_, last = work(make_order(tmp_path, trial))
    assert last.metrics
    assert last.curve
    assert last.curve.regret
    assert last.floor == "bayes ridge"
    assert last.metrics["evaluate/regret"] == last.curve.regret.regret[2].mean()
    assert last.metrics["evaluate/regret_last"] == last.curve.regret.regret[2, -1]
    assert last.metrics["evaluate/regret_sem"] > 0
    known = floor(trial.task)
    assert last.metrics["validate_floor"] == known.error.mean()
    assert (
        last.metrics["still_falling_low"] < last.metrics["still_falling"] < last.metrics["still_falling_high"]
    )


def test_a_trial_records_the_solvers_that_its_net_was_compared_with(tmp_path: Path):
    trial = make_trial(similar_to=[{"solver": "newton", "iterates": 8}])
    order = make_order(tmp_path, trial)
    reports = list(work(order))
    last = all_progress(reports)[30]
    names = ["similarity_newton", "match_newton", "half_match_newton"]
    assert [all_progress(reports)[10][name] for name in names] != [last[name] for name in names]
    assert reports[-1].metrics
    assert {name: reports[-1].metrics[f"evaluate/{name}"] for name in names} == {
        name: last[name] for name in names
    }
    # The same trial without a comparison was trained already, so it keeps what the records have.
    (evaluated,) = work(make_order(tmp_path, make_trial(), "evaluate"))
    assert evaluated.metrics
    assert "evaluate/match_newton" not in evaluated.metrics


def test_a_trial_that_resumes_records_the_same_learning(tmp_path: Path):
    trial = make_trial(lr=1e-2, steps=120, eval_every=10, checkpoint_every=20)
    *_, whole = work(make_order(tmp_path / "whole", trial))
    order = make_order(tmp_path / "cut", trial)
    reports = work(order)
    for _ in range(5):
        next(reports)
    reports.close()
    *_, cut = work(order)
    assert whole.metrics == cut.metrics
    assert whole.metrics
    assert set(LEARNING) - {"emerged_at"} <= set(whole.metrics)


def test_a_problem_of_the_floor_loses_no_trained_net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def out_of_memory(*_: Any) -> None:
        raise MemoryError("no room for the floor")

    monkeypatch.setattr(worker, "kept_floor", out_of_memory)
    *_, last = work(make_order(tmp_path, make_trial()))
    assert (last.outcome, last.detail) == ("finished", "no regret: no room for the floor")
    assert last.metrics
    assert last.curve
    assert "evaluate/error" in last.metrics
    assert last.curve.regret is None


def test_a_baseline_has_a_regret(tmp_path: Path):
    baseline = Baseline.model_validate(
        {"task": {"kind": "linear_regression", "dim": 2, "points": 4}, "solver": {"kind": "gradient_descent"}}
    )
    order = Order(
        kind="baseline",
        key=baseline.key,
        baseline=baseline,
        evaluation=EVALUATION,
        checkpoints=str(tmp_path),
    )
    *_, last = work(order)
    assert last.curve
    assert last.curve.regret
    assert last.curve.regret.regret.shape == (5, 4)
    assert "evaluate/regret" in (last.metrics or {})
    assert "validate_floor" not in (last.metrics or {})


def test_an_interrupted_trial_resumes_and_repeats_its_history(tmp_path: Path):
    uninterrupted = all_progress(list(work(make_order(tmp_path / "whole", make_trial()))))
    order = make_order(tmp_path / "cut", make_trial())
    reports = work(order)
    assert all_progress([next(reports)])
    reports.close()
    resumed = list(work(order))
    assert resumed[0].progress[-1][0] == 10
    assert without_times(all_progress(resumed)) == without_times(uninterrupted)


def test_a_finished_trial_is_evaluated_and_not_trained(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    first = list(work(order))
    before = checkpoint_file(order).stat().st_mtime_ns
    again = list(work(order))
    assert checkpoint_file(order).stat().st_mtime_ns == before
    assert all_progress(again) == all_progress(first)
    assert again[-1].metrics == first[-1].metrics


def test_rare_checkpoints_repeat_at_most_their_interval(tmp_path: Path):
    order = make_order(tmp_path, make_trial(steps=60, checkpoint_every=30))
    reports = work(order)
    for _ in range(4):
        next(reports)
    reports.close()
    saved = checkpoint.load(open_checkpoint_store(order.checkpoints), order.key)
    assert saved
    assert saved.history[-1][0] == 30


def test_a_trial_with_a_damaged_checkpoint_is_trained_again(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    first = list(work(order))
    checkpoint_file(order).write_bytes(checkpoint_file(order).read_bytes()[:1000])
    again = list(work(order))
    assert again[-1].metrics == first[-1].metrics


def test_a_finished_trial_without_weights_has_no_curve(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    list(work(order))
    checkpoint.strip(open_checkpoint_store(order.checkpoints), order.key, keep_weights=False)
    for kind in ("train", "evaluate"):
        *_, last = work(order.model_copy(update={"kind": kind}))
        assert (last.outcome, last.curve) == ("finished", None)
        assert "not evaluated" in last.detail


def test_a_trial_whose_weights_were_dropped_before_its_end_is_trained_again(tmp_path: Path):
    order = make_order(tmp_path, make_trial())
    reports = work(order)
    next(reports)
    reports.close()
    checkpoint.strip(open_checkpoint_store(order.checkpoints), order.key, keep_weights=False)
    again = list(work(order))
    assert list(all_progress(again)) == [10, 20, 30]
    assert again[-1].curve


def test_a_trial_that_diverges_reports_the_step(tmp_path: Path):
    *_, last = work(make_order(tmp_path, make_trial(lr=1e30)))
    assert last.outcome == "diverged"
    assert "step" in last.detail


def test_a_trial_too_large_for_the_machine_is_out_of_memory(tmp_path: Path):
    *_, last = work(make_order(tmp_path, make_trial(batch_size=10**12)))
    assert last.outcome == "out_of_memory"


def test_a_checkpoint_of_another_trial_is_not_used(tmp_path: Path):
    order, other = make_order(tmp_path, make_trial()), make_order(tmp_path, make_trial(lr=0.5))
    next(work(other))
    checkpoint_file(other).rename(checkpoint_file(order))
    *_, last = work(order)
    assert last.outcome == "finished"
    *_, undisturbed = work(make_order(tmp_path / "undisturbed", make_trial()))
    assert last.metrics["evaluate/error"] == undisturbed.metrics["evaluate/error"]


def test_a_bug_is_reported_with_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def faulty(*_: object) -> None:
        raise RuntimeError("a planted bug")

    monkeypatch.setattr(type(make_trial().task), "sample", faulty)
    *_, last = work(make_order(tmp_path, make_trial()))
    assert last.outcome == "failed"
    assert "Traceback" in last.detail
    assert "a planted bug" in last.detail


def test_a_baseline_has_a_curve_and_no_progress(tmp_path: Path):
    settings = {"task": make_trial().task.model_dump(), "solver": {"kind": "gradient_descent"}}
    baseline = Baseline.model_validate(settings)
    (report,) = work(Order(kind="baseline", key=baseline.key, baseline=baseline, evaluation=EVALUATION))
    assert report.outcome == "finished"
    assert report.curve
    assert report.curve.error.shape == (5, 4)
    assert not report.progress


def test_a_failure_of_storage_is_raised_and_not_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Folder, "patience", 0.0)
    with small_disk(tmp_path / "disk", "16k") as disk:
        reports = work(make_order(disk, make_trial()))
        with pytest.raises(StorageUnavailable, match="No space left on device") as raised:
            next(reports)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # Ray pickles the error


def test_a_worker_without_the_folder_neither_trains_nor_creates_it(tmp_path: Path):
    missing = {"checkpoints": str(tmp_path / "not-mounted")}
    order = make_order(tmp_path / "here", make_trial()).model_copy(update=missing)
    with pytest.raises(StorageMissing, match="mount it"):
        next(work(order))
    assert not (tmp_path / "not-mounted").exists()


WORKER = """
import sys
from loopscale.runner.decide.job import Order
from loopscale.runner.on_ray import worker
from loopscale.runner.on_ray.worker import work
for report in work(Order.model_validate_json(sys.argv[1])):
    print(*(step for step, _ in report.progress), flush=True)
"""


@pytest.mark.slow
def test_a_worker_killed_at_any_moment_resumes_bitwise_through_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server, trial = Bucket(tmp_path), make_trial(steps=100)
    killed = make_order(tmp_path, trial).model_copy(update={"checkpoints": server.url})
    uninterrupted = make_order(tmp_path / "uninterrupted", trial)
    list(work(uninterrupted))
    server.start()
    try:
        for kill in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, killed.model_dump_json()], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout
            for _ in range(2):
                process.stdout.readline()
            time.sleep(0.004 * kill)
            process.kill()
            process.communicate()
        reports = list(work(killed))
        saved = [
            checkpoint.load(open_checkpoint_store(order.checkpoints), trial.key)
            for order in (killed, uninterrupted)
        ]
    finally:
        server.kill()
    assert reports[0].progress[-1][0] < 100, "the last worker ended before the kill"
    first, second = (end.state for end in saved if end and end.state)
    assert first.net.keys() == second.net.keys()
    assert all(torch.equal(first.net[name], second.net[name]) for name in first.net)
    for index, moments in first.optimizer["state"].items():
        assert all(torch.equal(value, second.optimizer["state"][index][n]) for n, value in moments.items())
    histories = [[(step, m | {"seconds": 0.0}) for step, m in end.history] for end in saved if end]
    assert histories[0] == histories[1]


def test_a_trial_whose_last_checkpoint_was_overwritten_by_an_older_checkpoint_is_trained_to_its_end(
    tmp_path: Path,
):
    order = make_order(tmp_path, make_trial())
    older, reports = b"", []
    for report in work(order):
        reports.append(report)
        older = older or checkpoint_file(order).read_bytes()
        if len(reports) == 3:  # the last step has been saved
            checkpoint_file(order).write_bytes(older)
    assert checkpoint.reached(open_checkpoint_store(order.checkpoints), order.key) == 30
    uninterrupted = list(work(make_order(tmp_path / "uninterrupted", make_trial())))
    assert reports[-1].metrics == uninterrupted[-1].metrics


@pytest.mark.slow
def test_a_worker_imports_no_package_that_training_does_not_need(tmp_path: Path):
    """Each of these packages takes tenths of a second of processor time at the start of every worker."""
    order = make_order(tmp_path, make_trial(clip=1.0)).model_dump_json()
    needless = ["mlflow", "optuna", "pandas", "ray", "scipy.special", "sympy", "torch._dynamo"]
    code = (
        "import sys; from loopscale.runner.on_ray.worker import work; from loopscale.runner.decide.job import Order; "
        f"reports = list(work(Order.model_validate_json({order!r}))); "
        f"print(reports[-1].outcome, [name for name in {needless} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "finished []"
