"""Matched steps of planted curves whose crossings are known."""

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.answers.matched_steps import (
    MATCHED_COLUMNS,
    first_crossing,
    match_points,
    matched_notes,
    matched_steps,
    steps_in_theory,
)
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.table import frame
from loopscale.contracts.planted_study import Planted
from loopscale.stats.contrasts import contrast_with_value, student

STEPS = np.arange(1.0, 13.0)


def grid(trial: str, errors: np.ndarray, sem: float = 0.0) -> pd.DataFrame:
    """A curve [loops, points] as rows of the table of curves."""
    loop, point = np.meshgrid(np.arange(1, len(errors) + 1), np.arange(errors.shape[1]), indexing="ij")
    columns = {"loop": loop.ravel(), "point": point.ravel(), "error": errors.ravel()}
    return pd.DataFrame({"trial": trial} | columns | {"sem": sem, "raw": errors.ravel()})


def study(
    errors: tuple[float, ...], course: np.ndarray | None = None, sem: float = 0.0, **settings: Any
) -> Results:
    """One cell whose replicates have these errors at every query, beside an algorithm that halves its error per step.

    The algorithm's errors are 1/2, 1/4, .. at the last query, and as large at the query before.
    """
    planted = Planted(loops=2, points=2, longest=12)
    cell = planted.cell("net", **settings)
    for number, error in enumerate(errors):
        key = planted.trial(cell, "replicate", number, error, error_last=error)
        planted.curve.append(grid(key, np.full((2, 2), error), sem * error))
    course = 0.5**STEPS if course is None else course
    key = planted.trial("", "baseline", 0, float(course[-1]), label="descent")
    planted.curve.append(grid(key, np.stack([course, course], 1), sem))
    key = planted.trial("", "baseline", 1, 0.1, label="ridge")
    planted.curve.append(grid(key, np.full((12, 2), 0.1)))
    return planted.results


@pytest.mark.parametrize("place", [1.0, 1.5, 4.0, 7.25, 12.0])
def test_a_geometric_course_is_crossed_at_the_exact_place(place: float):
    assert first_crossing(STEPS, -STEPS, -place) == pytest.approx(place, rel=1e-12)


def test_an_error_above_the_first_step_or_below_every_step_is_outside_the_recorded_steps():
    course = -STEPS
    assert first_crossing(STEPS, course, -0.5) == 0
    assert first_crossing(STEPS, course, -12.5) == math.inf


def test_the_first_of_several_crossings_counts():
    course = np.array([0.0, -2.0, -1.0, -3.0])
    assert first_crossing(STEPS[:4], course, -1.5) == pytest.approx(1.75)


def test_a_step_that_overflows_is_no_step_of_the_line():
    assert first_crossing(STEPS[:3], np.array([np.inf, -1.0, -2.0]), -0.5) == 2


def test_steps_that_are_no_neighbours_are_joined_by_a_line():
    assert first_crossing(np.array([1.0, 10.0, 100.0]), np.array([0.0, -1.0, -2.0]), -1.5) == pytest.approx(
        55
    )


def test_a_cell_matches_the_steps_at_the_geometric_mean_of_its_replicates():
    (row,) = matched_steps(study((2.0**-3, 2.0**-4, 2.0**-5)))
    assert (row.label, row.baseline, row.loop) == ("net", "descent", 2)
    assert row.mean.steps == pytest.approx(4)
    assert row.at_last.steps == pytest.approx(4)
    assert (row.mean.censored, row.mean.last) == ("", 12)


def test_without_noise_of_prompts_the_interval_is_that_of_the_comparison_with_an_algorithm():
    results = study((2.0**-3, 2.0**-4, 2.0**-5))
    (row,) = matched_steps(results)
    compared = contrast_with_value(results.logs(), 0, 1.0)
    assert compared
    assert row.mean.interval
    low, high = (-end / math.log(2) for end in reversed(compared.interval()))
    assert row.mean.interval == pytest.approx((low if low >= 1 else 0, high if high <= 12 else math.inf))


def test_the_noise_of_the_prompts_of_both_sides_widens_the_interval():
    results = study((0.0625 * 1.01, 0.0625 / 1.01), sem=0.02)
    (row,) = matched_steps(results)
    compared = contrast_with_value(results.logs(), 0, 1.0)
    assert compared
    assert row.at_last.interval
    # The algorithm's standard error is .02, of step k relative to 2^-k; the net's is 2 % of its error.
    logs = -STEPS * math.log(2)
    half = np.hypot(compared.half_width(), student(math.inf) * np.hypot(0.02, 0.02 * 2.0**STEPS))
    ends = [first_crossing(STEPS, logs + sign * half, math.log(0.0625)) for sign in (-1, 1)]
    assert row.at_last.interval == pytest.approx(tuple(ends))
    assert row.at_last.interval.high == math.inf, "late steps have more noise than error"
    assert row.at_last.to_dict()["high"] is None


