"""The best value of a setting at equal cost: in the table of a notebook, and in the report."""

import numpy as np
import pytest

from loopscale.analysis.answers.optima import optima, optima_at_equal_cost
from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.report.study_page import study_page
from loopscale.contracts.planted_study import Planted

BEST = 4.0


def planted(loops: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12), costs: tuple[float, ...] = (1e9,)) -> Planted:
    """A study of the loops, with the least error at four loops for each number of FLOPs."""
    study = Planted(noise=0.05)
    for cost in costs:
        for number in loops:
            values = {"training.flops": cost, "training.loops": number}
            cell = study.cell(f"flops={cost:g}, loops={number}", **values)
            error = float(np.exp(np.log(number / BEST) ** 2)) / 20
            study.replicated(cell, error, runs=4, tries=1)
            for row in study.rows:
                row["flops"] = row["training.flops"]
    return study


def test_every_cost_has_its_optimum():
    rows = optima_at_equal_cost(planted(costs=(1e9, 4e9)).results)
    assert [(row.axis, row.label, row.flops_low) for row in rows] == [
        ("training.loops", "flops=1e+09", 1e9),
        ("training.loops", "flops=4e+09", 4e9),
    ]
    for row in rows:
        assert row.place == "inside"
        assert row.optimum.value == pytest.approx(BEST, rel=0.1)
        assert row.optimum.low is not None
        assert row.optimum.high is not None
        assert row.optimum.high / row.optimum.low < 1.2


def test_axes_without_equal_cost_have_no_optimum_in_the_report_but_one_in_a_notebook():
    study = planted()
    for row in study.rows:
        row["flops"] = 1e9 * row["training.loops"]
    assert optima_at_equal_cost(study.results) == []
    [row] = optima(study.results, "training.loops", "error")
    assert (row.flops_low, row.flops_high, row.place) == (1e9, 12e9, "inside")


def test_a_least_error_at_the_end_of_the_axis_is_named():
    [row] = optima(planted(loops=(1, 2, 3)).results, "training.loops", "error")
    assert (row.optimum.least, row.place) == (3, "at the edge: values beyond 3 may have less")


def test_nets_on_the_plateau_have_no_optimum():
    study = planted()
    for row in study.rows:
        row["validate_ignorance"] = row["validate_error"]
    [row] = optima(study.results, "training.loops", "error")
    assert row.place.startswith("not learnt: 20 of 20 runs")


def test_two_values_have_no_optimum():
    assert list(optima(planted(loops=(2, 4)).results, "training.loops", "error")) == []


def test_a_notebook_and_a_report_print_the_optimum():
    study = StudyResults.of(planted().results)
    table = study.optimum("training.loops", "error")
    assert table.loc["all", "least"] == 4
    assert "The best value at equal cost" in study_page(study)
    with pytest.raises(ValueError, match=r"no numeric axis of planted; did you mean training\.loops"):
        study.optimum("training.loop")
