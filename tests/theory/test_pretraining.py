"""Bounds on the cost of pretraining: slopes, floors, conditions and the crossover of the two terms."""

import math

import pytest

from loopscale.theory.bounds.base import Bound
from loopscale.theory.prediction import predict
from tests.theory.checks import assert_refused, bound, value


def test_the_two_terms_are_equal_at_the_crossover():
    settings = {"kappa": 3.0, "point": 60, "noise": 0.7}
    crossover = round(value("bai_crossover", **settings))
    floor = value("bai_ls", point=60, noise=0.7)
    before, at_crossover, beyond = (
        value("bai_pretrain", steps=steps, batch_size=1, **settings)
        for steps in (crossover // 100, crossover, 100 * crossover)
    )
    assert [before / floor, at_crossover / floor, beyond / floor] == pytest.approx([11, 2, 1.1], rel=0.005)


def test_the_gap_to_the_bayes_risk_falls_by_e_per_layer():
    settings = {"dim": 5, "point": 30, "noise": 0.5}
    bayes = value("bayes_ridge", **settings)
    above = [value("bai_near_bayes", layers=layers, **settings) - bayes for layers in (3, 4, 5)]
    assert above[0] / above[1] == pytest.approx(above[1] / above[2]) == pytest.approx(math.e)


def test_the_default_mlp_width_is_four_times_the_width():
    assert value("bai_capacity", width=32) == value("bai_capacity", width=32, mlp_width=128)
    assert value("bai_capacity", width=32, mlp_width=0) < value("bai_capacity", width=32)


def test_the_number_of_prompts_comes_from_the_trial():
    trial = {"training.steps": 500, "training.batch_size": 32, "task.noise": 0.5, "model.layers": 6}
    filled = Bound.fill("bai_pretrain", {"kappa": 2.0}, trial)
    assert filled == bound("bai_pretrain", kappa=2.0, steps=500, batch_size=32, noise=0.5)
    assert filled.slope("steps") == pytest.approx(filled.slope("batch_size"), rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "settings", "setting", "slope"),
    [
        ("bai_pretrain", {"kappa": 50.0, "noise": 1e-6}, "steps", -1 / 2),
        ("bai_pretrain", {"kappa": 2.0, "steps": 10**15, "point": 1000}, "point", -1),
        ("bai_pretrain", {"kappa": 2.0, "steps": 10**15, "point": 1000}, "noise", 2),
        ("bai_pretrain", {"kappa": 2.0, "steps": 10**15, "point": 1000, "dim": 100}, "dim", 1),
        ("bai_crossover", {"kappa": 3.0}, "kappa", 2),
        ("bai_crossover", {"kappa": 3.0, "point": 1000}, "point", 2),
        ("bai_crossover", {"kappa": 3.0}, "noise", -4),
        ("bai_pretrain_layers", {"kappa": 1e60}, "kappa", 1),
        ("bai_capacity", {}, "steps", -1 / 2),
        ("bai_capacity", {"layers": 100}, "layers", 1),
        ("bai_capacity", {"width": 1000}, "width", 1),
        ("bai_capacity", {"heads": 10**4}, "heads", 1 / 2),
        ("bai_ls", {"noise": 1.0, "point": 1000}, "point", -1),
        ("bai_lasso", {"noise": 1.0, "point": 1000}, "point", -1),
        ("bai_lasso", {"noise": 1.0}, "noise", 2),
    ],
)
def test_the_slope_matches_the_formula(kind: str, settings: dict, setting: str, slope: float):
    assert bound(kind, **settings).slope(setting) == pytest.approx(slope, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("bai_pretrain", {"point": 10, "kappa": 2}, "N >= d"),
        ("bai_pretrain", {"condition": 1e7}, "given kappa"),
        ("bai_pretrain", {"noise": 0.0, "kappa": 2}, "noise > 0"),
        ("bai_crossover", {"point": 10, "kappa": 2}, "N >= d"),
        ("bai_pretrain_layers", {"kappa": 2, "noise": 1e3}, "κN > σ"),
        ("bai_ls", {"point": 10}, "N >= d"),
        ("bai_lasso", {"nonzero": 21}, "nonzero <= dim"),
        ("bai_lasso", {"point": 0}, "N >= 1"),
        ("bai_near_bayes", {}, "noise > 0"),
        ("bai_near_bayes", {"noise": 1, "condition": 10}, "isotropic inputs"),
        ("bai_near_bayes", {"noise": 1, "point": 1}, "N >= max"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)


def test_the_rate_of_jin_et_al_follows_the_distinct_prompts_of_a_training():
    settings = {"model.layers": 3, "training.pool": 64, "training.steps": 100}
    values = predict("jin_prompts", settings, "training.pool", [64, 256], "excess")
    assert values == pytest.approx([3 / 8, 3 / 16])
