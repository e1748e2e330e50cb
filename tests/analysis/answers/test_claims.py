"""Claims on planted studies: verdicts are those that were planted, and claims rarely hold by chance."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.claims import (
    JudgedClaim,
    at_equal_flops,
    claim_notes,
    claims_table,
    count_words,
    equal_flops_notes,
    judged_claims,
)
from loopscale.analysis.answers.comparisons import ratios_to_solver
from loopscale.analysis.answers.findings import claim_question, study_findings
from loopscale.analysis.recorded.equal_cost import common_budget, error_at_cost
from loopscale.analysis.recorded.floors import Floors
from loopscale.analysis.recorded.load import find_results
from loopscale.analysis.recorded.prices import study_prices
from loopscale.analysis.recorded.results import Results
from loopscale.contracts.planted_study import Planted, comparison
from loopscale.questions.claim import ClaimSpec
from loopscale.questions.claim_evidence import GAMES_NOTE

Settings = Mapping[str, Any]
DATA = Path(__file__).parents[3] / "notebooks" / "data"


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
    assert holds.verdict == "holds"
    low, high = interval(holds)
    assert low < 0.12 / 0.2 < high
    reverse = judged(records, kind("looped"), kind("algoformer"), text="looped is better")
    assert reverse.verdict == "does not hold"
    assert ratio(reverse) == pytest.approx(1 / ratio(holds))
    assert reverse.sentence.startswith(
        "looped has less error than AlgoFormer: does not hold (“looped is better”). The ratio is 1.6"
    )


def test_a_claim_may_be_about_another_measure_than_the_error():
    records = comparison(noise=0.03).results
    sides = kind("algoformer"), kind("looped")
    last = judged(records, *sides, of="error_last")
    assert ratio(last) == pytest.approx(
        ratio(judged(records, *sides)), rel=1e-6
    )  # planted as half of the error
    halved = replace(records, trials=records.trials.assign(share=records.trials["error"].pow(2)))
    assert ratio(judged(halved, *sides, of="share")) == pytest.approx(ratio(last) ** 2, rel=1e-6)
    assert judged(records, *sides, of="ari").verdict == "not run"


@pytest.mark.parametrize(("lowest", "runs"), [(0.0, (0, 1, 2)), (-1.0, (0, 1, 2)), (0.0, (1,)), (-1.0, (2,))])
@pytest.mark.parametrize("on_plateau", [False, True])
def test_a_measure_without_a_logarithm_leaves_a_claim_undecided(
    lowest: float, runs: Sequence[int], on_plateau: bool
):
    records = comparison(noise=0.03).results
    trials = records.trials
    share = trials["error"].mask(trials["model.kind"].eq("algoformer") & trials["number"].isin(runs), lowest)
    if on_plateau:  # one run of each side
        ignorance = trials["validate_ignorance"].mask(trials["number"].eq(0), trials["error"])
        trials = trials.assign(validate_ignorance=ignorance)
    records = replace(records, trials=trials.assign(share=share))
    found = judged(records, kind("algoformer"), kind("looped"), of="share")
    assert (found.verdict, found.sides.contrast) == ("undecided", None)
    assert found.sides.among_learnt is on_plateau
    reason = "a run has a value of 0 or below, which has no logarithm"
    assert found.ratio_in_words == f"no ratio: {reason}"
    assert "The share of a run is 0 or below, so there is no ratio" in found.remarks
    assert found.sentence.endswith("so there is no ratio.")
    assert reason in claim_question(records, found).because


def test_runs_below_zero_do_not_leave_the_verdict_to_the_other_runs():
    """The excess of the best two runs of a first side is below 0. Without them the second side would be better."""
    records = planted_cells(3, 0.01, runs=6, a=0.1, b=0.1).results
    of_a = records.trials["model.kind"].eq("a")
    gain = records.trials["error"].mask(of_a, 0.2).mask(of_a & records.trials["number"].lt(2), -1.0)
    found = judged(replace(records, trials=records.trials.assign(gain=gain)), kind("a"), kind("b"), of="gain")
    assert (found.verdict, found.sides.no_logarithm) == ("undecided", True)


def test_an_undecided_claim_names_the_deciding_replicates_and_their_cost():
    planted = planted_cells(3, 0.1, a=0.1, b=0.105)
    open_claim = judged(planted.results, kind("a"), kind("b"))
    assert open_claim.verdict == "undecided"
    needed, low = open_claim.replicates, interval(open_claim)[0]
    assert needed is not None
    half, gap = np.log(ratio(open_claim) / low), abs(np.log(ratio(open_claim)))
    assert half / np.sqrt(needed / 3) <= gap < half / np.sqrt((needed - 1) / 3)
    assert f"About {needed} replicates would decide the claim." in open_claim.sentence
    assert open_claim.more_trials == 2 * (needed - 3)
    assert claims_table([open_claim])["decided by"].tolist() == [needed]
    planted.study["claims"] = [claim(kind("a"), kind("b"), text="a is better").model_dump(mode="json")]
    (question,) = [each for each in study_findings(planted.results).open if each.what.startswith("Claim")]
    assert (question.what, question.replicates) == ("Claim: a is better", needed)
    assert question.seconds == pytest.approx(3.0 * 2 * (needed - 3))  # every planted trial takes 3 s
    sure = judged(comparison(noise=0.03).results, kind("algoformer"), kind("looped"))
    assert sure.replicates is None


def test_a_single_replicate_gives_no_interval():
    planted = with_newton(planted_cells(0, 0.05, runs=1, a=0.1, b=0.2))
    single = judged(planted.results, kind("a"), kind("b"))
    assert (single.verdict, single.interval) == ("undecided", None)
    assert single.sentence.endswith("(no interval: fewer than two replicates).")
    assert claims_table([single])["decided by"].isna().all(), "two replicates might not decide the claim"
    beside = judged(planted.results, kind("a"), {"solver": "newton"})
    assert "(no interval: fewer than two replicates)" in beside.sentence


@pytest.mark.slow
def test_equal_cells_get_a_verdict_in_one_study_of_twenty():
    wrong = 0
    for seed in range(100):
        planted = planted_cells(seed, 0.1, a=0.2, b=0.2)
        wrong += judged(planted.results, kind("a"), kind("b")).verdict != "undecided"
    assert 1 <= wrong <= 12  # 5 are expected; more or fewer have a probability below 0.01


@pytest.mark.slow
def test_all_pairs_of_equal_cells_rarely_get_any_verdict():
    names, alone, family = "abcdef", 0, 0
    specs = [
        claim(kind(one), kind(other), text=one + other) for one in names for other in names if one < other
    ]
    for seed in range(60):
        found = judged_claims(planted_cells(seed, 0.1, **dict.fromkeys(names, 0.2)).results, specs)
        alone += any(one.alone != "undecided" for one in found)
        family += any(one.verdict != "undecided" for one in found)
    assert alone >= 15  # a third of such studies have a false verdict without correction
    assert family <= 6  # at most 3 are expected


def test_a_claim_says_that_the_correction_leaves_the_claim_open():
    planted = planted_cells(3, 0.1, a=0.1, b=0.17, c=0.1)
    first = claim(kind("a"), kind("b"), text="a is better than b")
    rest = [claim(kind("a"), kind("c"), text=f"claim {n}") for n in range(9)]
    (single,) = judged_claims(planted.results, [first])
    assert (single.verdict, single.alone) == ("holds", "holds")
    family = judged_claims(planted.results, [first, *rest])
    assert (family[0].verdict, family[0].alone) == ("undecided", "holds")
    assert family[0].interval == single.interval
    assert "Alone the claim would be decided, but not as one of 10 claims." in family[0].sentence
    assert "Verdicts are corrected for 10 claims." in claim_notes(family)
    assert "Without the correction, 1 more would be decided." in claim_notes(family)
    assert count_words(family) == "undecided 10"


def test_a_claim_of_equality_holds_within_its_level_and_not_beyond():
    records = comparison(noise=0.03).results
    sides = kind("algoformer"), kind("looped")  # their ratio is .6
    words = [judged(records, *sides, level=level).verdict for level in ("100 %", 0.67, 0.2)]
    assert words == ["holds", "undecided", "does not hold"]
    level = judged(records, *sides, level="100 %", text="both are alike")
    assert level.sentence.startswith(
        "AlgoFormer and looped have the same error within 100 %: holds (“both are alike”). The ratio is 0.6"
    )


def test_cells_within_the_margin_are_level():
    records = planted_cells(1, 0.002, a=0.2, b=0.202).results
    assert judged(records, kind("a"), kind("b")).verdict == "holds"
    level = judged(records, kind("a"), kind("b"), margin=0.05)
    assert level.verdict == "level"
    assert level.replicates is None
    assert judged(records, kind("a"), kind("b"), margin=0.005).verdict == "holds"


def test_an_effect_of_a_seed_on_all_cells_does_not_change_the_interval_of_a_ratio():
    planted = planted_cells(1, 0.03, runs=4, a=0.18, b=0.2, c=0.2)
    alike = planted.results
    late = alike.trials.assign(error=alike.trials["error"] * np.where(alike.trials["seed"] == 1, 2.0, 1.0))
    shifted = judged(replace(alike, trials=late), kind("a"), kind("b"))
    same = judged(alike, kind("a"), kind("b"))
    assert shifted.verdict == "holds"
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
        assert found.verdict == "not run"
        assert found.sentence == f"{found.spec.statement}: not run (“lstm is better”)."


def test_an_integer_and_an_equal_float_name_the_same_cell():
    planted = Planted()
    for noise in (0.0, 0.5):
        planted.replicated(planted.cell(f"noise={noise:g}", **{"task.noise": noise}), 0.1 + noise / 5)
    for zero in (0, 0.0):
        assert judged(planted.results, {"task.noise": zero}, {"task.noise": 0.5}).verdict == "holds"


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
    assert found.verdict == "holds"


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
    assert found.verdict == "holds"


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
    words = {name: one.verdict for name, one in found.items()}
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


def test_a_claim_compares_regrets_where_a_floor_is_known():
    records = planted_cells(1, 0.03, a=0.2, b=0.3).results
    errors = records.trials["error"]
    known = replace(records, trials=records.trials.assign(regret=errors - 0.1, regret_last=errors / 4))
    spec = ClaimSpec(text="a is better", first=kind("a"), second=kind("b"))
    (found,) = judged_claims(known, [spec])
    logs = np.log(known.trials.set_index("cell")["regret"])
    assert ratio(found) == pytest.approx(np.exp(logs["cell0"].mean() - logs["cell1"].mean()))
    assert (found.verdict, found.sides.of, found.remarks) == ("holds", "regret", [])
    below = known.trials.assign(regret=known.trials["regret"] - 0.11)  # a net below the floor has no regret
    (fallen,) = judged_claims(replace(known, trials=below), [spec])
    assert fallen.sides.of == "error"
    assert ratio(fallen) == pytest.approx(ratio(judged(records, kind("a"), kind("b"))))
    (remark,) = fallen.remarks
    assert remark.startswith("A side is not above the floor")


def test_a_claim_names_a_construction_as_the_baselines_do():
    """Records keep `construction.kind` for the `name` of a study's file."""
    descent = find_results("theorems/leaving_descent", DATA / "leaving_descent")
    side = {"solver": {"kind": "construction", "name": "causal_gradient_descent"}, "step": 10}
    specs = [
        ClaimSpec(text=text, first={"training.lr": 1e-7}, second={**side, "solver": side["solver"] | more})
        for text, more in {"by name": {}, "by rate": {"rate": 0.08}, "other": {"rate": 0.5}}.items()
    ]
    by_name, by_rate, other = judged_claims(descent, specs)
    assert ratio(by_name) == ratio(by_rate) == pytest.approx(0.83, abs=0.01)
    assert other.verdict == "not run"


