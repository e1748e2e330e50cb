"""The chance of a verdict on the laws and claims of a study, before anything is trained."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.laws.law import compare_rates
from loopscale.foresight.learning_times import RecordedCell
from loopscale.foresight.noise import Noise, NoiseRow, NoiseTable
from loopscale.foresight.power import QuestionPower, families, power_remarks, study_power
from loopscale.foresight.recipes import Recipe
from loopscale.questions.axes.loop import Loop
from loopscale.stats.fitting import FormFit, LawFit
from loopscale.stats.power import ReplicateNoise, percent, simulate_law
from loopscale.studies.spec import Study

ALONG_LOOP = Loop().rate_measure

STUDIES = Path(__file__).parents[2] / "studies"
LAW = {"of": "excess", "along": "task.points", "form": "power", "theory": "bayes_ridge"}
BASE: dict[str, Any] = {
    "question": "Does it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "noise": 1.0},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 100, "batch_size": 4, "loops": 5, "window": 2},
    },
    "scientific": {"task.points": [8, 16, 32, 64]},
    "replicates": 3,
    "laws": [LAW],
}


def study(**changes: Any) -> Study:
    return Study.parse(BASE | changes)


def emerged(made: Study, model: str = "looped", early: int = 20, late: int = 0) -> tuple[RecordedCell, ...]:
    """Records of every cell of a study: runs that learn in the first steps, and runs that never learn."""
    runs = (((0.0, 1.0),) * early) + (((1e6, math.inf),) * late)
    return tuple(
        RecordedCell("own", cell.label, "linear_regression", model, 100, runs, Recipe("adam", "0.02"))
        for cell in made.cells()
    )


def noise(sd: float, measure: str = "excess", made: Study | None = None, late: int = 0) -> Noise:
    """Noise from 10^9 runs, beside which the shipped table hardly counts, and records of runs that have learnt."""
    row = NoiseRow("linear_regression", "looped", measure, 10**9, 1.0, sd, 0.0, 10**9, 1.0, 0.1)
    return Noise(NoiseTable([row]), emerged(made or study(), late=late))


@pytest.mark.slow
def test_less_noise_and_more_replicates_give_a_better_chance():
    (few,) = study_power(study(), noise(0.2))
    (quiet,) = study_power(study(), noise(0.05))
    (many,) = study_power(study(replicates=40), noise(0.2))
    assert few.exact < quiet.exact
    assert few.exact < many.exact
    assert many.exact > 0.8
    assert few.outlook != "decidable" == many.outlook
    assert few.power is not None
    assert few.power.replicates_exact is not None
    assert 3 < few.power.replicates_exact <= 40
    assert few.half_width == pytest.approx(5 * quiet.half_width * 0.2 / 0.25, rel=0.01)


@pytest.mark.slow
def test_the_chance_equals_the_share_of_verdicts_of_the_judging_code():
    """Studies are drawn and handed to the functions of the report."""
    (planned,) = study_power(study(replicates=8), noise(0.15))
    assert planned.power is not None
    values = np.array([8.0, 16, 32, 64])
    rate = FormFit.of("power", values, _theory(values), np.arange(4)).rate

    def judge(x: np.ndarray, y: np.ndarray, group: np.ndarray) -> str:
        return compare_rates(LawFit.of_form(FormFit.of("power", x, y, group)), rate).verdict

    means = np.log(_theory(values))
    exact = simulate_law(values, means, 8, ReplicateNoise(0.15), judge, draws=100)
    off = simulate_law(values, 0.75 * means, 8, ReplicateNoise(0.15), judge, draws=100)
    assert planned.exact == pytest.approx(exact["agrees"], abs=0.12)
    assert planned.off == pytest.approx(off["slower"], abs=0.12)


def _theory(points: np.ndarray) -> np.ndarray:
    from loopscale.theory.bounds.base import Bound

    return Bound.fill("bayes_ridge", {"dim": 2, "noise": 1.0}, {}).along("points", points.astype(int))


@pytest.mark.slow
def test_a_verdict_needs_all_runs_to_learn():
    (all_learn,) = study_power(study(replicates=40), noise(0.1))
    (some,) = study_power(study(replicates=40), noise(0.1, late=20))
    assert some.runs == 160
    assert all_learn.all_learn > 0.9
    assert some.all_learn < 0.01
    assert some.if_learnt == all_learn.if_learnt
    assert some.exact == pytest.approx(some.if_learnt[0] * some.all_learn)
    (text,) = power_remarks([some], 40)
    assert "all runs learn in 0 % of such studies, and then the chance is at most" in text


def test_more_steps_let_more_runs_learn():
    chances = list[float]()
    for steps in (100, 1_000, 10_000, 100_000):
        training = BASE["fixed"]["training"] | {"steps": steps}
        (planned,) = study_power(study(fixed=BASE["fixed"] | {"training": training}), Noise())
        (learning,) = planned.learning
        assert learning.most_steps == steps
        assert bool(learning.extrapolations) == (steps > 8_000)
        assert learning.source == "looped on linear_regression with adam and init_std 0.02"
        chances.append(planned.all_learn)
    assert chances == sorted(chances)
    assert chances[0] < 0.01
    assert chances[-1] > 0.9


def test_runs_that_have_not_learnt_take_part_in_laws_of_emergence():
    (planned,) = study_power(study(laws=[{"of": "emerged_at", "along": "task.points"}]), noise(0.1, late=20))
    assert (planned.all_learn, planned.learning) == (1.0, ())


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"laws": [LAW | {"theory": None}]}, "no theory"),
        ({"scientific": {"task.points": [8, 16]}}, "the axis has 2 values, and a verdict needs 4"),
        ({"replicates": 1}, "a cell has one replicate"),
        (
            {
                "laws": [LAW | {"theory": "averaging"}],
                "fixed": BASE["fixed"] | {"task": {"kind": "linear_regression", "dim": 2, "condition": 4}},
            },
            "isotropic",
        ),
    ],
)
def test_a_law_without_a_verdict_says_why(changes: dict[str, Any], because: str):
    (planned,) = study_power(study(**changes), Noise())
    assert planned.power is None
    assert (planned.exact, planned.off) == (0, 0)
    assert because in planned.because
    assert "its settings" not in planned.because


def test_a_law_along_the_loops_has_one_rate_for_each_run():
    law = {"of": "excess", "along": "loop", "form": "exponential", "theory": "first_order_best"}
    made = study(
        laws=[law],
        scientific={"task.dim": [2, 3]},
        fixed=BASE["fixed"] | {"task": {"kind": "linear_regression", "points": 8}},
    )
    noisy, steady = (study_power(made, noise(sd, ALONG_LOOP, made)) for sd in (0.5, 0.02))
    assert [power.runs for power in steady] == [3, 3]
    assert all(each.power.chance_exact > 0.8 for each in steady if each.power)
    assert all(each.power.chance_exact < 0.05 for each in noisy if each.power)
    assert all(each.power for each in steady + noisy)
    assert len(families(steady)) == 1


CLAIM = {"text": "more pairs help", "first": {"task.points": 64}, "second": {"task.points": 8}, "of": "error"}


@pytest.mark.slow
def test_the_power_of_a_claim_falls_with_the_number_of_claims():
    few = study(laws=[], claims=[CLAIM | {"margin": 0.2}], replicates=6)
    others = [CLAIM | {"text": f"claim {n}", "first": {"task.points": n}, "margin": 0.2} for n in (16, 32)]
    more = study(laws=[], claims=[CLAIM | {"margin": 0.2}, *others], replicates=6)
    (alone,), (one_of_three, *_) = (study_power(each, noise(0.1, "error", each)) for each in (few, more))
    assert (alone.kind, alone.question, alone.runs) == ("claim", "more pairs help", 12)
    assert alone.exact > one_of_three.exact
    assert alone.off > one_of_three.off > 0
    assert alone.power is not None
    assert alone.power.chance_exact == alone.power.exact["level"]


def test_both_sides_of_a_claim_lend_their_noise():
    made = study(
        laws=[],
        scientific={"model": [{"kind": "looped"}, {"kind": "gpt2", "layers": 1}]},
        fixed=BASE["fixed"] | {"task": {"kind": "linear_regression", "dim": 2, "points": 8}},
        claims=[CLAIM | {"first": {"model.kind": "looped"}, "second": {"model.kind": "gpt2"}}],
    )

    def planned(sd: float) -> QuestionPower:
        rows = [
            NoiseRow("linear_regression", *row, 0.0, 10**9, 0.0, 0.0)
            for row in (("looped", "error", 10**9, 1.0, 0.3), ("gpt2", "error", 10**9, 1.0, sd))
        ]
        records = (*emerged(made, early=5, late=5), *emerged(made, "gpt2", early=5, late=2))
        (power,) = study_power(made, Noise(NoiseTable(rows), records))
        return power

    quiet, noisy = planned(0.1), planned(0.3)
    assert [each.source for each in quiet.learning] == [
        "looped on linear_regression with adam and init_std 0.02",
        "gpt2 on linear_regression with adam and init_std 0.02",
    ]
    assert [each.own for each in quiet.learning] == [20, 14]
    assert quiet.learning[0].share < quiet.learning[1].share
    assert quiet.all_learn < 0.2
    assert quiet.power is not None
    assert noisy.power is not None
    assert quiet.power.chance_off > noisy.power.chance_off


def test_a_claim_about_an_algorithm_is_unpaired_and_one_about_loops_has_no_known_noise():
    made = study(
        laws=[],
        baselines=["newton"],
        claims=[
            CLAIM | {"second": {"solver": "newton"}},
            CLAIM | {"text": "loops", "first": {"task.points": 8, "loop": 9}, "second": {"task.points": 8}},
        ],
    )
    algorithm, loops = study_power(made, Noise())
    assert (algorithm.against, algorithm.runs) == ("newton", 3)
    assert algorithm.power is not None
    assert loops.power is None
    assert "two numbers of loops" in loops.because


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("law", "sd", "outlook", "words"),
    [
        (
            {"of": "excess", "along": "task.points", "form": "power"},
            0.01,
            "no verdict",
            "1 law gets no verdict",
        ),
        (LAW, 5.0, "cannot be decided", "cannot be decided"),
    ],
)
def test_a_law_without_theory_or_with_few_noisy_values_gets_no_verdict(
    law: dict[str, Any], sd: float, outlook: str, words: str
):
    made = study(laws=[law])
    planned = study_power(made, noise(sd))
    (law_of_all,) = [family.likeliest for family in families(planned) if family.first.kind == "law"]
    assert law_of_all.outlook == outlook
    assert words in "\n".join(power_remarks(planned, made.replicates))


def test_percent_writes_chances_in_words():
    words = [percent(chance) for chance in (0.0, 0.001, 0.376, 0.999, 1.0)]
    assert words == ["0 %", "<1 %", "38 %", ">99 %", "100 %"]
