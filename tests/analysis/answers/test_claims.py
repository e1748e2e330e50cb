"""Claims on planted studies: verdicts are those that were planted, and claims rarely hold by chance."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.claims import (
    JudgedClaim,
    claim_notes,
    claims_table,
    count_words,
    judged_claims,
    ratios_to_solver,
)
from loopscale.analysis.answers.findings import study_findings
from loopscale.analysis.results import Results
from loopscale.studies.claims import ClaimSpec
from tests.analysis.planted import Planted, comparison

Settings = Mapping[str, Any]


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"model.kind": name} | more


def claim(first: Settings, second: Settings, text: str = "first is better", **keys: Any) -> ClaimSpec:
    keys = {"of": "error", "margin": None} | keys
    return ClaimSpec(text=text, first=dict(first), second=dict(second), **keys)


def judged(results: Results, first: Settings, second: Settings, **keys: Any) -> JudgedClaim:
    """A claim that is the only claim of its study."""
    (one,) = judged_claims(results, [claim(first, second, **keys)])
    return one


def interval(one: JudgedClaim) -> tuple[float, float]:
    assert one.interval is not None
    return one.interval


def ratio(one: JudgedClaim) -> float:
    assert one.sides.ratio is not None
    return one.sides.ratio


def planted_cells(seed: int, noise: float, runs: int = 3, **middles: float) -> Planted:
    planted = Planted(seed=seed, noise=noise)
    for name, middle in middles.items():
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=runs, tries=0)
    return planted


def with_newton(planted: Planted) -> Planted:
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    return planted


def test_a_claim_with_the_planted_order_holds_and_the_reverse_claim_does_not():
    records = comparison(noise=0.03).results
    holds = judged(records, kind("algoformer"), kind("looped"))
    assert holds.word == "holds"
    low, high = interval(holds)
    assert low < 0.12 / 0.2 < high
    reverse = judged(records, kind("looped"), kind("algoformer"), text="looped is better")
    assert reverse.word == "does not hold"
    assert ratio(reverse) == pytest.approx(1 / ratio(holds))
    assert reverse.sentence.startswith("looped is better: does not hold. The error of looped is 1.6")
    assert "times that of algoformer." in reverse.sentence


def test_a_claim_may_be_about_another_measure_than_the_error():
    records = comparison(noise=0.03).results
    sides = kind("algoformer"), kind("looped")
    last = judged(records, *sides, of="error_last")
    assert ratio(last) == pytest.approx(
        ratio(judged(records, *sides)), rel=1e-6
    )  # planted as half of the error
    halved = replace(records, trials=records.trials.assign(share=records.trials["error"].pow(2)))
    assert ratio(judged(halved, *sides, of="share")) == pytest.approx(ratio(last) ** 2, rel=1e-6)
    assert judged(records, *sides, of="ari").word == "not run"


def test_an_undecided_claim_names_the_replicates_that_would_decide_it_and_their_cost():
    planted = planted_cells(3, 0.1, a=0.1, b=0.105)
    open_claim = judged(planted.results, kind("a"), kind("b"))
    assert open_claim.word == "undecided"
    needed, low = open_claim.replicates, interval(open_claim)[0]
    assert needed is not None
    half, gap = np.log(ratio(open_claim) / low), abs(np.log(ratio(open_claim)))
    assert half / np.sqrt(needed / 3) <= gap < half / np.sqrt((needed - 1) / 3)
    assert f"About {needed} replicates would decide the claim." in open_claim.sentence
    assert open_claim.more_trials == 2 * (needed - 3)
    assert claims_table([open_claim])["decided by"].tolist() == [needed]
    planted.study["claims"] = [claim(kind("a"), kind("b"), text="a is better").model_dump(mode="json")]
    question = study_findings(planted.results).open[0]
    assert (question.what, question.replicates) == ("Claim: a is better", needed)
    assert question.seconds == pytest.approx(3.0 * 2 * (needed - 3))  # every planted trial takes 3 s
    sure = judged(comparison(noise=0.03).results, kind("algoformer"), kind("looped"))
    assert sure.replicates is None


def test_a_single_replicate_gives_no_interval():
    planted = with_newton(planted_cells(0, 0.05, runs=1, a=0.1, b=0.9))
    single = judged(planted.results, kind("a"), kind("b"))
    assert (single.word, single.interval) == ("undecided", None)
    assert single.sentence.endswith("(no interval: fewer than two replicates) times that of b.")
    assert claims_table([single])["decided by"].isna().all(), "two replicates might not decide the claim"
    beside = judged(planted.results, kind("a"), {"solver": "newton"})
    assert "(no interval: fewer than two replicates)" in beside.sentence


def test_equal_cells_get_a_verdict_in_one_study_of_twenty():
    wrong = 0
    for seed in range(100):
        planted = planted_cells(seed, 0.1, a=0.2, b=0.2)
        wrong += judged(planted.results, kind("a"), kind("b")).word != "undecided"
    assert 1 <= wrong <= 12  # 5 are expected; more or fewer have a probability below 0.01


def test_all_pairs_of_equal_cells_rarely_get_any_verdict():
    names, alone, family = "abcdef", 0, 0
    specs = [
        claim(kind(one), kind(other), text=one + other) for one in names for other in names if one < other
    ]
    for seed in range(60):
        found = judged_claims(planted_cells(seed, 0.1, **dict.fromkeys(names, 0.2)).results, specs)
        alone += any(one.alone != "undecided" for one in found)
        family += any(one.word != "undecided" for one in found)
    assert alone >= 15  # a third of such studies have a false verdict without correction
    assert family <= 6  # at most 3 are expected


def test_a_claim_that_the_correction_leaves_open_says_so():
    planted = planted_cells(3, 0.1, a=0.1, b=0.17, c=0.1)
    first = claim(kind("a"), kind("b"), text="a is better than b")
    rest = [claim(kind("a"), kind("c"), text=f"claim {n}") for n in range(9)]
    (single,) = judged_claims(planted.results, [first])
    assert (single.word, single.alone) == ("holds", "holds")
    family = judged_claims(planted.results, [first, *rest])
    assert (family[0].word, family[0].alone) == ("undecided", "holds")
    assert family[0].interval == single.interval
    assert "Alone the claim would be decided, but not as one of 10 claims." in family[0].sentence
    assert "Verdicts are corrected for 10 claims." in claim_notes(family)
    assert "Alone 1 more would be decided." in claim_notes(family)
    assert count_words(family) == "undecided 10"


def test_cells_within_the_margin_are_level():
    records = planted_cells(1, 0.002, a=0.2, b=0.202).results
    assert judged(records, kind("a"), kind("b")).word == "holds"
    level = judged(records, kind("a"), kind("b"), margin=0.05)
    assert level.word == "level"
    assert level.replicates is None
    assert judged(records, kind("a"), kind("b"), margin=0.005).word == "holds"


def test_an_effect_of_a_seed_on_all_cells_does_not_change_the_interval_of_a_ratio():
    planted = planted_cells(1, 0.03, runs=4, a=0.18, b=0.2, c=0.2)
    alike = planted.results
    late = alike.trials.assign(error=alike.trials["error"] * np.where(alike.trials["seed"] == 1, 2.0, 1.0))
    shifted = judged(replace(alike, trials=late), kind("a"), kind("b"))
    same = judged(alike, kind("a"), kind("b"))
    assert shifted.word == "holds"
    assert (ratio(shifted), *interval(shifted)) == pytest.approx((ratio(same), *interval(same)))


def test_cells_with_different_seeds_have_a_ratio_and_no_interval():
    records = comparison(noise=0.03).results
    algoformer = records.trials["model.kind"] == "algoformer"
    apart = records.trials.assign(seed=records.trials["seed"] + np.where(algoformer, 100, 0))
    found = judged(replace(records, trials=apart), kind("algoformer"), kind("looped"))
    assert found.interval is None
    assert ratio(found) == pytest.approx(ratio(judged(records, kind("algoformer"), kind("looped"))))


def test_a_claim_without_trials_is_not_run():
    planted = comparison()
    planted.cell("model.kind=lstm", **kind("lstm"))
    for first, second in (
        (kind("lstm"), kind("looped")),
        (kind("lstm"), {"solver": "least_squares"}),
        (kind("rnn"), kind("looped")),  # the cell is not in these records
        (kind("looped"), {"solver": "newton"}),
    ):
        found = judged(planted.results, first, second, text="lstm is better")
        assert found.word == "not run"
        assert found.sentence == "lstm is better: not run."


def test_an_integer_and_an_equal_float_name_the_same_cell():
    planted = Planted()
    for noise in (0.0, 0.5):
        planted.replicated(planted.cell(f"noise={noise:g}", **{"task.noise": noise}), 0.1 + noise)
    for zero in (0, 0.0):
        assert judged(planted.results, {"task.noise": zero}, {"task.noise": 0.5}).word == "holds"


def test_a_net_is_compared_with_an_algorithm_after_as_many_steps():
    records = comparison(noise=0.02).results
    found = judged(records, kind("algoformer"), {"solver": "least_squares"})
    assert found.sides.second == "least squares after 6 steps"
    curves, expected = records.curves, {}
    solver = curves[curves["trial"].str.startswith("baseline--1")].groupby("loop")["error"].mean()
    nets = (
        curves[curves["trial"].str.startswith("replicate-cell0")].groupby(["loop", "trial"])["error"].mean()
    )
    for step in (1, 6):
        expected[step] = np.exp(np.log(nets[step]).mean()) / solver[step]
        found = judged(records, kind("algoformer", loop=step), {"solver": "gradient_descent"})
        assert ratio(found) == pytest.approx(expected[step])
    unequal = judged(records, kind("algoformer", loop=6), {"solver": "gradient_descent", "step": 2})
    assert ratio(unequal) == pytest.approx(expected[6] * solver[6] / solver[2])
    ratios = ratios_to_solver(records, "gradient_descent")
    first = ratios[ratios["cell"] == "model.kind=algoformer"]
    assert list(first["step"]) == [1, 2, 3, 4, 5, 6]
    assert first["ratio"].iloc[0] == pytest.approx(expected[1])
    assert set(first["verdict"]) <= {"better", "worse", "undecided"}


def test_a_net_is_compared_with_an_algorithm_at_the_last_query():
    planted = Planted(noise=0.02)
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    records = with_newton(planted).results
    last = records.curves[(records.curves["loop"] == 6) & (records.curves["point"] == 7)]
    net_errors = last[last["trial"].str.startswith("replicate")]["error"]
    solver_error = float(last[last["trial"].str.startswith("baseline")]["error"].iloc[0])
    found = judged(records, kind("looped", loop=6), {"solver": "newton"}, of="error_last")
    assert ratio(found) == pytest.approx(np.exp(np.log(net_errors).mean()) / solver_error)
    assert found.word == "holds"


def test_beyond_the_trained_loops_the_interval_rests_on_the_replicates_that_ran_further():
    planted = Planted(noise=0.05)  # T is 6, and all is evaluated up to 12
    for name, runs in (("looped", 3), ("algoformer", 1)):
        planted.replicated(planted.cell(name, **kind(name)), 0.1, runs=runs)
    records = with_newton(planted).results
    found = judged(records, kind("looped", loop=10), {"solver": "newton"})
    at = records.curves[records.curves["loop"] == 10].groupby("trial")["error"].mean()
    logs = np.log(at[at.index.str.startswith("replicate-cell0")])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # Student's t of two degrees of freedom
    assert interval(found)[0] == pytest.approx(np.exp(logs.mean() - half) / at["baseline--0"], rel=1e-5)
    assert found.word == "holds"


def test_with_unknown_noise_a_claim_names_no_number_of_replicates():
    planted = Planted()
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    records = with_newton(planted).results
    broken = records.curves["trial"].str.endswith("cell0-1") & (records.curves["loop"] > 6)
    burst = replace(records, curves=records.curves.assign(error=records.curves["error"].mask(broken, np.inf)))
    found = judged(burst, kind("looped", loop=10), {"solver": "newton"})
    assert (found.interval, found.replicates) == (None, None)
    assert "no interval: an error that is 0 or not finite" in found.sentence


def test_errors_beyond_the_trained_loops_stay_grow_or_fall_as_planted():
    planted = Planted(noise=0.01, longest=30)
    for name, rate in (("stays", 0.0), ("grows", 0.1), ("falls", -0.1)):
        cell = planted.cell(name, **kind(name))
        for number in range(3):
            trial = planted.trial(cell, "replicate", number, 0.1)
            planted.curves_of(trial, 0.1 * (1 + 0.01 * number), -rate, 0)
    burst = planted.cell("bursts", **kind("bursts"))
    for number in range(3):
        trial = planted.trial(burst, "replicate", number, 0.1)
        planted.curves_of(trial, 0.1, 0, 0)
        planted.curve[-1].loc[planted.curve[-1]["loop"] > 20, "error"] = np.nan if number else np.inf
    names = ("stays", "grows", "falls", "bursts")
    specs = [claim(kind(name, loop=30), kind(name), text=name, margin=0.25) for name in names]
    found = {one.text: one for one in judged_claims(planted.results, specs)}
    words = {name: one.word for name, one in found.items()}
    assert words == {"stays": "level", "grows": "does not hold", "falls": "holds", "bursts": "does not hold"}
    assert ratio(found["grows"]) == pytest.approx(np.exp(0.1 * 24), rel=0.02)
    assert found["grows"].sides.first == "grows after 30 loops"


def test_a_table_of_claims_has_a_row_for_each_claim():
    records = comparison().results
    specs = [
        claim(kind("algoformer"), kind("looped"), text="AlgoFormer beats the looped net"),
        claim(kind("algoformer"), {"solver": "newton"}, text="it beats Newton"),
    ]
    table = claims_table(judged_claims(records, specs))
    assert list(table["verdict"]) == ["holds", "not run"]
    assert np.isnan(table.loc["it beats Newton", "ratio"])
    assert claims_table([]).empty
