"""Claims of papers against planted studies: the verdict is the one that was planted, and no claim holds by luck."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers import claims
from tests.analysis.planted import Planted, comparison


def kind(name: str) -> dict[str, Any]:
    return {"model.kind": name}


def test_a_planted_order_is_found_and_its_reverse_refused():
    records = comparison(noise=0.03).results
    found = claims.better(records, "AlgoFormer is better", kind("algoformer"), kind("looped"))
    assert found.word == "holds"
    assert found.comparison.low is not None
    assert found.comparison.high is not None
    assert found.comparison.low < 0.12 / 0.2 < found.comparison.high
    back = claims.better(records, "looped is better", kind("looped"), kind("algoformer"))
    assert back.word == "does not hold"
    assert back.comparison.ratio == pytest.approx(1 / found.comparison.ratio)
    assert "does not hold. The error of looped is 1.6" in back.sentence
    assert "times that of algoformer" in back.sentence


def test_another_measure_than_the_error_may_be_claimed_about():
    records = comparison(noise=0.03).results
    found = claims.better(records, "", kind("algoformer"), kind("looped"), of="error_last")
    assert found.comparison.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).comparison.ratio, rel=1e-6
    )  # planted at half the error
    halved = replace(records, trials=records.trials.assign(share=records.trials["error"].pow(2)))
    squared = claims.better(halved, "", kind("algoformer"), kind("looped"), of="share")
    assert squared.comparison.ratio == pytest.approx((found.comparison.ratio or 0) ** 2, rel=1e-6)
    with pytest.raises(ValueError, match="ari has no ratio"):
        claims.better(records, "", kind("algoformer"), kind("looped"), of="ari")


def test_what_is_undecided_says_how_many_replicates_would_decide_it():
    planted = Planted(seed=3, noise=0.1)
    for name, middle in (("a", 0.1), ("b", 0.105)):
        planted.replicated(planted.cell(name, **kind(name)), middle)
    found = claims.better(planted.results, "a is better", kind("a"), kind("b"))
    assert found.word == "undecided"
    assert found.comparison.low is not None
    assert found.comparison.replicates is not None
    half, gap = np.log(found.comparison.ratio / found.comparison.low), abs(np.log(found.comparison.ratio))
    assert (
        half / np.sqrt(found.comparison.replicates / 3)
        <= gap
        < half / np.sqrt((found.comparison.replicates - 1) / 3)
    )
    assert f"About {found.comparison.replicates} replicates would decide it." in found.sentence
    assert claims.claims_table([found])["decided by"].tolist() == [found.comparison.replicates]
    sure = claims.better(comparison(noise=0.03).results, "", kind("algoformer"), kind("looped"))
    assert sure.comparison.replicates is None


def test_one_replicate_decides_nothing():
    planted = Planted()
    for name, middle in (("a", 0.1), ("b", 0.9)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=1)
    found = claims.better(planted.results, "a is better", kind("a"), kind("b"))
    assert found.word == "undecided"
    assert found.comparison.low is None
    assert found.sentence.endswith("(no interval: fewer than two replicates) times that of b.")
    assert claims.claims_table([found])["decided by"].isna().all(), "two replicates need not decide it"
    planted.trial("", "baseline", 0, 0.3, label="newton")
    planted.curves_of("baseline--0", 0.2, rate=0.1)
    assert (
        "(no interval: fewer than two replicates)"
        in claims.beats(planted.results, "", kind("a"), "newton").sentence
    )


def test_equal_cells_are_told_apart_in_one_study_of_twenty():
    wrong = 0
    for seed in range(100):
        planted = Planted(seed, noise=0.1)
        for name in ("a", "b"):
            planted.replicated(planted.cell(name, **kind(name)), 0.2, tries=0)
        wrong += claims.better(planted.results, "", kind("a"), kind("b")).word != "undecided"
    assert 1 <= wrong <= 12  # 5 expected; outside of this with a probability below 0.01


def test_what_a_seed_does_to_both_cells_is_no_noise_of_their_ratio():
    planted = Planted(seed=1, noise=0.03)
    for name, middle in (("a", 0.18), ("b", 0.2), ("c", 0.2)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=4, tries=0)
    alike = planted.results
    late = alike.trials.assign(error=alike.trials["error"] * np.where(alike.trials["seed"] == 1, 2.0, 1.0))
    found = claims.better(replace(alike, trials=late), "", kind("a"), kind("b"))
    same = claims.better(alike, "", kind("a"), kind("b"))
    assert found.word == "holds"
    assert (found.comparison.ratio, found.comparison.low, found.comparison.high) == pytest.approx(
        (same.comparison.ratio, same.comparison.low, same.comparison.high)
    )


def test_replicates_of_other_seeds_have_a_ratio_and_no_interval():
    records = comparison(noise=0.03).results
    algoformer = records.trials["model.kind"] == "algoformer"
    apart = records.trials.assign(seed=records.trials["seed"] + np.where(algoformer, 100, 0))
    found = claims.better(replace(records, trials=apart), "", kind("algoformer"), kind("looped"))
    assert found.comparison.low is None
    assert found.comparison.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).comparison.ratio or 0
    )


def test_a_cell_that_has_not_been_run_is_no_verdict():
    planted = comparison()
    planted.cell("model.kind=lstm", **kind("lstm"))
    found = claims.better(planted.results, "lstm is better", kind("lstm"), kind("looped"))
    assert found.word == "not run"
    assert found.sentence == "lstm is better: not run."


def test_settings_that_name_no_cell_or_several_are_a_mistake():
    records = comparison().results
    with pytest.raises(
        ValueError, match=r"rnn names 0 cells of planted; the cells are model\.kind=algoformer; "
    ):
        claims.better(records, "", kind("rnn"), kind("looped"))
    with pytest.raises(ValueError, match="names 3 cells"):
        claims.better(records, "", {}, kind("looped"))


def test_a_whole_number_names_a_cell_however_it_is_written():
    planted = Planted()
    for noise in (0.0, 0.5):
        planted.replicated(planted.cell(f"noise={noise:g}", **{"task.noise": noise}), 0.1 + noise)
    for zero in (0, 0.0):
        found = claims.better(planted.results, "", {"task.noise": zero}, {"task.noise": 0.5})
        assert found.word == "holds"


def test_a_net_is_held_against_an_algorithm_after_as_many_steps():
    records = comparison(noise=0.02).results
    assert (
        claims.beats(records, "", kind("algoformer"), "least_squares").comparison.second
        == "least squares after 6 steps"
    )
    curves, ratio = records.curves, {}
    for step in (1, 6):
        of = {name: curves[curves["trial"].str.startswith(name) & (curves["loop"] == step)] for name in (
            "replicate-cell0", "baseline--1")}  # fmt: skip
        errors = of["replicate-cell0"].groupby("trial")["error"].mean()
        ratio[step] = np.exp(np.log(errors).mean()) / of["baseline--1"]["error"].mean()
        found = claims.beats(records, "", kind("algoformer"), "gradient_descent", step)
        assert found.comparison.ratio == pytest.approx(ratio[step])
    beside = claims.ratios_to_solver(records, "gradient_descent")
    first = beside[beside["cell"] == "model.kind=algoformer"]
    assert list(first["step"]) == [1, 2, 3, 4, 5, 6]
    assert first["ratio"].iloc[0] == pytest.approx(ratio[1])
    assert set(first["verdict"]) <= {"better", "worse", "undecided"}
    assert claims.beats(records, "", kind("looped"), "newton").word == "not run"


def test_a_net_is_held_against_an_algorithm_on_the_last_query():
    planted = Planted(noise=0.02)
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    solver = planted.trial("", "baseline", 0, 0.3, label="newton")
    planted.curves_of(solver, 0.2, rate=0.1)
    records = planted.results
    last = records.curves[(records.curves["loop"] == 6) & (records.curves["point"] == 7)]
    mine = last[last["trial"].str.startswith("replicate")]["error"]
    theirs = float(last[last["trial"] == solver]["error"].iloc[0])
    found = claims.beats(records, "", kind("looped"), "newton", query="last")
    assert found.comparison.ratio == pytest.approx(np.exp(np.log(mine).mean()) / theirs)
    assert found.word == "holds"


def test_beyond_the_trained_loops_the_interval_is_that_of_the_replicates_run_on():
    planted = Planted(noise=0.05)  # T is 6, and all is evaluated up to 12
    for name, runs in (("looped", 3), ("algoformer", 1)):
        planted.replicated(planted.cell(name, **kind(name)), 0.1, runs=runs)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = planted.results
    found = claims.beats(records, "", kind("looped"), "newton", step=10)
    at = records.curves[records.curves["loop"] == 10].groupby("trial")["error"].mean()
    logs = np.log(at[at.index.str.startswith("replicate-cell0")])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # Student's t of two degrees of freedom
    assert found.comparison.low == pytest.approx(np.exp(logs.mean() - half) / at["baseline--0"], rel=1e-5)
    assert found.word == "holds"


def test_where_the_noise_is_unknown_no_number_of_replicates_is_named():
    planted = Planted()
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = planted.results
    broken = records.curves["trial"].str.endswith("cell0-1") & (records.curves["loop"] > 6)
    burst = replace(records, curves=records.curves.assign(error=records.curves["error"].mask(broken, np.inf)))
    found = claims.beats(burst, "", kind("looped"), "newton", step=10)
    assert (found.comparison.low, found.comparison.replicates) == (None, None)
    assert "no interval: an error that is 0 or not finite" in found.sentence


def test_running_on_stays_grows_or_falls_as_planted():
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
    found = claims.beyond_trained_loops(planted.results, times=5)
    assert dict(found["verdict"]) == {"stays": "stays", "grows": "grows", "falls": "falls", "bursts": "grows"}
    assert found.loc["grows", "ratio"] == pytest.approx(np.exp(0.1 * 24), rel=0.02)
    assert set(found["loops"]) == {30}
    assert set(claims.beyond_trained_loops(planted.results, times=50)["loops"]) == {30}, (
        "no further than was evaluated"
    )


def test_claims_are_a_table():
    records = comparison().results
    made = claims.claims_table([
        claims.better(records, "AlgoFormer beats the looped net", kind("algoformer"), kind("looped")),
        claims.beats(records, "it beats Newton", kind("algoformer"), "newton"),
    ])  # fmt: skip
    assert list(made["verdict"]) == ["holds", "not run"]
    assert made.loc["it beats Newton", "ratio"] != made.loc["it beats Newton", "ratio"]