def test_without_a_floor_and_against_the_floor_itself_errors_are_compared():
    length = find_results("mixture_regression/reduced/length", DATA / "mixture_length")
    pair = {"task.components": 2, "task.symmetric": True, "task.snr": 8}
    specs = [
        ClaimSpec(text="points", first=pair | {"task.points": 33}, second=pair | {"task.points": 5}),
        ClaimSpec(
            text="EM",
            first=pair | {"task.points": 33},
            second={"solver": {"kind": "mixture_em", "penalty": None, "gradient_steps": None}},
        ),
    ]
    points, em = judged_claims(length, specs)
    assert em.sides.of == "error"
    assert em.remarks == ["The algorithm is the reference mixture em, so errors are compared"]
    assert points.sides.of == "error above the reference mixture em"
    chains = find_results("algoformer/reduced/figure2c", DATA / "figure2c")
    unknown = replace(
        chains,
        known_floors=Floors(compute=False),
        trials=chains.trials.drop(columns="regret", errors="ignore"),
    )
    (found,) = judged_claims(unknown, [ClaimSpec(text="a", first=kind("algoformer"), second=kind("looped"))])
    assert (found.sides.of, found.remarks) == ("error", ["No floor is known, so errors are compared"])


def test_a_claim_on_runs_that_stand_on_the_plateau_is_not_learnt():
    chains = find_results("algoformer/reduced/figure2c", DATA / "figure2c")
    (found,) = judged_claims(chains, [ClaimSpec(text="a", first=kind("algoformer"), second=kind("looped"))])
    assert (found.verdict, found.sides.ratio, found.learnt_in_words) == (
        "not learnt",
        None,
        "3 of 3 and 0 of 3",
    )
    assert found.remarks == [
        "Runs that have learnt: 3 of 3 and 0 of 3",
        "Too few runs have learnt at the same seeds to compare them",
    ]
    assert found.replicates is None
    assert claims_table([found])["learnt"].tolist() == ["3 of 3 and 0 of 3"]


