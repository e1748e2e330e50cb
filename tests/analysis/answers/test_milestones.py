"""Claims and laws of the cost until a regret: censored runs, steps, FLOPs and seconds."""

import math
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.claims import JudgedClaim, judged_claims
from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.recorded.results import Results
from loopscale.contracts.planted_study import Planted
from loopscale.questions.claim import ClaimSpec

STEPS = np.arange(50, 1001, 50)
LEVEL = 0.1


def study(reached: dict[float, list[float]], flops: dict[float, float] | None = None) -> Results:
    """Trainings over `training.loops` whose regret halves from .8 at every report, with the step that passes .1.

    `flops` are the FLOPs of a step by loops. A second has 100 FLOPs.
    """
    made = Planted(longest=12)
    for loops, steps in reached.items():
        cell = made.cell(f"loops={loops:g}", **{"training.loops": loops})
        price = (flops or {}).get(loops, 1.0) * 1000
        cost = {"flops": price, "seconds": price / 100, "training.steps": 1000, "step": 1000}
        for number, step in enumerate(steps):
            key = made.trial(
                cell, "replicate", number, 0.5, validate_floor=0.2, validate_ignorance=1.0, **cost
            )
            made.curves_of(key, 0.5, 0.3)
            regret = np.where(step <= STEPS, 0.09, 0.11)
            for at, value in zip(STEPS, 0.2 + regret, strict=True):
                made.history.append({"trial": key, "step": int(at), "metric": "error", "value": value})
    return made.results


def sooner(results: Results, first: float, second: float, **keys: Any) -> JudgedClaim:
    sides = {"first": {"training.loops": first}, "second": {"training.loops": second}}
    spec = ClaimSpec(text="a", of="reached", regret=LEVEL, margin=None, **sides, **keys)
    [claim] = judged_claims(results, [spec])
    return claim


REACHED = {2.0: [100.0, 150.0, 100.0], 4.0: [400.0, 600.0, 500.0], 6.0: [800.0, math.inf, 900.0]}


def test_a_run_has_the_step_of_the_report_that_reaches_the_level():
    runs = study(REACHED).cells[2].runs
    steps = [run["reached 0.1"] for run in runs]
    assert steps[::2] == [800, 900]
    assert math.isnan(steps[1])
    assert [run["reached 0.2"] for run in runs] == [50] * 3


def test_a_claim_compares_the_steps_until_a_level():
    found = sooner(study(REACHED), 2, 4)
    assert (found.verdict, found.sides.of) == ("holds", "steps until a regret of 0.1")
    ratio = np.log([100, 150, 100]).mean() - np.log([400, 600, 500]).mean()
    assert found.sides.ratio == pytest.approx(math.exp(ratio))
    assert sooner(study(REACHED), 4, 2).verdict == "does not hold"


def test_runs_that_never_reach_the_level_bound_the_ratio():
    found = sooner(study(REACHED), 2, 6)
    note = "Runs that never reach a regret of 0.1 count with their last step, so the true ratio is at most this ratio"
    assert (found.verdict, found.remarks) == ("holds", [note])
    never = study({2.0: [math.inf] * 3, 4.0: [math.inf] * 3})
    found = sooner(never, 2, 4)
    assert found.verdict == "undecided"  # both have left the plateau, and neither has reached the level


def test_a_claim_counts_flops_or_seconds_instead_of_steps():
    results = study(REACHED, flops={2.0: 10.0, 4.0: 1.0})
    ratio = np.log([1000, 1500, 1000]).mean() - np.log([400, 600, 500]).mean()
    for basis, name in (("flops", "FLOPs"), ("seconds", "seconds")):
        found = sooner(results, 2, 4, basis=basis)
        assert (found.verdict, found.sides.of) == ("does not hold", f"{name} until a regret of 0.1")
        assert found.sides.ratio == pytest.approx(math.exp(ratio))


def test_a_law_of_a_level_keeps_the_runs_that_never_reach_it():
    rng = np.random.default_rng(3)
    steps = {loops: 2400 / loops * np.exp(0.1 * rng.standard_normal(6)) for loops in (2.0, 4.0, 8.0, 16.0)}
    results = study(
        {loops: np.where(found < 1000, found, math.inf).tolist() for loops, found in steps.items()}
    )
    asked = {"of": "reached", "regret": LEVEL, "along": "training.loops", "form": ["power"], "basis": "steps"}
    results.study["laws"] = [asked, asked | {"basis": "flops"}]
    in_steps, in_flops = study_laws(results)[0]
    assert (in_steps.of, in_flops.of) == ("reached 0.1", "reached 0.1 in flops")
    late = sum(int((found >= 1000).sum()) for found in steps.values())
    assert late > 0
    assert in_steps.note == f"{late} of 24 runs never reach a regret of 0.1, and count as censored"
    assert in_steps.low is not None
    assert in_steps.high is not None
    assert in_steps.low < 1 < in_steps.high
    assert in_flops.rate == pytest.approx(in_steps.rate)
    figure = StudyResults.of(results).law("reached 0.1", "training.loops")
    assert figure.layout.yaxis.title.text == "steps until a regret of 0.1"


def test_a_table_has_the_times_until_levels_and_the_spread_between_seeds():
    table = StudyResults.of(study(REACHED, flops={4.0: 3.0})).times(0.1, 0.01)
    assert table.index.tolist() == ["loops=2", "loops=2", "loops=4", "loops=4", "loops=6", "loops=6"]
    assert table["runs"].tolist() == ["3 of 3", "0 of 3", "3 of 3", "0 of 3", "2 of 3", "0 of 3"]
    reached = table[table["regret"] == 0.1]
    assert reached["steps"].tolist() == [100, 500, 900]
    assert reached["flops"].tolist() == pytest.approx([100, 1500, 900])
    assert reached["seconds"].tolist() == pytest.approx([1, 15, 9])
    assert table[table["regret"] == 0.01]["steps"].isna().all()


def test_half_of_the_runs_without_the_level_leave_no_median():
    table = StudyResults.of(study({2.0: [100.0, math.inf], 4.0: [100.0, 100.0, math.inf]})).times(0.1)
    assert math.isnan(table["steps"].iloc[0])
    assert table["steps"].iloc[1] == 100
