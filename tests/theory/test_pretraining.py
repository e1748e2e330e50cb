"""What pretraining takes: slopes, floors and conditions, and that the printed terms balance where it is said."""

import math

import pytest

from loopscale.theory.bounds.base import Bound


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind} | settings)


def value(kind: str, **settings) -> float:
    return bound(kind, **settings).value()


def test_from_the_crossover_on_more_prompts_gain_little():
    settings = {"kappa": 3.0, "point": 60, "noise": 0.7}
    enough = round(value("bai_crossover", **settings))
    floor = value("bai_ls", point=60, noise=0.7)
    before, there, beyond = (
        value("bai_pretrain", steps=steps, batch_size=1, **settings)
        for steps in (enough // 100, enough, 100 * enough)
    )
    assert [before / floor, there / floor, beyond / floor] == pytest.approx([11, 2, 1.1], rel=0.005)


def test_enough_layers_are_nearly_bayes():
    settings = {"dim": 5, "point": 30, "noise": 0.5}
    bayes = value("bayes_ridge", **settings)
    above = [value("bai_near_bayes", layers=layers, **settings) - bayes for layers in (3, 4, 5)]
    assert above[0] / above[1] == pytest.approx(above[1] / above[2]) == pytest.approx(math.e)


def test_an_mlp_is_four_times_as_wide_unless_it_says():
    assert value("bai_capacity", width=32) == value("bai_capacity", width=32, mlp_width=128)
    assert value("bai_capacity", width=32, mlp_width=0) < value("bai_capacity", width=32)


def test_prompts_of_pretraining_are_taken_from_the_trial():
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
def test_its_slope_is_that_of_its_formula(kind: str, settings: dict, setting: str, slope: float):
    assert bound(kind, **settings).slope(setting) == pytest.approx(slope, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("bai_pretrain", {"point": 10, "kappa": 2}, "N >= d"),
        ("bai_pretrain", {"condition": 10}, "given kappa"),
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
def test_outside_its_conditions_it_names_them(kind: str, settings: dict, condition: str):
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        value(kind, **settings)