@pytest.mark.slow
def test_at_equal_flops_a_claim_reads_the_histories_and_is_indicative():
    series = find_results("algoformer/reduced/figure2b", DATA / "figure2b")
    spec = claim(kind("algoformer"), kind("gpt2"), basis="flops")
    (found,) = judged_claims(series, [spec])
    runs = {cell.label: cell.runs for cell in found.sides.cells}
    priced = study_prices(series)
    budget = common_budget([run for each in runs.values() for run in each], priced, "flops")
    errors = [
        [error_at_cost(run, flops=budget, price=priced[run.trial]) for run in each] for each in runs.values()
    ]
    expected = np.exp(np.mean(np.log(errors[0])) - np.mean(np.log(errors[1])))
    assert ratio(found) == pytest.approx(expected)
    assert ratio(found) > 1.02 * ratio(
        judged(series, kind("algoformer"), kind("gpt2"))
    )  # AlgoFormer's steps cost more
    assert found.remarks[0].startswith("Indicative: validation errors at equal FLOPs")


def test_nets_that_were_trained_for_equal_flops_are_compared_at_the_end():
    records = planted_cells(1, 0.03, a=0.2, b=0.3).results
    equal = replace(records, trials=records.trials.assign(**{"training.flops": 1e12}))
    found = judged(equal, kind("a"), kind("b"), basis="flops")
    assert (found.verdict, found.remarks) == ("holds", [])
    assert ratio(found) == ratio(judged(records, kind("a"), kind("b")))


