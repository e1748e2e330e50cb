"""Contract of every bound: claim and source, conditions, slopes, settings from a trial, and worked values."""

import importlib
import math
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

from loopscale.contracts.bounds import *  # noqa: F403  # noqa: F403
from loopscale.theory.bounds.base import Bound
from tests.theory import worked
from tests.theory.checks import bound, value

WORKED = [
    row
    for module in pkgutil.iter_modules(worked.__path__, "tests.theory.worked.")
    for row in importlib.import_module(module.name).WORKED
]
"""(kind, settings, value as text). All digits are significant. Each file of bounds has its own file of values."""

BAYES = {  # noise variance -> excess after 1, 5, 10, 20, 30, 40, 80, 160 pairs, dim 20
    0.01: "19.0006 15.0036 10.0111 .5727 .0221 .0105 .0034 .0014",
    0.25: "19.0137 15.0870 10.2610 2.3036 .5076 .2559 .0843 .0359",
    1: "19.0523 15.3242 10.9017 4.1792 1.6799 .9501 .3314 .1427",
}


def half_a_digit(text: str) -> float:
    """Half a unit of the last digit, with a margin for rounding."""
    mantissa, _, exponent = text.partition("e")
    return 0.501 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("kind", "settings", "text"), WORKED)
def test_worked_values_are_reproduced(kind: str, settings: dict, text: str):
    assert bound(kind, **settings).value() == pytest.approx(float(text), abs=half_a_digit(text))


def test_every_bound_has_a_worked_value():
    assert {kind for kind, _, _ in WORKED} == set(Bound.choices())


@pytest.mark.parametrize("variance", BAYES)
def test_the_exact_bayes_risk_matches_the_catalogue(variance: float):
    """The catalogue has .5725 for 20 pairs at variance .01, from a less accurate quadrature; .57274 is converged."""
    for point, text in zip((1, 5, 10, 20, 30, 40, 80, 160), BAYES[variance].split(), strict=True):
        value = bound("bayes_ridge", noise=variance**0.5, point=point).value()
        assert value == pytest.approx(float(text), abs=half_a_digit(text)), point


def test_the_exact_bayes_risk_tends_to_its_limit_in_large_dimensions():
    exact, limit = (value(kind, dim=200, point=400, noise=1.0) for kind in ("bayes_ridge", "bayes_ridge_mp"))
    assert exact == pytest.approx(limit, rel=0.01)
    assert bound("ridge_equiv", dim=200, point=400, noise=1.0).value() == pytest.approx(limit, rel=1e-9)


def test_the_best_first_order_method_of_two_steps_beats_any_constant_step():
    best = bound("first_order_best_2", point=40).value()
    steps = bound("gd_risk_2", point=40).along("rate", np.linspace(0.1, 1, 91))
    assert best < steps.min() == pytest.approx(3.952, rel=0.01)


def test_scaling_the_inputs_equals_scaling_the_weights():
    for kind in (
        "ols_min_norm",
        "one_step_best",
        "bayes_ridge",
        "bayes_ridge_mp",
        "ridge_equiv",
        "decoder_floor",
    ):
        wide, heavy = (
            bound(kind, noise=0.5, points=15, **{name: 3.0}).value() for name in ("x_scale", "w_scale")
        )
        assert wide == pytest.approx(heavy), kind
        assert wide != pytest.approx(bound(kind, noise=0.5, points=15).value(), rel=1e-3)


