"""What a worker says of an order, without Ray: how trials end, and where they go on."""

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
from loopscale.runner.baseline import Baseline
from loopscale.runner.messages import Order, Report
from loopscale.runner.on_ray.worker import work
from loopscale.training import checkpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.folder import Folder
from loopscale.training.storage import StorageMissing, StorageUnavailable
from loopscale.training.trial import Trial
from tests.buckets import CREDENTIALS, Bucket
from tests.disks import small_disk

EVALUATION = Evaluation(loops=5, prompts=32)


def trial(**training: Any) -> Trial:
    options = {"steps": 30, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10}
    return Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 8, "heads": 2},
            "training": options | training,
        }
    )


def order(folder: Path, trial: Trial, kind: str = "train") -> Order:
    folder.mkdir(exist_ok=True)
    return Order(kind=kind, key=trial.key, trial=trial, evaluation=EVALUATION, shelf=str(folder))  # pyright: ignore


def place(order: Order) -> Path:
    return Path(order.shelf, f"{order.key}.safetensors")


def said(reports: list[Report]) -> dict[int, dict[str, float]]:
    return {step: metrics for report in reports for step, metrics in report.progress}


def test_a_trial_says_its_progress_and_ends_with_its_curve(tmp_path: Path):
    one = order(tmp_path, trial())
    reports = list(work(one))
    assert list(said(reports)) == [10, 20, 30]
    last = reports[-1]
    assert last.outcome == "finished"
    assert last.curve
    assert last.curve.error.shape == (5, 4)
    assert last.metrics
    assert last.metrics["evaluate/error"] == pytest.approx(last.curve.error[2].mean())


def test_the_curve_is_that_of_the_reloaded_checkpoint(tmp_path: Path):
    one = order(tmp_path, trial())
    *_, last = work(one)
    net = checkpoint.load_net(open_checkpoint_store(one.shelf), one.key, trial())
    assert last.curve
    np.testing.assert_array_equal(last.curve.error, evaluate(net, trial().task, EVALUATION).error)


def test_a_worker_cut_short_goes_on_and_says_all_again(tmp_path: Path):
    whole = said(list(work(order(tmp_path / "whole", trial()))))
    one = order(tmp_path / "cut", trial())
    reports = work(one)
    assert said([next(reports)])
    reports.close()
    again = list(work(one))
    assert again[0].progress[-1][0] == 10
    timeless = [{step: m | {"seconds": 0.0} for step, m in each.items()} for each in (said(again), whole)]
    assert timeless[0] == timeless[1]


def test_a_finished_trial_is_evaluated_and_not_trained(tmp_path: Path):
    one = order(tmp_path, trial())
    first = list(work(one))
    before = place(one).stat().st_mtime_ns
    again = list(work(one))
    assert place(one).stat().st_mtime_ns == before
    assert said(again) == said(first)
    assert again[-1].metrics == first[-1].metrics


def test_rare_checkpoints_repeat_no_more_than_their_interval(tmp_path: Path):
    one = order(tmp_path, trial(steps=60, checkpoint_every=30))
    reports = work(one)
    for _ in range(4):
        next(reports)
    reports.close()
    saved = checkpoint.load(open_checkpoint_store(one.shelf), one.key)
    assert saved
    assert saved.history[-1][0] == 30


def test_a_damaged_checkpoint_costs_the_training_and_not_the_study(tmp_path: Path):
    one = order(tmp_path, trial())
    first = list(work(one))
    place(one).write_bytes(place(one).read_bytes()[:1000])
    again = list(work(one))
    assert again[-1].metrics == first[-1].metrics


def test_weights_that_were_not_kept_end_a_trial_without_a_curve(tmp_path: Path):
    one = order(tmp_path, trial())
    list(work(one))
    checkpoint.strip(open_checkpoint_store(one.shelf), one.key, keep_weights=False)
    for kind in ("train", "evaluate"):
        *_, last = work(one.model_copy(update={"kind": kind}))
        assert (last.outcome, last.curve) == ("finished", None)
        assert "not evaluated" in last.detail


def test_weights_dropped_before_the_end_are_trained_again(tmp_path: Path):
    one = order(tmp_path, trial())
    reports = work(one)
    next(reports)
    reports.close()
    checkpoint.strip(open_checkpoint_store(one.shelf), one.key, keep_weights=False)
    again = list(work(one))
    assert list(said(again)) == [10, 20, 30]
    assert again[-1].curve