def test_a_claim_after_equal_steps_can_reverse_after_equal_flops():
    results = find_results("algoformer/reduced/figure2b", DATA / "figure2b")
    against_gpt2 = judged(results, kind("algoformer"), kind("gpt2"), of="regret")
    equal = at_equal_flops(results, against_gpt2)
    assert equal
    assert equal.ratio
    assert equal.contrast
    assert ratio(against_gpt2) < 1 < equal.contrast.ratio()[1]
    (note,) = equal_flops_notes(results, [against_gpt2])
    assert "0.87 after equal steps" in note
    assert f"{equal.ratio:.3g} (" in note


def test_nets_that_cost_the_same_have_no_ratio_at_equal_flops():
    planted = planted_cells(1, 0.1, first=0.2, second=0.3)
    same = judged(planted.results, kind("first"), kind("second"))
    assert at_equal_flops(planted.results, same) is None


def crossed(noise: float = 0.15, runs: int = 4, seed: int = 0) -> Planted:
    """Two nets at four sizes. The looped net has .8 of the error of the other net, and the sizes differ widely."""
    planted = Planted(seed=seed, noise=noise)
    for width in (8, 16, 32, 64):
        for name, share in (("looped", 0.8), ("gpt2", 1.0)):
            cell = planted.cell(f"{name} {width}", **kind(name), **{"model.width": width})
            planted.replicated(cell, share / width, runs=runs, tries=0)
    return planted


