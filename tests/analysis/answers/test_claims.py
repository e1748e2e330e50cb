"""Claims of papers against planted studies: the verdict is the one that was planted, and no claim holds by luck."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.answers import claims
from tests.analysis.planted import Planted, comparison


@dataclass(frozen=True)
class Tables:
    study: dict[str, Any]
    trials: pd.DataFrame
    curves: pd.DataFrame


def tables(planted: Planted) -> Tables:
    trials, curves, _ = planted.tables
    return Tables(planted.study, trials, curves)


def kind(name: str) -> dict[str, Any]:
    return {"model.kind": name}


def test_a_planted_order_is_found_and_its_reverse_refused():
    records = tables(comparison(noise=0.03))
    found = claims.better(records, "AlgoFormer is better", kind("algoformer"), kind("looped"))
    assert found.word == "holds"
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.12 / 0.2 < found.high
    back = claims.better(records, "looped is better", kind("looped"), kind("algoformer"))
    assert back.word == "does not hold"
    assert back.ratio == pytest.approx(1 / found.ratio)
    assert "does not hold. looped has 1.6" in back.text
    assert "times the error of algoformer" in back.text


def test_another_measure_than_the_error_may_be_claimed_about():
    records = tables(comparison(noise=0.03))
    found = claims.better(records, "", kind("algoformer"), kind("looped"), of="error_last")
    assert found.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).ratio, rel=1e-6
    )  # planted at half the error
    halved = Tables(
        records.study, records.trials.assign(share=records.trials["error"].pow(2)), records.curves
    )
    squared = claims.better(halved, "", kind("algoformer"), kind("looped"), of="share")
    assert squared.ratio == pytest.approx((found.ratio or 0) ** 2, rel=1e-6)
    with pytest.raises(ValueError, match="no ratio is to be had of ari"):
        claims.better(records, "", kind("algoformer"), kind("looped"), of="ari")


def test_what_is_undecided_says_how_many_replicates_would_decide_it():
    planted = Planted(seed=3, noise=0.1)
    for name, middle in (("a", 0.1), ("b", 0.105)):
        planted.replicated(planted.cell(name, **kind(name)), middle)
    found = claims.better(tables(planted), "a is better", kind("a"), kind("b"))
    assert found.word == "undecided"
    assert found.low is not None
    assert found.replicates is not None
    half, gap = np.log(found.ratio / found.low), abs(np.log(found.ratio))
    assert half / np.sqrt(found.replicates / 3) <= gap < half / np.sqrt((found.replicates - 1) / 3)
    assert f"About {found.replicates} replicates would decide it." in found.text
    assert claims.table([found])["decided by"].tolist() == [found.replicates]
    sure = claims.better(tables(comparison(noise=0.03)), "", kind("algoformer"), kind("looped"))
    assert sure.replicates is None


def test_one_replicate_decides_nothing():
    planted = Planted()
    for name, middle in (("a", 0.1), ("b", 0.9)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=1)
    found = claims.better(tables(planted), "a is better", kind("a"), kind("b"))
    assert found.word == "undecided"
    assert found.low is None
    assert found.text.endswith("(no interval: fewer than two replicates) times the error of b.")
    assert claims.table([found])["decided by"].isna().all(), "two replicates need not decide it"
    planted.trial("", "baseline", 0, 0.3, label="newton")
    planted.curves_of("baseline--0", 0.2, rate=0.1)
    assert (
        "(no interval: fewer than two replicates)"
        in claims.beats(tables(planted), "", kind("a"), "newton").text
    )


def test_equal_cells_are_told_apart_in_one_study_of_twenty():
    wrong = 0
    for seed in range(100):
        planted = Planted(seed, noise=0.1)
        for name in ("a", "b"):
            planted.replicated(planted.cell(name, **kind(name)), 0.2, tries=0)
        wrong += claims.better(tables(planted), "", kind("a"), kind("b")).word != "undecided"
    assert 1 <= wrong <= 12  # 5 expected; outside of this with a probability below 0.01


def test_what_a_seed_does_to_both_cells_is_no_noise_of_their_ratio():
    planted = Planted(seed=1, noise=0.03)
    for name, middle in (("a", 0.18), ("b", 0.2), ("c", 0.2)):
        planted.replicated(planted.cell(name, **kind(name)), middle, runs=4, tries=0)
    alike = tables(planted)
    late = alike.trials.assign(error=alike.trials["error"] * np.where(alike.trials["seed"] == 1, 2.0, 1.0))
    found = claims.better(Tables(alike.study, late, alike.curves), "", kind("a"), kind("b"))
    same = claims.better(alike, "", kind("a"), kind("b"))
    assert found.word == "holds"
    assert (found.ratio, found.low, found.high) == pytest.approx((same.ratio, same.low, same.high))


def test_replicates_of_other_seeds_have_a_ratio_and_no_interval():
    records = tables(comparison(noise=0.03))
    algoformer = records.trials["model.kind"] == "algoformer"
    apart = records.trials.assign(seed=records.trials["seed"] + np.where(algoformer, 100, 0))
    found = claims.better(
        Tables(records.study, apart, records.curves), "", kind("algoformer"), kind("looped")
    )
    assert found.low is None
    assert found.ratio == pytest.approx(
        claims.better(records, "", kind("algoformer"), kind("looped")).ratio or 0
    )


def test_a_cell_that_has_not_been_run_is_no_verdict():
    planted = comparison()
    planted.cell("model.kind=lstm", **kind("lstm"))
    found = claims.better(tables(planted), "lstm is better", kind("lstm"), kind("looped"))
    assert found.word == "not run"
    assert found.text == "lstm is better: not run."


def test_settings_that_name_no_cell_or_several_are_a_mistake():
    records = tables(comparison())
    with pytest.raises(ValueError, match=r"rnn names 0 cells of planted; there are model\.kind=algoformer; "):
        claims.better(records, "", kind("rnn"), kind("looped"))
    with pytest.raises(ValueError, match="names 3 cells"):
        claims.better(records, "", {}, kind("looped"))


def test_a_whole_number_names_a_cell_however_it_is_written():
    planted = Planted()
    for noise in (0.0, 0.5):
        planted.replicated(planted.cell(f"noise={noise:g}", **{"task.noise": noise}), 0.1 + noise)
    for zero in (0, 0.0):
        found = claims.better(tables(planted), "", {"task.noise": zero}, {"task.noise": 0.5})
        assert found.word == "holds"


def test_a_net_is_held_against_an_algorithm_after_as_many_steps():
    records = tables(comparison(noise=0.02))
    assert (
        claims.beats(records, "", kind("algoformer"), "least_squares").second == "least squares after 6 steps"
    )
    curves, ratio = records.curves, {}
    for step in (1, 6):
        of = {name: curves[curves["trial"].str.startswith(name) & (curves["loop"] == step)] for name in (
            "replicate-cell0", "baseline--1")}  # fmt: skip
        errors = of["replicate-cell0"].groupby("trial")["error"].mean()
        ratio[step] = np.exp(np.log(errors).mean()) / of["baseline--1"]["error"].mean()
        found = claims.beats(records, "", kind("algoformer"), "gradient_descent", step)
        assert found.ratio == pytest.approx(ratio[step])
    beside = claims.beside(records, "gradient_descent")
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
    records = tables(planted)
    last = records.curves[(records.curves["loop"] == 6) & (records.curves["point"] == 7)]
    mine = last[last["trial"].str.startswith("replicate")]["error"]
    theirs = float(last[last["trial"] == solver]["error"].iloc[0])
    found = claims.beats(records, "", kind("looped"), "newton", query="last")
    assert found.ratio == pytest.approx(np.exp(np.log(mine).mean()) / theirs)
    assert found.word == "holds"


def test_beyond_the_trained_loops_the_interval_is_that_of_the_replicates_run_on():
    planted = Planted(noise=0.05)  # T is 6, and all is evaluated up to 12
    for name, runs in (("looped", 3), ("algoformer", 1)):
        planted.replicated(planted.cell(name, **kind(name)), 0.1, runs=runs)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = tables(planted)
    found = claims.beats(records, "", kind("looped"), "newton", step=10)
    at = records.curves[records.curves["loop"] == 10].groupby("trial")["error"].mean()
    logs = np.log(at[at.index.str.startswith("replicate-cell0")])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # Student's t of two degrees of freedom
    assert found.low == pytest.approx(np.exp(logs.mean() - half) / at["baseline--0"], rel=1e-5)
    assert found.word == "holds"


def test_where_the_noise_is_unknown_no_number_of_replicates_is_named():
    planted = Planted()
    planted.replicated(planted.cell("looped", **kind("looped")), 0.1)
    planted.curves_of(planted.trial("", "baseline", 0, 0.3, label="newton"), 0.2, rate=0.1)
    records = tables(planted)
    broken = records.curves["trial"].str.endswith("cell0-1") & (records.curves["loop"] > 6)
    burst = Tables(
        records.study,
        records.trials,
        records.curves.assign(error=records.curves["error"].mask(broken, np.inf)),
    )
    found = claims.beats(burst, "", kind("looped"), "newton", step=10)
    assert (found.low, found.replicates) == (None, None)
    assert "no interval: the noise between replicates is not known there" in found.text


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
    found = claims.run_on(tables(planted), times=5)
    assert dict(found["verdict"]) == {"stays": "stays", "grows": "grows", "falls": "falls", "bursts": "grows"}
    assert found.loc["grows", "ratio"] == pytest.approx(np.exp(0.1 * 24), rel=0.02)
    assert set(found["loops"]) == {30}
    assert set(claims.run_on(tables(planted), times=50)["loops"]) == {30}, "no further than was evaluated"


def test_claims_are_a_table():
    records = tables(comparison())
    made = claims.table([
        claims.better(records, "AlgoFormer beats the looped net", kind("algoformer"), kind("looped")),
        claims.beats(records, "it beats Newton", kind("algoformer"), "newton"),
    ])  # fmt: skip
    assert list(made["verdict"]) == ["holds", "not run"]
    assert made.loc["it beats Newton", "ratio"] != made.loc["it beats Newton", "ratio"]
