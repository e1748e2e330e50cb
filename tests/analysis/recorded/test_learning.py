"""Runs on the plateau and runs that are still falling: verdicts, words, tables and figures."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.best_cells import best
from loopscale.analysis.answers.claims import JudgedClaim, judged_claims
from loopscale.analysis.answers.comparisons import compare_studies, compare_with_baselines
from loopscale.analysis.answers.findings import law_sentence, study_findings
from loopscale.analysis.answers.standings import standings
from loopscale.analysis.figures.emergence import on_plateau
from loopscale.analysis.laws.law import Law, study_laws
from loopscale.analysis.notebook import StudyResults, count_verdicts
from loopscale.analysis.recorded.learning import learnt_words, steps_words, study_sentence
from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.report.study_page import study_page
from loopscale.contracts.planted_study import Planted
from loopscale.questions.claim import ClaimSpec
from loopscale.records.stores.opening import open_store
from loopscale.stats.contrasts import Array
from loopscale.stats.learning import Learnt

RECORDS = Path(__file__).parents[3] / "notebooks" / "data"
STEPS = np.arange(50.0, 1001, 50)
FLOOR = {"validate_floor": 0.0, "validate_ignorance": 1.0, "training.steps": 1000}


def course(emergence: float, end: float = 0.0) -> Array:
    """Validation errors: 1 on the plateau, and a fall as a power of the step after the emergence."""
    if math.isinf(emergence):
        return np.ones_like(STEPS)
    falling = 0.4 * (STEPS / max(emergence, 1)) ** -end
    return np.where(emergence <= STEPS, np.minimum(falling, 0.45), 1.0)


def planted(
    emerged: dict[float, list[float]], end: float = 0.0, of: str = "error", **settings: Any
) -> Results:
    """A study over `training.loops`, with the step of emergence (inf for never) of every replicate."""
    study, rng = Planted(longest=12), np.random.default_rng(0)
    for loops, steps in emerged.items():
        cell = study.cell(f"loops={loops:g}", **{"training.loops": loops})
        for number, step in enumerate(steps):
            error = (0.9 if math.isinf(step) else 0.6 / loops) * math.exp(0.05 * rng.standard_normal())
            columns = FLOOR | {"regret": error / 2, "regret_last": error / 4} | settings
            key = study.trial(cell, "replicate", number, error, **columns)
            study.curves_of(key, error, 0.3)
            noise = np.exp(0.01 * rng.standard_normal(len(STEPS)))
            for at, value in zip(STEPS, course(step, end) * noise, strict=True):
                study.history.append({"trial": key, "step": int(at), "metric": "error", "value": value})
    baseline = study.trial("", "baseline", 0, 0.2, label="ridge", **{"solver.kind": "ridge"})
    study.curves_of(baseline, 1.0, 0.3)
    asked = {"of": of, "along": "training.loops", "form": ["power"]}
    study.study["laws"] = [asked | {"theory": {"kind": "first_order_best"}}, asked]
    return study.results


LEARNT = {2.0: [100.0, 150.0], 4.0: [100.0, 200.0], 6.0: [150.0, 150.0], 8.0: [100.0, 100.0]}
HALF = LEARNT | {4.0: [100.0, math.inf], 6.0: [math.inf, math.inf]}


def laws(results: Results) -> list[Law]:
    return study_laws(results)[0]


def test_a_law_on_runs_of_the_plateau_is_not_learnt():
    with_theory, without = laws(planted(HALF))
    assert with_theory.judgement
    assert (with_theory.judgement.verdict, with_theory.judgement.because) == (
        "not learnt",
        "3 of 8 runs stand on the plateau",
    )
    assert without.judgement is None
    assert without.note == without.why == "not learnt: 3 of 8 runs stand on the plateau"
    assert law_sentence(with_theory).endswith("Verdict: not learnt: 3 of 8 runs stand on the plateau.")
    with_theory, without = laws(planted(LEARNT))
    assert with_theory.judgement
    assert with_theory.judgement.verdict != "not learnt"
    assert without.note == ""


def test_a_law_on_falling_runs_names_the_steps():
    for settings, words in (
        ({}, "per 1,000 steps, still falling"),
        (
            {"training.schedule": "cosine"},
            "per 1,000 steps of this schedule, still falling; the schedule says nothing of more steps",
        ),
    ):
        results = planted(LEARNT, end=1.0, **settings)
        law = laws(results)[1]
        assert law.note == words
        runs = [run for cell in results.cells for run in cell.runs]
        assert steps_words(runs, "training.steps") == ""
    assert laws(planted(LEARNT | {2.0: [100.0, 150.0]}, end=0.0))[1].note == ""


def test_a_law_without_states_has_its_old_verdict():
    results = planted(HALF)
    unknown = results.trials.drop(columns=["validate_floor"]).assign(**{"task.kind": "no_such_task"})
    law = laws(Results(results.study, unknown, results.curves, results.history))[1]
    assert law.note == ""


def test_comparisons_of_too_few_learnt_runs_are_not_learnt():
    results = planted(HALF)
    learnt, half, never, _ = results.cells
    compared, other = compare_studies((results, results), [(learnt, half), (learnt, results.cells[3])])
    assert (compared.verdict, compared.plateau) == ("not learnt", "1 of 4 runs stand on the plateau")
    assert compared.interval is None, "one pair of learnt runs has no interval"
    assert other.verdict != "not learnt"
    assert other.interval
    baseline = results.baselines[0]
    beside = compare_with_baselines(results, [(never, baseline, None), (learnt, baseline, None)])
    assert [each.verdict == "not learnt" for each in beside] == [True, False]
    words = {standing.label: standing.verdict for standing in standings(results)}
    assert words["loops=6"] == "not learnt"


def test_sentences_say_why_nets_on_the_plateau_have_no_ratio():
    sentences = study_findings(planted({2.0: [math.inf, math.inf], 4.0: [math.inf, math.inf]})).sentences
    assert (
        "Next is loops=2. Its error has no ratio to that of loops=4, because 4 of 4 runs stand on the plateau."
        in sentences
    )
    (beside,) = (sentence for sentence in sentences if "ridge" in sentence)
    assert re.fullmatch(
        r"There is no ratio to the error of ridge after 4 steps, [\d.]+, because 2 of 2 runs stand on the plateau\.",
        beside,
    )


def test_tables_compare_learnt_runs_as_claims_do():
    results = planted({2.0: [100.0, 100, 150, 150, 100], 8.0: [100.0, 150, 100, math.inf, 100]})
    claim = {
        "first": {"training.loops": 2.0},
        "second": {"training.loops": 8.0},
        "of": "error",
        "margin": None,
    }
    (judged,) = judged_claims(results, [ClaimSpec(text="fewer loops", **claim)])
    assert judged.verdict_in_words == "does not hold among learnt runs"
    (pair,) = compare_studies((results, results), [results.cells])
    table = {answer.label: answer.against_best for answer in best(results)}
    beside = table["loops=2"]
    assert beside
    assert table["loops=8"] is None
    assert beside.verdict_in_words == pair.verdict_in_words == "worse among learnt runs"
    for one in (beside, pair):
        assert (one.ratio, one.interval, one.seeds) == (judged.sides.ratio, judged.interval, 5)


def test_tables_show_the_counts_of_every_cell():
    results = planted(HALF, end=1.0)
    assert [learnt_words(cell) for cell in results.cells] == [
        "2 of 2, still falling",
        "1 of 2, still falling",
        "0 of 2",
        "2 of 2, still falling",
    ]
    assert [answer.learnt for answer in best(results)] == [learnt_words(cell) for cell in results.cells]
    assert [answer.regret for answer in best(results)] == pytest.approx(
        [cell.values_of("error").mean() / 2 for cell in results.cells]
    )
    assert results.learnt == Learnt(emerged=5, of=8, falling=5)
    findings = study_findings(results)
    sentence = (
        "3 of 8 runs stand on the plateau. 5 runs are still falling, and the training of 0 runs is over."
    )
    assert sentence in findings.sentences
    assert findings.open[0].what == "What nets of loops=4, loops=6 do after they have learnt"
    assert "loops=4" not in [question.what for question in study_findings(planted(LEARNT)).open]


def test_a_sentence_says_whether_the_runs_of_a_study_have_learnt():
    assert study_sentence(Learnt(0, 0)) == ""
    assert study_sentence(Learnt(0, 3)) == (
        "3 of 3 runs stand on the plateau: the study answers no question yet."
    )
    assert study_sentence(Learnt(3, 3, 0, 2)) == (
        "All 3 runs have left the plateau. 0 runs are still falling, and the training of 2 runs is over."
    )


def test_the_notebook_counts_laws_that_are_not_learnt():
    study = StudyResults.of(planted(HALF))
    assert "1 not learnt" in count_verdicts(study)[0]
    table = study.laws()
    assert table["verdict"].iloc[0] == "not learnt"
    assert study.best()["learnt"].tolist() == [answer.learnt for answer in best(study)]
    assert not {"validate_floor", "emerged_at"} & set(study.measures().columns)


# The step of emergence as a measure


LOOPS = (2.0, 4.0, 8.0, 16.0)


def steps_of(slope: float, seed: int) -> dict[float, list[float]]:
    """Steps of emergence 300 loops^`slope` of six runs at each value, with a scatter of .4, censored at step 1,000."""
    rng = np.random.default_rng(seed)
    steps = {loops: 300 * loops**slope * np.exp(0.4 * rng.standard_normal(6)) for loops in LOOPS}
    return {loops: np.where(found <= 1000, found, math.inf).tolist() for loops, found in steps.items()}


def test_a_law_of_emergence_keeps_the_runs_that_never_emerge():
    slopes, dropped = list[float](), list[float]()
    for seed in range(6):
        emerged = steps_of(0.6, seed)
        finite = [(loops, step) for loops, steps in emerged.items() for step in steps if math.isfinite(step)]
        law = laws(planted(emerged, of="emerged_at"))[1]
        assert law.note == f"{24 - len(finite)} of 24 runs never emerge, and count as censored"
        assert law.low is not None
        assert law.high is not None
        assert law.low < law.rate < law.high
        assert np.log(law.value([2.0, 16.0])) @ [-1, 1] == pytest.approx(-law.rate * math.log(8))
        slopes.append(-law.rate)
        x, y = np.log(np.array(finite)).T
        dropped.append(float(np.polyfit(x, y, 1)[0]))
    assert np.mean(slopes) == pytest.approx(0.6, abs=0.1)
    assert np.mean(dropped) < 0.45


def test_a_law_of_emergence_that_nothing_determines_is_unfitted():
    never = {loops: [math.inf, math.inf] for loops in (2.0, 4.0, 6.0)}
    _, unfitted = study_laws(planted(never, of="emerged_at"))
    assert [law.because for law in unfitted] == [
        "0 of 6 runs emerge, at 3 values of the axis, and determine no law"
    ] * 2
    results = planted(LEARNT, of="emerged_at")
    results.study["laws"][0]["form"] = ["power_floor"]
    _, unfitted = study_laws(results)
    assert unfitted[0].because == "the form of a law of emerged_at is power or exponential, not power_floor"


def test_the_figure_of_emergence_has_a_line_for_each_cell_or_each_value():
    results = planted(HALF)
    figure = on_plateau(results)
    names = [line.name for line in figure.data]
    assert names == [
        "loops=2 (2 of 2 emerged)",
        "loops=4 (1 of 2 emerged)",
        "loops=6 (0 of 2 emerged)",
        "loops=8 (2 of 2 emerged)",
    ]
    half = figure.data[1]
    assert (list(half.x), list(half.y)) == ([0, 100, 1000], [1, 0.5, 0.5])
    study = StudyResults.of(results)
    by_loops = study.emergence("training.loops")
    assert [line.name for line in by_loops.data] == [name.replace("=", " = ", 1) for name in names]
    with pytest.raises(ValueError, match="no scientific setting"):
        study.emergence("training.speed")


def test_the_report_shows_emergence_and_the_counts():
    page = study_page(planted(HALF))
    assert "3 of 8 runs stand on the plateau" in page
    assert 'id="emergence"' in page or "Emergence" in page


# The interval of a regret


def test_the_interval_of_a_regret_includes_the_noise_of_the_prompts():
    results = planted(LEARNT)
    training = best(results)[0]
    trials = results.trials.assign(regret_sem=results.trials["regret"] * 0.2)
    both = best(Results(results.study, trials, results.curves, results.history))[0]
    assert training.regret_low
    assert training.regret_high
    assert both.regret_low
    assert both.regret_high
    assert both.regret == training.regret
    for wide, narrow in ((both.regret_low, training.regret_low), (both.regret_high, training.regret_high)):
        assert training.regret
        half = math.log(wide / training.regret), math.log(narrow / training.regret)
        assert half[0] ** 2 - half[1] ** 2 == pytest.approx((1.96 * 0.2) ** 2, rel=1e-3)


# Older records


def test_best_knows_the_learning_of_older_records_whose_floors_are_saved(tmp_path: Path):
    shutil.copytree(RECORDS / "figure2c", tmp_path, dirs_exist_ok=True)
    store = open_store(tmp_path)
    results = load_results(store, next(iter(store.studies())), curves=False)
    assert [answer.learnt for answer in best(results)] == ["3 of 3, still falling", "0 of 3", "0 of 3"]
    assert all(answer.regret for answer in best(results))
    (tmp_path / "floors.json").unlink()
    results = load_results(store, next(iter(store.studies())), curves=False)
    assert [answer.learnt for answer in best(results)] == [""] * 3
    assert not any(answer.regret for answer in best(results))


@pytest.mark.slow
def test_the_best_command_and_the_report_agree_on_the_states():
    for name in ("quickstart", "scaling_dimension"):
        store = open_store(RECORDS / name)
        study = next(iter(store.studies()))
        quick, full = (load_results(store, study, curves=curves) for curves in (False, True))
        assert [answer.learnt for answer in best(quick)] == [answer.learnt for answer in best(full)]
        tuning = [results.trials[results.trials["role"] != "replicate"] for results in (quick, full)]
        assert len(tuning[0]) > len(quick.cells)
        only = [
            Results(results.study, trials, results.curves, results.history, known_floors=results.floors)
            for results, trials in zip((quick, full), tuning, strict=True)
        ]
        states = [[cell.runs[0].learning for cell in results.answered] for results in only]
        assert states[0] == states[1]
        assert None not in states[0]


def sooner(emerged: dict[float, list[float]], first: float, second: float) -> JudgedClaim:
    spec = ClaimSpec(
        text="the first learns sooner",
        first={"training.loops": first},
        second={"training.loops": second},
        of="emerged_at",
        margin=None,
    )
    [found] = judged_claims(planted(emerged), [spec])
    return found


SOME = {
    2.0: [100.0, 150.0, 100.0],
    4.0: [400.0, 600.0, 500.0],
    6.0: [800.0, math.inf, 900.0],
    8.0: [math.inf] * 3,
}


def test_a_claim_of_emergence_compares_the_steps_of_emergence():
    found = sooner(SOME, 2, 4)
    assert (found.verdict, found.sides.of, found.remarks) == ("holds", "steps until emergence", [])
    expected = np.log([100, 150, 100]).mean() - np.log([400, 600, 500]).mean()
    assert found.sides.ratio == pytest.approx(math.exp(expected))
    assert sooner(SOME, 4, 2).verdict == "does not hold"


def test_runs_that_never_emerge_bound_a_claim_of_emergence():
    note = "Runs that never emerge count with their last step, so the true ratio is"
    for late in (6, 8):
        found = sooner(SOME, 2, late)
        assert (found.verdict, found.remarks) == ("holds", [f"{note} at most this ratio"])
    assert found.sides.ratio == pytest.approx(math.exp(np.log([100, 150, 100]).mean()) / 1000)
    reverse = sooner(SOME, 8, 2)
    assert (reverse.verdict, reverse.remarks) == ("does not hold", [f"{note} at least this ratio"])


def test_a_bound_never_decides_a_claim_of_emergence_in_its_own_direction():
    late = [1000.0] * 6
    assert sooner({2.0: late, 4.0: [900.0] * 5 + [1000.0]}, 2, 4).verdict == "does not hold"
    found = sooner({2.0: late, 4.0: [900.0] * 5 + [math.inf]}, 2, 4)
    assert found.interval
    assert (
        found.interval.low > 1
    )  # the run that never emerged may be arbitrarily late, so the true ratio may be small
    assert (found.verdict, found.alone) == ("undecided", "undecided")


def test_runs_that_never_emerge_on_both_sides_decide_nothing():
    found = sooner(SOME, 6, 8)
    assert (found.verdict, found.remarks[0]) == ("not learnt", "Runs that have learnt: 2 of 3 and 0 of 3")
