"""Relations between tuned settings: `where` chooses the points of a cell."""

from typing import Any

import pytest

from loopscale.foresight.plan import plan_study
from loopscale.notation.mistakes import Mistakes
from loopscale.studies.spec import Study
from tests.runner.simulated_study import study

HEADS = {"integer": [1, 12]}
WIDTH = {"choice": [8, 12, 16]}


def related(condition: str = "model.width % model.heads == 0", **changes: Any) -> Study:
    nuisance = {"model.heads": HEADS, "model.width": WIDTH}
    plain = {"scientific": {"training.loops": [2, 4]}, "nuisance": nuisance, "where": condition}
    return study(**plain | changes)


def test_a_relation_makes_a_study_valid_whose_other_points_are_no_nets():
    with pytest.raises(Mistakes, match="heads"):
        related("")
    cells = related().cells()
    assert [cell.values["training.loops"] for cell in cells] == [2, 4]
    for trial in related().layout.corners[cells[0].key]:
        assert trial.settings["model"]["width"] % trial.settings["model"]["heads"] == 0


def test_a_part_without_tuned_settings_still_chooses_the_cells():
    both = related("training.loops <= 2 and model.width % model.heads == 0")
    (cell,) = both.cells()
    assert cell.values == {"training.loops": 2}
    assert both.layout.relations[cell.key].condition == "(model.width % model.heads == 0)"


def test_a_relation_may_compare_a_tuned_setting_with_an_axis():
    window = related("training.window <= training.loops", nuisance={"training.window": {"integer": [1, 4]}})
    at_2, at_4 = window.cells()
    assert [window.points(cell) for cell in (at_2, at_4)] == [2, 4]
    assert [window.feasible(cell, {"training.window": 3}) for cell in (at_2, at_4)] == [False, True]


def test_the_keys_of_cells_and_trials_do_not_depend_on_the_relation():
    with_relation = related("model.heads <= 2", nuisance={"model.heads": {"choice": [1, 2, 4]}})
    without = related("", nuisance={"model.heads": {"choice": [1, 2, 4]}})
    assert [cell.key for cell in with_relation.cells()] == [cell.key for cell in without.cells()]
    for cell in without.cells():
        assert with_relation.at(cell, {"model.heads": 2}, 1) == without.at(cell, {"model.heads": 2}, 1)


def test_a_plan_counts_feasible_points_only():
    grid = related(
        search={"kind": "grid"}, nuisance={"model.heads": HEADS | {"points": 12}, "model.width": WIDTH}
    )
    divisors = sum(width % heads == 0 for width in WIDTH["choice"] for heads in range(1, 13))
    assert [grid.points(cell) for cell in grid.cells()] == [divisors] * 2
    assert plan_study(grid, 1e9).tuning == 2 * divisors
    few = related(search={"kind": "random", "trials": 40})
    assert [few.points(cell) for cell in few.cells()] == [divisors] * 2


def test_a_cell_without_a_feasible_point_is_a_mistake_of_one_line():
    with pytest.raises(Mistakes, match=r"no point of the cell training\.loops=2 satisfies model\.heads > 12"):
        related("model.heads > 12")
    with pytest.raises(Mistakes, match=r"none of 10,000 random points .* satisfies training\.lr > 2"):
        related("training.lr > 2", nuisance={"training.lr": {"real": [0.1, 1.0]}})


def test_a_relation_that_cannot_be_computed_is_a_mistake():
    with pytest.raises(Mistakes, match="cannot compute"):
        related("model.width / (model.heads - 1) > 2")