def test_a_trial_that_diverges_says_where(tmp_path: Path):
    *_, last = work(order(tmp_path, trial(lr=1e30)))
    assert last.outcome == "diverged"
    assert "step" in last.detail


def test_a_trial_too_large_for_the_machine_is_out_of_memory_and_no_bug(tmp_path: Path):
    *_, last = work(order(tmp_path, trial(batch_size=10**12)))
    assert last.outcome == "out_of_memory"


def test_a_bug_is_reported_with_its_traceback(tmp_path: Path):
    one, other = order(tmp_path, trial()), order(tmp_path, trial(lr=0.5))
    next(work(other))
    place(other).rename(place(one))
    *_, last = work(one)
    assert last.outcome == "failed"
    assert "Traceback" in last.detail


def test_a_baseline_has_a_curve_and_nothing_to_train(tmp_path: Path):
    work_on = {"task": trial().task.model_dump(), "solver": {"kind": "gradient_descent"}}
    baseline = Baseline.model_validate(work_on)
    (only,) = work(Order(kind="baseline", key=baseline.key, baseline=baseline, evaluation=EVALUATION))
    assert only.outcome == "finished"
    assert only.curve
    assert only.curve.error.shape == (5, 4)
    assert not only.progress


def test_storage_that_fails_is_the_machines_fault_and_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Folder, "patience", 0.0)
    with small_disk(tmp_path / "disk", "16k") as disk:
        reports = work(order(disk, trial()))
        with pytest.raises(StorageUnavailable, match="No space left on device") as found:
            next(reports)
    assert str(pickle.loads(pickle.dumps(found.value))) == str(found.value)  # as Ray carries it


def test_a_worker_without_the_folder_neither_trains_nor_makes_it(tmp_path: Path):
    one = order(tmp_path / "here", trial()).model_copy(update={"shelf": str(tmp_path / "not-mounted")})
    with pytest.raises(StorageMissing, match="mount it"):
        next(work(one))
    assert not (tmp_path / "not-mounted").exists()


WORKER = """
import sys
from loopscale.runner.messages import Order
from loopscale.runner.on_ray.worker import work
for report in work(Order.model_validate_json(sys.argv[1])):
    print(*(step for step, _ in report.progress), flush=True)
"""


@pytest.mark.slow
def test_a_worker_killed_at_any_moment_goes_on_bitwise_through_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server, one = Bucket(tmp_path), trial(steps=100)
    through = order(tmp_path, one).model_copy(update={"shelf": server.url})
    whole = order(tmp_path / "whole", one)
    list(work(whole))
    server.start()
    try:
        for kill in range(3):
            process = subprocess.Popen(
                [sys.executable, "-c", WORKER, through.model_dump_json()], stdout=subprocess.PIPE, text=True
            )
            assert process.stdout
            for _ in range(2):
                process.stdout.readline()
            time.sleep(0.004 * kill)
            process.kill()
            process.communicate()
        killed = list(work(through))
        ends = [checkpoint.load(open_checkpoint_store(each.shelf), one.key) for each in (through, whole)]
    finally:
        server.kill()
    assert killed[0].progress[-1][0] < 100, "the last worker had ended before it was killed"
    first, second = (end.state for end in ends if end and end.state)
    assert first.net.keys() == second.net.keys()
    assert all(torch.equal(first.net[name], second.net[name]) for name in first.net)
    for index, moments in first.optimiser["state"].items():
        assert all(torch.equal(value, second.optimiser["state"][index][n]) for n, value in moments.items())
    timeless = [[(step, m | {"seconds": 0.0}) for step, m in end.history] for end in ends if end]
    assert timeless[0] == timeless[1]


def test_an_older_file_put_in_place_of_the_last_is_trained_to_the_end_again(tmp_path: Path):
    one = order(tmp_path, trial())
    older, reports = b"", []
    for report in work(one):
        reports.append(report)
        older = older or place(one).read_bytes()
        if len(reports) == 3:  # the last step has been saved
            place(one).write_bytes(older)
    assert checkpoint.reached(open_checkpoint_store(one.shelf), one.key) == 30
    whole = list(work(order(tmp_path / "whole", trial())))
    assert reports[-1].metrics == whole[-1].metrics