@pytest.mark.parametrize(
    ("error", "censored", "words"), [(0.9, "fewer", "fewer than 1"), (1e-5, "more", "more than 12")]
)
def test_a_net_outside_the_recorded_steps_is_censored_and_has_no_number(
    error: float, censored: str, words: str
):
    (row,) = matched_steps(study((error, error * 1.01)))
    assert (row.mean.steps, row.mean.censored, row.mean.words) == (None, censored, words)


def test_a_net_that_is_better_than_a_course_that_rises_again_needs_more_steps():
    course = np.r_[0.5 ** np.arange(1, 7), 0.5 ** np.arange(5, -1, -1)]
    (row,) = matched_steps(study((0.01, 0.0101), course))
    assert row.mean.words == "more than 12"


def test_a_single_replicate_has_matched_steps_without_an_interval():
    (row,) = matched_steps(study((0.0625,)))
    assert (row.mean.steps, row.mean.interval) == (pytest.approx(4), None)


def test_every_query_has_its_own_match():
    results = study((0.0625, 0.0625))
    (cell,) = results.answered
    descent = cell.baselines[0]
    assert [(point, match.steps) for point, match in match_points(results, cell, descent)] == [
        (0, pytest.approx(4)),
        (1, pytest.approx(4)),
    ]


def test_the_table_and_the_record_have_the_same_numbers():
    rows = matched_steps(study((2.0**-3, 2.0**-4, 2.0**-5)))
    table = frame(MATCHED_COLUMNS, rows)
    assert table.loc["net", "steps"] == "4"
    assert table.loc["net", "low_last"] == rows[0].to_dict()["last"]["low"]
    record = rows[0].to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert len(matched_notes(rows)) == 2
    assert matched_notes([]) == []


NETWORK = {
    "task.kind": "network_regression",
    "task.layers": 3,
    "task.activation": "tanh",
    "model.attention": "softmax",
    "model.kind": "gpt2",
    "model.layers": 9,
}


@pytest.mark.parametrize(
    ("changes", "solver", "steps"),
    [
        ({}, {}, 2),  # 4 layers a step
        ({"model.attention": "relu"}, {}, 0),  # 2N + 4 = 10 layers a step
        ({"model.attention": "relu"}, {"layers": 2}, 1),  # 8 layers a step
        ({"model.kind": "looped", "model.layers": 2, "training.loops": 9.0}, {}, 4),
        ({"model.kind": "algoformer", "model.layers": 3, "model.loop_layers": 1, "training.loops": 6}, {}, 3),
        ({"task.activation": "relu"}, {}, None),
        ({"task.activation": "relu"}, {"activation": "softplus"}, 2),
        ({"model.attention": "linear"}, {}, None),
        ({}, {"optimiser": "adam"}, None),
        ({}, {"kind": "gradient_descent"}, None),
        ({"model.kind": "lstm", "model.attention": None}, {}, None),
    ],
)
def test_the_bound_stands_beside_matched_steps_where_its_conditions_hold(
    changes: dict[str, Any], solver: dict[str, Any], steps: int | None
):
    settings = {path: value for path, value in (NETWORK | changes).items() if value is not None}
    planted = Planted(loops=9, points=2)
    cell = planted.cell("net", **settings)
    planted.replicated(cell, 0.1, runs=2, tries=0)
    of_solver = {f"solver.{name}": value for name, value in ({"kind": "trained_network"} | solver).items()}
    key = planted.trial("", "baseline", 0, 0.1, label="trained_network", **of_solver)
    planted.curves_of(key, 0.2, 0.6)
    results = planted.results
    baseline = next(trial for trial in results.everything if trial.role == "baseline")
    assert steps_in_theory(results.answered[0].runs[0], baseline) == steps


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_the_interval_covers_the_true_steps(shared: float):
    """50 cells with the true steps 5.3, each on a task of its own.

    The prompts are equally hard for net and algorithm to the share `shared`. Difficulties are exponential: the error of
    a prompt has a standard deviation as large as its mean. With 200 cells, 96 % are covered for 0 and 100 % for .8.
    """
    rng, prompts, cells = np.random.default_rng(7), 256, 50
    planted = Planted(loops=2, points=1, longest=12)
    for number in range(cells):
        task = {"task.noise": number}
        cell = planted.cell(f"net {number}", **task)
        own, other = rng.standard_exponential((2, prompts))
        sides = own, shared * own + (1 - shared) * other
        hard, spread = zip(*((side.mean(), side.std() / prompts**0.5) for side in sides), strict=True)
        for seed in range(3):
            true = 0.7**5.3 * math.exp(0.1 * rng.standard_normal())
            key = planted.trial(cell, "replicate", seed, true * hard[0], error_last=true * hard[0])
            planted.curve.append(grid(key, np.full((2, 1), true * hard[0]), true * spread[0]))
        key = planted.trial("", "baseline", number, 0.1, label="descent", **task)
        course = 0.7 ** STEPS[:, None]
        planted.curve.append(grid(key, course * hard[1]).assign(sem=(course * spread[1]).ravel()))
    intervals = [row.at_last.interval for row in matched_steps(planted.results)]
    assert len(intervals) == cells
    covered = np.mean([ends is not None and ends.low <= 5.3 <= ends.high for ends in intervals])
    assert covered >= 0.9
