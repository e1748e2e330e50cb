import numpy as np
import pytest

from loopscale.analysis.laws.predictions import comparable
from loopscale.analysis.laws.study_laws import study_laws
from tests.analysis.planted import Planted

CONDITION = 10
RATE = -2 * np.log((CONDITION - 1) / (CONDITION + 1))
"""How fast the square of gradient descent's worst case falls per step: an error is a mean of squares."""


def descending(rate: float, runs: int = 3) -> Planted:
    planted = Planted(noise=0.02)
    planted.replicated(planted.cell("a"), 0.3, rate, runs=runs)
    theory = {"kind": "gd_contraction", "kappa": float(CONDITION)}
    planted.study["laws"] = [{"of": "error", "along": "loop", "form": ["exponential"], "theory": theory}]
    return planted


@pytest.mark.parametrize(("rate", "word"), [(RATE, "agrees"), (0.9, "faster")])
def test_a_planted_rate_gets_its_verdict(rate, word):
    planted = descending(rate)
    ((law,), missing) = study_laws(planted.results)
    assert law.predicted == pytest.approx(RATE, rel=1e-6)
    assert law.verdict.word == word, law.verdict
    assert (law.x, missing) == ((1, 2, 3, 4, 5, 6), [])


def test_a_law_with_one_replicate_is_undecided():
    planted = descending(RATE, runs=1)
    ((law,), _) = study_laws(planted.results)
    assert law.low is None
    assert law.verdict.word == "undecided"


def test_a_law_notes_that_the_bound_does_not_depend_on_the_axis():
    planted = descending(RATE)
    planted.study["laws"][0]["along"] = "training.lr"
    for lr in np.geomspace(1e-4, 1e-2, 5):
        cell = planted.cell(f"lr={lr}", **{"training.lr": lr})
        for number in range(2):
            planted.trial(cell, "replicate", number, 0.1 + number / 100)
    fitted, _ = study_laws(planted.results)
    assert "does not depend on training.lr" in fitted[0].note


def test_there_is_a_law_for_every_combination_of_the_other_axes():
    planted = Planted(noise=0.03)
    for kind, exponent in (("looped", 0.5), ("algoformer", 1.0)):
        for loops in (2, 4, 8, 16):
            values = {"model.kind": kind, "training.loops": loops}
            planted.replicated(planted.cell(f"{kind} {loops}", **values), loops**-exponent)
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": ["power"]}]
    fitted, _ = study_laws(planted.results)
    rates = {law.cell: law.rate for law in fitted}
    expected = {"looped": 0.5, "algoformer": 1.0}
    assert rates == pytest.approx(expected, abs=0.1)
    assert all(law.low < law.rate < law.high for law in fitted)


def test_a_law_with_too_few_finished_values_is_missing():
    planted = Planted()
    planted.replicated(planted.cell("a", **{"training.loops": 2}), 0.1)
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": "power"}]
    fitted, (missing,) = study_laws(planted.results)
    assert (fitted, missing.because) == ([], "1 usable value on the axis is too few for power")


@pytest.mark.parametrize(
    ("kind", "of", "along", "height"),
    [
        ("one_step_best", "excess", "point", True),
        ("decoder_floor", "excess", "loop", True),
        ("one_step_best", "excess", "loop", False),
        ("gd_contraction", "error", "loop", False),
        ("bai_pretrain", "excess", "training.steps", False),
    ],
)
def test_heights_are_compared_if_the_bound_gives_the_measured_quantity(kind, of, along, height):
    assert comparable(kind, of, along) == height
