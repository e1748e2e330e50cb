"""Claims on planted studies: verdicts are those that were planted, and claims rarely hold by chance."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers import claims
from tests.analysis.planted import Planted, comparison


def kind(name: str) -> dict[str, Any]:
    return {"model.kind": name}


def test_a_claim_with_the_planted_order_holds_and_the_reverse_claim_does_not():
    records = comparison(noise=0.03).results
    claim = claims.better(records, "AlgoFormer is better", kind("algoformer"), kind("looped"))
    assert claim.word == "holds"
    assert claim.comparison.low is not None
    assert claim.comparison.high is not None
    assert claim.comparison.low < 0.12 / 0.2 < claim.comparison.high
    reverse = claims.better(records, "looped is better", kind("looped"), kind("algoformer"))
    assert reverse.word == "does not hold"
    assert reverse.comparison.ratio == pytest.approx(1 / claim.comparison.ratio)
    assert "does not hold. The error of looped is 1.6" in reverse.sentence
    assert "times that of algoformer" in reverse.sentence


def test_a_claim_may_be_about_another_measure_than_the_error():
    records = comparison(noise=0.03).results
    claim = claims.better(records, "", kind("algoformer"), kind("looped"), of="error_last")
    assert claim.comparison.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).comparison.ratio, rel=1e-6
    )  # `error_last` is planted as half of the error
    halved = replace(records, trials=records.trials.assign(share=records.trials["error"].pow(2)))
    squared = claims.better(halved, "", kind("algoformer"), kind("looped"), of="share")
    assert squared.comparison.ratio == pytest.approx((claim.comparison.ratio or 0) ** 2, rel=1e-6)
    with pytest.raises(ValueError, match="ari has no ratio"):
        claims.better(records, "", kind("algoformer"), kind("looped"), of="ari")


def test_an_undecided_claim_names_the_replicates_that_would_decide_it():
    planted = Planted(seed=3, noise=0.1)
    for name, middle in (("a", 0.1), ("b", 0.105)):
        planted.replicated(planted.cell(name, **kind(name)), middle)
    claim = claims.better(planted.results, "a is better", kind("a"), kind("b"))
    assert claim.word == "undecided"
    assert claim.comparison.low is not None
    assert claim.comparison.replicates is not None
    half, gap = np.log(claim.comparison.ratio / claim.comparison.low), abs(np.log(claim.comparison.ratio))
    assert (
        half / np.sqrt(claim.comparison.replicates / 3)
        <= gap
        < half / np.sqrt((claim.comparison.replicates - 1) / 3)
    )
    assert f"About {claim.comparison.replicates} replicates would decide it." in claim.sentence
    assert claims.claims_table([claim])["decided by"].tolist() == [claim.comparison.replicates]
    sure = claims.better(comparison(noise=0.03).results, "", kind("algoformer"), kind("looped"))
    assert sure.comparison.replicates is None


def test_a_single_replicate_gives_no_interval():
    planted = Planted()
    for name, middle in (("a", 0.1), ("b", 0.9)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=1)
    claim = claims.better(planted.results, "a is better", kind("a"), kind("b"))
    assert claim.word == "undecided"
    assert claim.comparison.low is None
    assert claim.sentence.endswith("(no interval: fewer than two replicates) times that of b.")
    assert claims.claims_table([claim])["decided by"].isna().all(), (
        "two replicates might not decide the claim"
    )
    planted.trial("", "baseline", 0, 0.3, label="newton")
    planted.curves_of("baseline--0", 0.2, rate=0.1)
    assert (
        "(no interval: fewer than two replicates)"
        in claims.beats(planted.results, "", kind("a"), "newton").sentence
    )


def test_equal_cells_get_a_verdict_in_one_study_of_twenty():
    wrong = 0
    for seed in range(100):
        planted = Planted(seed, noise=0.1)
        for name in ("a", "b"):
            planted.replicated(planted.cell(name, **kind(name)), 0.2, tries=0)
        wrong += claims.better(planted.results, "", kind("a"), kind("b")).word != "undecided"
    assert 1 <= wrong <= 12  # 5 are expected; more or fewer have a probability below 0.01


def test_an_effect_of_a_seed_on_all_cells_does_not_change_the_interval_of_a_ratio():
    planted = Planted(seed=1, noise=0.03)
    for name, middle in (("a", 0.18), ("b", 0.2), ("c", 0.2)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=4, tries=0)
    alike = planted.results
    late = alike.trials.assign(error=alike.trials["error"] * np.where(alike.trials["seed"] == 1, 2.0, 1.0))
    claim = claims.better(replace(alike, trials=late), "", kind("a"), kind("b"))
    same = claims.better(alike, "", kind("a"), kind("b"))
    assert claim.word == "holds"
    assert (claim.comparison.ratio, claim.comparison.low, claim.comparison.high) == pytest.approx(
        (same.comparison.ratio, same.comparison.low, same.comparison.high)
    )


def test_cells_with_different_seeds_have_a_ratio_and_no_interval():
    records = comparison(noise=0.03).results
    algoformer = records.trials["model.kind"] == "algoformer"
    apart = records.trials.assign(seed=records.trials["seed"] + np.where(algoformer, 100, 0))
    claim = claims.better(replace(records, trials=apart), "", kind("algoformer"), kind("looped"))
    assert claim.comparison.low is None
    assert claim.comparison.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).comparison.ratio or 0
    )


def test_a_claim_about_a_cell_without_trials_is_not_run():
    planted = comparison()
    planted.cell("model.kind=lstm", **kind("lstm"))
    claim = claims.better(planted.results, "lstm is better", kind("lstm"), kind("looped"))
    assert claim.word == "not run"
    assert claim.sentence == "lstm is better: not run."


def test_settings_that_name_no_cell_or_several_cells_are_an_error():
    records = comparison().results
    with pytest.raises(
        ValueError, match=r"rnn names 0 cells of planted; the cells are model\.kind=algoformer; "
    ):
        claims.better(records, "", kind("rnn"), kind("looped"))
    with pytest.raises(ValueError, match="names 3 cells"):
        claims.better(records, "", {}, kind("looped"))


def test_an_integer_and_an_equal_float_name_the_same_cell():
    planted = Planted()
    for noise in (0.0, 0.5):
        planted.replicated(planted.cell(f"noise={noise:g}", **{"task.noise": noise}), 0.1 + noise)
    for zero in (0, 0.0):
        claim = claims.better(planted.results, "", {"task.noise": zero}, {"task.noise": 0.5})
        assert claim.word == "holds"


def test_a_net_is_compared_with_an_algorithm_after_as_many_steps():
    records = comparison(noise=0.02).results
    assert (
        claims.beats(records, "", kind("algoformer"), "least_squares").comparison.second
        == "least squares after 6 steps"
    )
    curves, ratio = records.curves, {}
    for step in (1, 6):
        at_step = curves[curves["loop"] == step]
        errors = at_step[at_step["trial"].str.startswith("replicate-cell0")].groupby("trial")["error"].mean()
        solver_error = at_step[at_step["trial"].str.startswith("baseline--1")]["error"].mean()
        ratio[step] = np.exp(np.log(errors).mean()) / solver_error
        claim = claims.beats(records, "", kind("algoformer"), "gradient_descent", step)
        assert claim.comparison.ratio == pytest.approx(ratio[step])
    ratios = claims.ratios_to_solver(records, "gradient_descent")
    first = ratios[ratios["cell"] == "model.kind=algoformer"]
    assert list(first["step"]) == [1, 2, 3, 4, 5, 6]
    assert first["ratio"].iloc[0] == pytest.approx(ratio[1])
    assert set(first["verdict"]) <= {"better", "worse", "undecided"}
    assert claims.beats(records, "", kind("looped"), "newton").word == "not run"


def test_a_net_is_compared_with_an_algorithm_at_the_last_query():
    planted = Planted(noise=0.02)
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    solver = planted.trial("", "baseline", 0, 0.3, label="newton")
    planted.curves_of(solver, 0.2, rate=0.1)
    records = planted.results
    last = records.curves[(records.curves["loop"] == 6) & (records.curves["point"] == 7)]
    net_errors = last[last["trial"].str.startswith("replicate")]["error"]
    solver_error = float(last[last["trial"] == solver]["error"].iloc[0])
    claim = claims.beats(records, "", kind("looped"), "newton", query="last")
    assert claim.comparison.ratio == pytest.approx(np.exp(np.log(net_errors).mean()) / solver_error)
    assert claim.word == "holds"


def test_beyond_the_trained_loops_the_interval_rests_on_the_replicates_that_ran_further():
    planted = Planted(noise=0.05)  # T is 6, and all is evaluated up to 12
    for name, runs in (("looped", 3), ("algoformer", 1)):
        planted.replicated(planted.cell(name, **kind(name)), 0.1, runs=runs)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = planted.results
    claim = claims.beats(records, "", kind("looped"), "newton", step=10)
    at = records.curves[records.curves["loop"] == 10].groupby("trial")["error"].mean()
    logs = np.log(at[at.index.str.startswith("replicate-cell0")])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # Student's t of two degrees of freedom
    assert claim.comparison.low == pytest.approx(np.exp(logs.mean() - half) / at["baseline--0"], rel=1e-5)
    assert claim.word == "holds"


def test_with_unknown_noise_a_claim_names_no_number_of_replicates():
    planted = Planted()
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = planted.results
    broken = records.curves["trial"].str.endswith("cell0-1") & (records.curves["loop"] > 6)
    burst = replace(records, curves=records.curves.assign(error=records.curves["error"].mask(broken, np.inf)))
    claim = claims.beats(burst, "", kind("looped"), "newton", step=10)
    assert (claim.comparison.low, claim.comparison.replicates) == (None, None)
    assert "no interval: an error that is 0 or not finite" in claim.sentence


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
    changes = claims.beyond_trained_loops(planted.results, times=5)
    assert dict(changes["verdict"]) == {
        "stays": "stays",
        "grows": "grows",
        "falls": "falls",
        "bursts": "grows",
    }
    assert changes.loc["grows", "ratio"] == pytest.approx(np.exp(0.1 * 24), rel=0.02)
    assert set(changes["loops"]) == {30}
    assert set(claims.beyond_trained_loops(planted.results, times=50)["loops"]) == {30}, (
        "not beyond the evaluated loops"
    )


def test_a_table_of_claims_has_a_row_for_each_claim():
    records = comparison().results
    better = claims.better(records, "AlgoFormer beats the looped net", kind("algoformer"), kind("looped"))
    beats = claims.beats(records, "it beats Newton", kind("algoformer"), "newton")
    table = claims.claims_table([better, beats])
    assert list(table["verdict"]) == ["holds", "not run"]
    assert table.loc["it beats Newton", "ratio"] != table.loc["it beats Newton", "ratio"]
