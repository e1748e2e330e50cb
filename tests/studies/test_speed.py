"""Predicted times of trials."""

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from loopscale.evaluate import Evaluation
from loopscale.studies import speed
from loopscale.studies.speed import (
    GivenRate,
    MeasuredSpeed,
    curriculum_share,
    measured_speed,
    spread,
    trial_cost,
)
from loopscale.training.cost import Seconds
from loopscale.training.trial import Trial

EVALUATION = Evaluation(loops=20, prompts=100)


def trial(width: int = 16, heads: int = 2, kind: str = "looped", **training: Any) -> Trial:
    return Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": 2, "points": 8},
            "model": {"kind": kind, "width": width, "heads": heads},
            "training": {"steps": 100, "batch_size": 8, "loops": 4, "window": 4} | training,
        }
    )


def measured(*shapes: tuple[Trial, float], slow_down: float = 1.0) -> MeasuredSpeed:
    return MeasuredSpeed(tuple((t, Seconds(step, 1e-9, 1e-9)) for t, step in shapes), slow_down)


def step_seconds(made: MeasuredSpeed, of: Trial) -> float:
    return (made.seconds(of, EVALUATION) - speed.TRIAL_SECONDS) / of.training.steps


def test_a_measured_shape_has_its_measured_time():
    made = measured((trial(16), 0.01), (trial(64), 0.05), (trial(kind="gpt2"), 1.0))
    assert step_seconds(made, trial(16)) == pytest.approx(0.01, rel=1e-3)
    assert step_seconds(made, trial(64)) == pytest.approx(0.05, rel=1e-3)


def test_a_shape_between_two_measured_shapes_lies_between_them():
    made = measured((trial(16), 0.01), (trial(64), 0.05))
    assert 0.011 < step_seconds(made, trial(32)) < 0.045


def test_shapes_of_another_kind_do_not_count_if_the_kind_is_measured():
    alone = measured((trial(16), 0.01))
    both = measured((trial(16), 0.01), (trial(32, kind="gpt2"), 100.0))
    assert step_seconds(both, trial(32)) == step_seconds(alone, trial(32))


def test_validation_evaluation_and_slow_down_are_in_the_time():
    of = trial(steps=100, eval_every=30)
    made = MeasuredSpeed(((of, Seconds(0.01, 1e-4, 1e-5)),), slow_down=1.5)
    training, validations, evaluation = 100 * 0.01, 4 * 512 * 1e-4, 100 * 20 * 1e-5
    expected = 1.5 * (training + validations + evaluation) + speed.TRIAL_SECONDS
    assert made.seconds(of, EVALUATION) == pytest.approx(expected)


def test_a_net_of_fixed_depth_evaluates_its_layers_only():
    of = trial(kind="gpt2")
    made = MeasuredSpeed(((of, Seconds(1e-9, 1e-9, 1.0)),))
    assert made.seconds(of, EVALUATION) == pytest.approx(100 * (of.model.depth or 0), rel=1e-2)


def test_the_chosen_shapes_are_the_ends_of_every_axis():
    trials = [trial(width, heads) for width in (8, 16, 24, 40) for heads in (1, 2, 4)]
    chosen = spread(trials, most=3)
    assert len(chosen) == 3
    assert {8, 40} <= {t.model.model_dump()["width"] for t in chosen}
    kinds = {t.model.kind for t in spread([*trials, trial(kind="gpt2"), trial(kind="algoformer")], most=3)}
    assert kinds == {"looped", "gpt2", "algoformer"}


def test_trials_with_equal_work_are_measured_once():
    assert len(spread([trial(lr=rate) for rate in (1e-4, 1e-3, 1e-2)])) == 1


def test_a_curriculum_saves_the_mean_over_its_stages():
    curriculum = {"dim": 1, "points": 2, "every": 10, "points_by": 2}
    of = trial(width=32, batch_size=64, curriculum=curriculum)
    full = trial_cost(of).step.size
    plain = of.training.model_copy(update={"curriculum": None})
    sizes = [
        trial_cost(of.model_copy(update={"task": of.stage(step), "training": plain})).step.size
        for step in range(1, 101)
    ]
    assert curriculum_share(trial()) == 1.0
    assert curriculum_share(of) < 0.95
    assert curriculum_share(of) == pytest.approx(sum(sizes) / 100 / full, rel=0.02)


def test_a_given_rate_covers_all_forward_passes():
    of = trial()
    counted = trial_cost(of)
    passes = 512 / 8 + 100 / 8 * 20 / 4
    expected = (counted.flops_total + passes * counted.flops_forward) / 1e6 + speed.TRIAL_SECONDS
    assert GivenRate(1e6).seconds(of, EVALUATION) == pytest.approx(expected)


def test_the_slow_down_of_short_trials_is_not_measured(monkeypatch):
    monkeypatch.setattr(speed, "slow_down", lambda *_: 3.0)
    cores = len(os.sched_getaffinity(0))
    steps = {"training": trial().training.model_copy(update={"steps": 10_000_000})}
    for shape, workers, factor in (
        (trial(), cores, 1),
        (trial(), 4 * cores, 4),
        (trial().model_copy(update=steps), cores, 3),
    ):
        assert measured_speed([shape], EVALUATION, workers=workers).slow_down == factor


def test_the_slow_down_is_measured_and_its_processes_end(monkeypatch):
    monkeypatch.setattr(speed, "SHORT_TRIAL", 0)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    made = measured_speed([trial()], EVALUATION, workers=len(os.sched_getaffinity(0)))
    assert 1 <= made.slow_down < 5
    assert children.read_text() == before


def test_the_work_beside_runs_while_the_context_lasts(tmp_path):
    file = tmp_path / "turns"

    def turn() -> None:
        with file.open("a") as out:
            out.write(".")

    with speed._repeated_beside(turn, 1):
        while not file.exists():
            time.sleep(0.01)
    turns = file.read_text()
    time.sleep(0.05)
    assert file.read_text() == turns


def test_more_trials_than_cores_wait_for_each_other():
    cores = len(os.sched_getaffinity(0))
    assert speed.slow_down(trial(), 1e-3, 4 * cores) >= 4


@pytest.mark.slow
def test_predicted_times_of_unmeasured_widths_are_near_measured_times():
    """The shapes between the ends are predicted within 50 %, on a machine with other work."""
    widths = (8, 16, 32, 64, 128)
    trials = [trial(width, batch_size=64, steps=1000) for width in widths]
    made = MeasuredSpeed(measured_speed([trials[0], trials[-1]], EVALUATION).shapes)
    for between in trials[1:-1]:
        ratio = step_seconds(made, between) / speed.measure(between, EVALUATION, steps=15).step
        assert abs(math.log(ratio)) < math.log(1.5)
