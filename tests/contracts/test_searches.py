"""The contract of the searches of the package (`loopscale.contracts.searches`)."""

import math
import subprocess
import sys
from dataclasses import replace

import pytest

from loopscale.contracts.searches import *  # noqa: F403
from loopscale.contracts.searches import (
    SPACE,
    made,
    near_one_percent,
    proposals,
    test_a_search_rebuilt_from_records_proposes_the_same_points,
)
from loopscale.notation.space import Axis
from loopscale.runner.decide.sampler import Sampler, TriedPoint


@pytest.mark.slow
def test_reading_a_study_does_not_import_optuna():
    lines = ["import sys", "from loopscale.studies.spec import Study", f"Study.parse({TREE!r}).document()"]
    done = subprocess.run(
        [sys.executable, "-c", "; ".join([*lines, "print('optuna' in sys.modules)"])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


TREE = {
    "question": "?",
    "fixed": {"task": {"kind": "linear_regression"}, "model": {"kind": "looped"}, "training": {"steps": 9}},
    "nuisance": {"training.lr": {"real": [1e-4, 1e-2]}},
    "search": {"kind": "nsga2", "objectives": ["error", "flops"]},
}


def test_cmaes_moves_towards_the_best_points_and_draws_choices_at_random():
    search = made("cmaes", trials=60)
    points = proposals(search, near_one_percent)
    distance = [abs(math.log10(point["training.lr"]) + 2) for point in points]
    assert sum(distance[40:]) < sum(distance[:20]) / 2
    assert {point["model.heads"] for point in points[40:]} == {1, 2}


def test_cmaes_says_what_it_does_with_choices_and_few_points():
    drawn, few = made("cmaes").space_warnings(SPACE, 12)
    assert drawn.startswith("cmaes draws model.heads at random")
    assert few.startswith("cmaes learns after every 6 points, and a cell has 12")
    assert not list(made("cmaes").space_warnings({"training.lr": SPACE["training.lr"]}, 12))


def test_cmaes_follows_the_errors_along_a_single_range():
    space: dict[str, Axis] = {"training.lr": SPACE["training.lr"]}
    search = made("cmaes")
    done = [
        TriedPoint({"training.lr": 10 ** -(1 + n)}, "finished", float(n), {}, 1.0) for n in (1, 2, 1.5, 2.5)
    ]
    moved = Sampler(space, search, 12, "cell", done).ask(4)[1]["training.lr"]
    worst_first = [replace(point, error=-point.error) for point in done]
    mirrored = Sampler(space, search, 12, "cell", worst_first).ask(4)[1]["training.lr"]
    assert mirrored < moved


pytest.mark.quick_cases(4)(test_a_search_rebuilt_from_records_proposes_the_same_points)
