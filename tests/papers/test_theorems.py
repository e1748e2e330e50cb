"""Tables and figures of theorems."""

import numpy as np
import pytest

from loopscale.papers import theorems
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction


def test_the_table_of_bounds_has_all_bounds_or_the_bounds_of_some_papers():
    assert set(theorems.bounds_table().index) == set(Bound.choices())
    some = theorems.bounds_table("AlgoFormer", "Fu et al.")
    assert {"newton_residual", "fu_newton"} <= set(some.index) < set(Bound.choices())
    assert all("Gao et al." in source or "Fu et al." in source for source in some["source"])


def test_bounds_along_a_setting_have_gaps_where_they_do_not_hold():
    figure = theorems.bounds_along("points", [10, 21, 40], ["ols_min_norm", "bayes_ridge"], dim=20, noise=1.0)
    assert [trace.name for trace in figure.data] == ["ols_min_norm", "bayes_ridge"]
    least = Bound.model_validate({"kind": "ols_min_norm", "dim": 20, "noise": 1.0, "points": 40}).value()
    assert figure.data[0].y[2] == pytest.approx(least, rel=1e-3)
    assert figure.data[0].y[1] is None
    assert figure.layout.yaxis.title.text == "excess at a point"


def test_a_bound_that_holds_nowhere_is_an_error():
    with pytest.raises(ValueError, match="first_order_best requires noise 0"):
        theorems.bounds_along("points", [10, 20], ["bayes_ridge", "first_order_best"], noise=1.0)


def test_solvers_lie_on_their_exact_risks():
    task = {"kind": "linear_regression", "dim": 3, "points": 8, "noise": 0.5}
    figure = theorems.excess_risks(
        task, [("ridge", "bayes_ridge"), ("averaging", "averaging")], prompts=20_000
    )
    for exact, measured in (figure.data[:2], figure.data[2:]):
        assert exact.mode == "lines"
        assert measured.mode == "markers"
        assert np.allclose(np.array(measured.y[1:], float), np.array(exact.y[1:], float), rtol=0.1)


def test_a_verification_table_has_the_expected_and_the_measured_order():
    table = theorems.verification_table(
        {"kind": "newton", "variant": "relu"}, {"kind": "newton", "variant": "sink", "expansion": 2}
    )
    assert list(table.index) == ["newton (variant relu)", "newton (variant sink, expansion 2)"]
    assert list(table["expected"]) == ["exact", "order 2 in scale"]
    assert list(table["measured"]) == ["exact", "order 2.00"]
    assert table["holds"].all()


def test_figures_of_constructions_show_every_step_and_the_order():
    steps = theorems.distance_by_step({"kind": "newton", "variant": "relu"})
    assert list(steps.data[0].x) == list(range(1, 13))
    assert max(steps.data[0].y) < 1e-12
    near = theorems.distance_near_limit({"kind": "newton", "variant": "sink", "expansion": 2})
    measured, expected = near.data
    assert np.allclose(np.log(measured.y), np.log(expected.y), atol=0.05)
    assert expected.name == "order 2"


def test_a_construction_without_a_limit_has_no_figure_of_its_limit():
    with pytest.raises(ValueError, match=r"newton .* holds exactly, without a limit"):
        theorems.distance_near_limit({"kind": "newton", "variant": "relu"})


@pytest.mark.slow
def test_the_answer_counts_the_constructions_that_run_their_algorithm():
    (sentence,) = theorems.answer()
    number = len(Construction.choices())
    assert sentence.startswith(f"The weights of {number} of {number} constructions run their algorithm: ")