def test_the_default_query_is_the_last_pair():
    assert bound("one_step_best", points=41).value() == bound("one_step_best", points=7, point=40).value()


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("one_step_best", {"condition": 10}, "isotropic inputs"),
        ("decoder_floor", {"condition": 10}, "isotropic inputs"),
        ("ols_min_norm", {"condition": 10, "point": 5}, "N >= d \\+ 2, or isotropic"),
        ("bayes_noiseless", {"noise": 1}, "noise 0"),
        ("bayes_ridge_mp", {"noise": 0}, "noise > 0"),
        ("averaging", {"point": 0}, "N >= 1"),
        ("gd_risk_2", {"noise": 1}, "noise 0"),
        ("gd_risk_mp", {"rate": 2}, "rate < 2"),
        ("tied_descent", {"loops": 3, "window": 4}, "window <= loops"),
        ("first_order_spectrum", {"noise": 1}, "noise 0"),
        ("gd_contraction", {"point": 20}, "given kappa"),
        ("inexact_gd", {"curvature": "convex", "rate": 3}, "rate <= 2"),
        ("newton_coefficients", {"loops": 1, "term": 3}, "term <= 2"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        bound(kind, **settings).value()


@pytest.mark.parametrize("settings", [{"dim": 0}, {"noise": -1}, {"noise": math.nan}, {"dimension": 5}])
def test_invalid_settings_are_refused(settings: dict):
    with pytest.raises(ValueError, match="validation error"):
        bound("bayes_ridge", **settings)


@pytest.mark.parametrize(
    ("kind", "settings", "setting", "slope"),
    [
        ("zero", {}, "dim", 1),
        ("ista", {}, "loops", -1),
        ("zero", {}, "w_scale", 2),
        ("ols_min_norm", {"point": 10**4, "noise": 1}, "point", -1),
        ("one_step_best", {"point": 10**5}, "point", -1),
        ("ols_min_norm", {"point": 40, "noise": 1.0}, "noise", 2),
        ("gd_steps", {"kappa": 1e4}, "kappa", 1),
        ("first_order_best", {"points": 21, "loops": 1000}, "loops", -1),
    ],
)
def test_the_slope_matches_the_formula(kind: str, settings: dict, setting: str, slope: float):
    assert bound(kind, **settings).slope(setting) == pytest.approx(slope, rel=0.005)


def test_a_slope_over_a_range_uses_its_ends():
    descent = bound("gd_smooth")
    low, high = descent.along("loops", [10, 100])
    assert descent.slope("loops", (10, 100)) == pytest.approx(math.log(high / low) / math.log(10))


def test_at_the_end_of_the_domain_the_slope_is_one_sided():
    assert bound("ista", loops=1).slope("loops") == pytest.approx(-1)
    assert bound("ols_min_norm", point=22, noise=1).slope("point") < -10


@pytest.mark.parametrize(
    ("kind", "settings", "setting", "message"),
    [
        ("ista", {}, "loop", "no number 'loop'; its settings are loops"),
        ("one_step_best", {}, "point", "no number 'point'"),
        ("bayes_noiseless", {"point": 30}, "point", "no slope"),
        ("one_step_best", {"point": 0}, "point", "0 has no logarithm"),
    ],
)
def test_an_error_explains_why_there_is_no_slope(kind: str, settings: dict, setting: str, message: str):
    with pytest.raises(ValueError, match=message):
        bound(kind, **settings).slope(setting)


def test_missing_settings_come_from_the_trial_by_name():
    trial = {
        "task.dim": 5,
        "task.points": 11,
        "task.noise": 1.0,
        "training.loops": 3,
        "model.width": 64,
        "seed": 0,
    }
    assert Bound.fill("bayes_ridge", {"noise": 2.0}, trial) == bound(
        "bayes_ridge", dim=5, points=11, noise=2.0
    )
    assert Bound.fill("ista", {}, trial) == bound("ista", loops=3)


@pytest.mark.parametrize("first", ["task.dim", "training.curriculum.dim"])
def test_a_setting_of_the_task_precedes_one_of_the_curriculum(first):
    trial = {"task.dim": 4, "training.curriculum.dim": 1, "task.noise": 0.5}
    ordered = {first: trial.pop(first)} | trial
    assert Bound.fill("bayes_ridge", {"point": 3}, ordered) == bound("bayes_ridge", dim=4, noise=0.5, point=3)


def test_a_name_with_two_values_in_the_trial_must_be_given():
    trial = {"task.dim": 5, "model.dim": 7}
    with pytest.raises(ValueError, match="give 'dim'"):
        Bound.fill("zero", {}, trial)
    assert Bound.fill("zero", {"dim": 6}, trial).value() == 6


def test_an_error_for_an_unknown_kind_lists_the_known_kinds():
    with pytest.raises(ValueError, match=r"no bound 'bayes'; there is .*averaging, "):
        Bound.fill("bayes", {}, {})


def test_the_bounds_load_without_torch():
    """The analysis of records uses the bounds and must not load torch."""
    load = "import sys; from loopscale.theory.bounds.base import Bound; Bound.choices()"
    code = load + "; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_many_loops_leave_no_residual_and_large_condition_numbers_stay_distinct():
    assert value("chebyshev", kappa=10, loops=10**6) == 0
    steps = [value("newton_steps", kappa=kappa) for kappa in (1e9, 2e9)]
    assert steps[1] - steps[0] == pytest.approx(2)