def test_a_claim_over_several_pairs_is_the_geometric_mean_of_their_ratios():
    results = crossed().results
    over = judged(results, kind("looped"), kind("gpt2"), over=("model.width",))
    alone = [
        judged(results, kind("looped", **width), kind("gpt2", **width))
        for width in ({"model.width": n} for n in (8, 16, 32, 64))
    ]
    ratios = [ratio(one) for one in alone]
    assert ratio(over) == pytest.approx(float(np.exp(np.mean(np.log(ratios)))))
    width = interval(over)[1] / interval(over)[0]
    assert all(width < interval(one)[1] / interval(one)[0] for one in alone)
    assert "The ratio is the geometric mean over 4 values of model.width" in over.remarks
    spread = f"The ratios of single pairs lie between {min(ratios):.3g} and {max(ratios):.3g}"
    assert spread in over.remarks
    moved = f"The ratio moves from {ratios[0]:.3g} at model.width=8 to {ratios[-1]:.3g} at model.width=64"
    assert moved in over.remarks
    assert not any("moves" in remark for remark in alone[0].remarks)
    assert len(over.sides.cells) == 8
    assert over.learnt_in_words == "32 of 32"


def test_several_pairs_decide_what_single_pairs_leave_open():
    words = {"over": 0, "alone": 0}
    for seed in range(20):
        results = crossed(seed=seed).results
        words["over"] += (
            judged(results, kind("looped"), kind("gpt2"), over=("model.width",)).verdict == "holds"
        )
        sides = (kind(name, **{"model.width": 8}) for name in ("looped", "gpt2"))
        words["alone"] += judged(results, *sides).verdict == "holds"
    assert words["over"] >= 16
    assert words["alone"] <= 10


def test_a_claim_over_cells_beside_an_algorithm_uses_the_algorithm_on_each_task():
    planted = Planted(noise=0.05)
    for dim, level in ((2, 0.3), (4, 0.6)):
        cell = planted.cell(f"d={dim}", **{"task.dim": dim})
        planted.replicated(cell, level, runs=4, tries=0)
        solver = planted.trial("", "baseline", dim, level, label="newton", **{"task.dim": dim})
        planted.curves_of(solver, level * 3, rate=0.2)
    results = planted.results
    over = judged(results, {}, {"solver": "newton"}, over=("task.dim",))
    alone = [judged(results, {"task.dim": dim}, {"solver": "newton"}) for dim in (2, 4)]
    assert ratio(over) == pytest.approx(float(np.exp(np.mean(np.log([ratio(one) for one in alone])))))
    assert (over.sides.first, over.sides.second) == ("all cells", "newton after 6 steps")


