"""Tables and figures of theorems."""

import numpy as np
import pytest

from loopscale.analysis.papers import theorems
from loopscale.theory.bounds.base import Bound


def test_the_catalogue_has_every_bound_or_those_of_a_paper():
    assert set(theorems.catalogue().index) == set(Bound.choices())
    some = theorems.catalogue("AlgoFormer", "Fu et al.")
    assert {"newton_residual", "fu_newton"} <= set(some.index) < set(Bound.choices())
    assert all("AlgoFormer" in source or "Fu et al." in source for source in some["source"])


def test_along_a_setting_a_figure_has_the_bounds_values_and_gaps_where_they_do_not_hold():
    figure = theorems.along("points", [10, 21, 40], ["ols_min_norm", "bayes_ridge"], dim=20, noise=1.0)
    assert [trace.name for trace in figure.data] == ["ols_min_norm", "bayes_ridge"]
    least = Bound.model_validate({"kind": "ols_min_norm", "dim": 20, "noise": 1.0, "points": 40}).value()
    assert figure.data[0].y[2] == pytest.approx(least, rel=1e-3)
    assert figure.data[0].y[1] is None
    assert figure.layout.yaxis.title.text == "excess at a point"


def test_a_bound_that_holds_nowhere_is_said_so():
    with pytest.raises(ValueError, match="first_order_best requires noise 0"):
        theorems.along("points", [10, 20], ["bayes_ridge", "first_order_best"], noise=1.0)


def test_solvers_lie_on_their_exact_risks():
    task = {"kind": "linear_regression", "dim": 3, "points": 8, "noise": 0.5}
    figure = theorems.risks(task, [("ridge", "bayes_ridge"), ("averaging", "averaging")], prompts=20_000)
    for exact, measured in (figure.data[:2], figure.data[2:]):
        assert exact.mode == "lines"
        assert measured.mode == "markers"
        assert np.allclose(np.array(measured.y[1:], float), np.array(exact.y[1:], float), rtol=0.1)


def test_a_table_says_what_is_stated_and_what_was_measured():
    table = theorems.table(
        {"kind": "newton", "variant": "relu"}, {"kind": "newton", "variant": "sink", "expansion": 2}
    )
    assert list(table.index) == ["newton (variant relu)", "newton (variant sink, expansion 2)"]
    assert list(table["stated"]) == ["exact", "order 2 in scale"]
    assert list(table["measured"]) == ["exact", "order 2.00"]
    assert table["holds"].all()


def test_figures_of_constructions_show_every_step_and_the_order():
    steps = theorems.distance({"kind": "newton", "variant": "relu"})
    assert list(steps.data[0].x) == list(range(1, 13))
    assert max(steps.data[0].y) < 1e-12
    near = theorems.limits({"kind": "newton", "variant": "sink", "expansion": 2})
    measured, stated = near.data
    assert np.allclose(np.log(measured.y), np.log(stated.y), atol=0.05)
    assert stated.name == "order 2"
