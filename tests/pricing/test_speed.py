"""Predicted times of trials."""

import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from loopscale.evaluate import Evaluation
from loopscale.pricing import speed
from loopscale.pricing.speed import (
    H100,
    GivenRate,
    MeasuredSpeed,
    curriculum_share,
    measured_speed,
    read_speed,
    spread,
    trial_cost,
)
from loopscale.tasks.base import Task
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
    full = trial_cost(of).step.size()
    plain = of.training.model_copy(update={"curriculum": None})
    sizes = [
        trial_cost(of.model_copy(update={"task": of.stage(step), "training": plain})).step.size()
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
    """The shapes between the ends are predicted within 50 %.

    All shapes are measured by turns, and the least of three times counts. Other work on the machine only adds time.
    """
    trials = [trial(width, batch_size=64, steps=1000) for width in (8, 16, 32, 64, 128)]
    turns = [[speed.measure(each, EVALUATION, steps=5) for each in trials] for _ in range(3)]
    times = [min(each, key=lambda seconds: seconds.step) for each in zip(*turns, strict=True)]
    made = MeasuredSpeed(((trials[0], times[0]), (trials[-1], times[-1])))
    for between, time_between in zip(trials[1:-1], times[1:-1], strict=True):
        assert abs(math.log(step_seconds(made, between) / time_between.step)) < math.log(1.5)


def test_a_recorded_speed_predicts_as_its_own_version_did():
    """Budgets in seconds become steps by the recorded speed, so no later version may change these predictions."""
    of, other = trial(8), trial(64)
    made = measured((of, 0.01))
    assert read_speed(made.document()).step(other) == made.step(other)
    document = {key: value for key, value in made.document().items() if key != "flop_bytes"}
    before, after = (trial_cost(each).step for each in (of, other))
    assert read_speed(document).step(other) == pytest.approx(0.01 * after.size(0.0) / before.size(0.0))


def test_no_long_step_is_measured_but_every_kind_of_model_is(monkeypatch):
    small, large, dear, dearer = trial(8), trial(64), trial(32, kind="gpt2"), trial(64, kind="gpt2")
    per_prompt = [trial_cost(each).flops_step / each.training.batch_size for each in (small, large, dear)]
    monkeypatch.setattr(speed, "MEASURED_FLOPS", (per_prompt[0] + min(per_prompt[1:])) / 2)
    assert speed._cheap([large, dearer, small, dear]) == [small, dear]
    made = measured_speed([large, dearer, small, dear], EVALUATION)
    assert {shape.model.width for shape, _ in made.shapes} == {8, 32}


WHOLE: dict[str, Any] = {"attention": "relu", "normaliser": "length"}
"""Settings of a decoder that computes every prefix of a game again, because its tokens see their number."""


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["gpt2", "looped"])
@pytest.mark.parametrize("settings", [{}, WHOLE], ids=["in parts", "whole prefixes"])
def test_a_planned_trial_has_the_time_of_its_play(kind: str, settings: dict[str, Any]):
    """Every answer in play asks for one more token than the answer before. A prefix of n tokens costs what a prompt of
    n tokens costs. A decoder that keeps its keys and values takes three passes of the whole game."""
    before = trial(kind=kind)
    acting = before.model_copy(
        update={
            "task": Task.model_validate({"kind": "bandit", "dim": 2, "points": 12}),
            "model": type(before.model).model_validate(before.model.model_dump() | settings),
        }
    )
    prefixes = [acting.model_copy(update={"task": acting.task.easier(2, size)}) for size in range(1, 13)]
    passes = sum(trial_cost(prefix).flops_forward for prefix in prefixes) / trial_cost(acting).flops_forward
    expected = 1024 * (passes if settings else speed.PLAY_IN_PARTS)
    assert speed.played_prompts(acting, EVALUATION) == pytest.approx(expected, rel=1e-9)
    assert speed.played_prompts(trial(kind=kind), EVALUATION) == 0
    at_rate = GivenRate(1e9)
    besides = at_rate.training_seconds(acting, EVALUATION) + speed.TRIAL_SECONDS
    answered = (
        expected + EVALUATION.prompts * min(20, acting.model.depth or 20) / acting.steps_per_prompt
    ) / 8
    assert at_rate.seconds(acting, EVALUATION) == pytest.approx(
        besides + answered * trial_cost(acting).flops_forward / 1e9
    )


def test_play_of_episodes_asks_once_a_step():
    before = trial()
    model = type(before.model).model_validate(before.model.model_dump() | WHOLE)
    task = Task.model_validate({"kind": "mdp", "points": 6})
    acting = before.model_copy(update={"task": task, "model": model})
    # The mean cost of a prefix is a third of the whole if attention is all, and about a half without attention.
    assert 1024 * 24 / 3 < speed.played_prompts(acting, EVALUATION) < 1024 * 24 * (24 + 1) / (2 * 24)


MEASURED_GRAPHS = {"q": (0.9, 0.8, 1.3), "b": (1.6, 1.0, 2.2), "a": (19.1, 13.0, 28.9)}
"""Milliseconds of a step of the looped net, GPT-2 and AlgoFormer as one graph on an H100, from benchmarks/README.md."""
SIZES_OF_GRAPHS = {
    "q": {"dim": 2, "points": 8, "width": 32, "heads": 2, "loops": 6, "window": 3, "layers": 4},
    "b": {"dim": 5, "points": 11, "width": 64, "heads": 4, "loops": 10, "window": 5, "layers": 4},
    "a": {"dim": 20, "points": 41, "width": 256, "heads": 8, "loops": 20, "window": 15, "layers": 12},
}


@pytest.mark.parametrize("size", MEASURED_GRAPHS)
@pytest.mark.parametrize(("place", "kind"), list(enumerate(["looped", "gpt2", "algoformer"])))
def test_the_speed_of_an_h100_agrees_with_its_measured_steps(size: str, place: int, kind: str):
    of = SIZES_OF_GRAPHS[size]
    layers = {"layers": of["layers"]} if kind == "gpt2" else {}
    made = Trial.model_validate(
        {
            "task": {"kind": "linear_regression", "dim": of["dim"], "points": of["points"]},
            "model": {"kind": kind, "width": of["width"], "heads": of["heads"]} | layers,
            "training": {"steps": 10, "batch_size": 64, "loops": of["loops"], "window": of["window"]},
        }
    )
    assert 1000 * H100.step(made) == pytest.approx(MEASURED_GRAPHS[size][place], rel=0.13)


def test_a_speed_with_starts_survives_its_record():
    assert read_speed(H100.document()) == H100
    assert read_speed({"rate": 5.0}) == GivenRate(5.0)


def test_the_start_of_operations_adds_to_every_step():
    of, without = trial(), GivenRate(1e9)
    made = GivenRate(1e9, start=1e-3)
    added = 1e-3 * trial_cost(of).step.calls
    assert made.step(of) == pytest.approx(without.step(of) + added)
    longer = made.training_seconds(of, EVALUATION) - without.training_seconds(of, EVALUATION)
    assert longer > of.training.steps * added