def test_a_claim_over_cells_after_more_loops_compares_each_net_with_itself():
    planted = Planted(noise=0.05)
    for width in (8, 16):
        planted.replicated(planted.cell(f"w={width}", **{"model.width": width}), 0.3, runs=4, tries=0)
    over = judged(planted.results, {"loop": 12}, {}, over=("model.width",))
    alone = [
        judged(planted.results, {"model.width": width, "loop": 12}, {"model.width": width})
        for width in (8, 16)
    ]
    assert ratio(over) == pytest.approx(float(np.exp(np.mean(np.log([ratio(one) for one in alone])))))
    assert over.verdict == "holds"


def test_a_claim_over_pairs_that_lack_a_cell_is_not_run():
    planted = crossed()
    planted.rows = [row for row in planted.rows if row["label"] != "gpt2 64"]
    assert judged(planted.results, kind("looped"), kind("gpt2"), over=("model.width",)).verdict == "not run"


def test_a_claim_over_pairs_at_equal_flops_gives_each_pair_its_own_budget():
    recorded = find_results("scaling/reduced/compute", DATA / "scaling_compute")
    # Half of these runs stand on the plateau. Without floors the records do not say so, and all runs are compared.
    results = replace(
        recorded,
        known_floors=Floors(compute=False),
        trials=recorded.trials.drop(columns="regret", errors="ignore"),
    )
    widths = list(dict.fromkeys(cell.values["model.width"] for cell in results.cells))
    loops = {"training.loops": 8}, {"training.loops": 2}
    over = judged(results, *loops, over=("model.width",), basis="flops")
    alone = [
        judged(results, *({**side, "model.width": width} for side in loops), basis="flops")
        for width in widths
    ]
    assert len(widths) > 2
    assert ratio(over) == pytest.approx(float(np.exp(np.mean(np.log([ratio(one) for one in alone])))))
    assert any(note.startswith("Indicative") for note in over.sides.notes)


def test_two_layers_of_a_net_without_loops_are_compared_and_loops_lend_them_no_noise():
    def claimed(others: bool):
        planted = Planted(longest=6)
        layered, looped = planted.cell("gpt2", **kind("gpt2")), planted.cell("looped", **kind("looped"))
        for number in range(3):
            trial = planted.trial(layered, "replicate", number, 0.1, **{"training.loops": None})
            planted.curves_of(trial, 0.1, 0.1 + 0.01 * number, 0)
            if others:  # their ratios scatter thirty times as much
                of_loops = planted.trial(looped, "replicate", number, 0.1)
                planted.curves_of(of_loops, 0.1, 0.3 * number, 0)
        return judged(planted.results, kind("gpt2"), kind("gpt2", loop=2))

    alone, beside = claimed(False), claimed(True)
    assert ratio(alone) == pytest.approx(np.exp(-0.11 * 4), rel=0.001)
    assert (alone.verdict, alone.sides.contrast) == ("holds", beside.sides.contrast)


def test_a_claim_about_play_counts_the_games_that_all_replicates_share():
    """At most the errors of both players count, as in records from before the error of the ratio was paired."""
    study = find_results("decisions/reduced/mdp", DATA / "decisions_mdp")
    compared = {claim.spec.text: claim.sides for claim in judged_claims(study)}
    sides = compared["Decision-pretrained GPT-2 has no more regret of play than posterior sampling"]
    [[cell]] = sides.pairs
    solver = next(each for each in cell.baselines if each.solver == "posterior sampling")
    nets = [(run["play_regret_sem"] / run["play_regret"]) ** 2 for run in cell.runs]
    assert sides.contrast is not None
    unpaired = float(np.mean(nets)) + (solver["play_regret_sem"] / solver["play_regret"]) ** 2
    assert 0 < sides.contrast.shared < unpaired * (1 + 1e-9)
    assert GAMES_NOTE in sides.notes
    other = compared["Four loops are closer to posterior sampling than one loop"]
    assert other.contrast is not None
    assert other.contrast.shared == 0
    assert GAMES_NOTE not in other.notes
