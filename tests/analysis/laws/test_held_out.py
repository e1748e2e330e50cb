"""Held-out tests of laws: fits without the held-out cells, recorded and later predictions, and their scores."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.findings import prediction_sentence, study_findings
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.figures.style import PREDICTED, with_decimal_ticks
from loopscale.analysis.laws.held_out import AFTERWARDS
from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.laws.words import LAW_COLUMNS, law_line
from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.table import frame
from loopscale.contracts.planted_study import Planted
from loopscale.records.predictions import RecordedPrediction, predict_from
from tests.analysis.recorded.test_learning import planted as emergence_study

LOOPS = (1, 2, 4, 8, 16)


def planted(last: float = 1.0, hold_out: Any = 1, runs: int = 3, **options: Any) -> Planted:
    """A power law with rate .8. The error at the last value is multiplied by `last`."""
    study = Planted(noise=0.05, **options)
    for loops in LOOPS:
        cell = study.cell(f"loops={loops}", **{"training.loops": loops})
        study.replicated(cell, 0.4 * loops**-0.8 * (last if loops == 16 else 1), runs=runs)
    study.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["power"], "hold_out": hold_out}
    ]
    return study


def record(study: Planted, shift: float = 0.0, replicates: int = 3) -> RecordedPrediction:
    """Record a prediction from the fitted runs, with all errors shifted by `shift` (log)."""
    cells = {cell["key"]: cell["values"]["training.loops"] for cell in study.study["cells"]}
    fitted: dict[float, tuple[float, ...]] = {}
    for row in study.rows:
        if row["role"] == "replicate" and (loops := cells[row["cell"]]) != 16:
            fitted[loops] = (*fitted.get(loops, ()), math.log(row["error"]) + shift)
    prediction = predict_from(fitted, 16.0, replicates)
    assert prediction
    [cell] = [key for key, loops in cells.items() if loops == 16]
    recorded = RecordedPrediction("error", "training.loops", cell, prediction, fitted)
    study.study["predictions"] = dict(recorded.note().tags)
    return recorded


def only_law(results: Results, **options: Any):
    [law] = study_laws(results, **options)[0]
    return law


def test_the_fit_of_a_law_uses_the_other_cells_only():
    law = only_law(planted(last=5.0).results)
    assert law.x == (1, 2, 4, 8)
    assert law.rate == pytest.approx(0.8, abs=0.1)


@pytest.mark.parametrize(("last", "word"), [(1.0, "hit"), (2.0, "miss"), (0.5, "miss")])
def test_a_recorded_prediction_is_scored_beside_naive_predictions(last: float, word: str):
    study = planted(last)
    recorded = record(study)
    law = only_law(study.results)
    [value] = law.predictions
    assert value.foretold
    assert value.verdict == word
    assert law.score is value.score
    assert value.score
    mean = float(
        np.mean(np.log([row["error"] for row in study.rows if row["trial"].startswith("replicate-cell4")]))
    )
    assert value.score.log_error == pytest.approx(mean - recorded.prediction.centre)
    assert value.score.last_value_error == pytest.approx(mean - recorded.prediction.last_value)
    assert value.score.line_error == pytest.approx(mean - recorded.prediction.line)
    assert abs(value.score.last_value_error) > 0.5 or last == 2.0


def test_a_recorded_prediction_is_not_computed_again():
    study = planted()
    recorded = record(study, shift=1.0)
    [value] = only_law(study.results).predictions
    assert value.prediction.centre == pytest.approx(recorded.prediction.centre)
    assert value.verdict == "miss"


def test_fewer_finished_runs_get_the_interval_of_the_recorded_errors():
    study = planted(runs=2)
    record(study, replicates=3)
    [value] = only_law(study.results).predictions
    assert value.prediction.replicates == len(value.errors) == 2


def test_later_replicates_do_not_change_the_score():
    study = planted(runs=4)
    record(study, replicates=3)
    [value] = only_law(study.results).predictions
    assert value.prediction.replicates == len(value.errors) == 3


def test_an_unfinished_held_out_value_is_open():
    study = planted()
    study.rows = [row for row in study.rows if row["cell"] != "cell4"]
    record(study)
    [value] = only_law(study.results).predictions
    assert (value.verdict, value.score, only_law(study.results).score) == ("open", None, None)


def test_a_prediction_without_a_record_is_named_afterwards():
    [value] = only_law(planted().results).predictions
    assert not value.foretold
    assert value.verdict == "hit"
    assert AFTERWARDS in value.words
    assert AFTERWARDS in value.label


def test_old_records_get_a_held_out_test_afterwards_on_request():
    study = planted(hold_out=None)
    assert only_law(study.results).x == LOOPS
    assert not only_law(study.results).predictions
    law = only_law(study.results, hold_out=1)
    assert law.x == LOOPS[:-1]
    assert AFTERWARDS in law.test_words
    notebook = StudyResults(**vars(study.results))
    assert list(notebook.laws()["held_out_test"]) == ["none"]
    assert AFTERWARDS in notebook.laws(hold_out=1)["held_out_test"].iloc[0]


def test_a_law_without_a_held_out_test_says_so():
    law = only_law(planted(hold_out=None).results)
    assert law_line(law).endswith("\n  no held-out test")
    assert list(frame(LAW_COLUMNS, [law])["held_out_test"]) == ["none"]


def test_a_prediction_from_three_values_is_shown_and_not_judged():
    study = planted(hold_out=2)
    values = only_law(study.results).predictions
    assert [value.verdict for value in values] == ["not judged", "not judged"]
    assert only_law(study.results).score is None
    assert "because 4 are needed" in values[0].words


def test_report_line_json_and_figure_show_prediction_and_score():
    study = planted()
    record(study)
    findings = study_findings(study.results)
    [law] = findings.laws
    [sentence] = [sentence for sentence in findings.sentences if "predicted" in sentence]
    assert "at loops 16, before its runs started" in sentence
    assert "a hit. Score 0.0" in sentence
    assert sentence.endswith("the CRPS of log errors; smaller is better.")
    assert "foretold for 16" in law_line(law)
    assert law.to_dict()["predictions"][0]["score"]["hit"] is True
    hovers = " ".join(str(trace.hovertemplate) for trace in law_figure([law]).data)
    assert "foretold" in hovers
    assert "held out" in hovers


def stuck(study: Planted, trials: int) -> Results:
    """The study, in which some replicates never leave the plateau."""
    keys = [row["trial"] for row in study.rows if row["role"] == "replicate"][:trials]
    for row in study.history:
        if row["trial"] in keys:
            row["value"] = 10.0
    return study.results


def test_a_law_of_runs_on_the_plateau_has_the_verdict_not_learnt_beside_its_prediction():
    study = planted()
    study.study["laws"][0]["theory"] = "gd_contraction"
    law = only_law(stuck(study, 2))
    assert law.judgement
    assert law.judgement.verdict == "not learnt"
    assert "2 of 12 runs stand on the plateau" in law.judgement.because
    assert law.predictions


def test_laws_may_be_of_regret():
    study = planted(hold_out=None)
    study.study["laws"][0]["of"] = "regret"
    law = only_law(study.results)
    run = study.results.cells[0].runs[0]
    assert law.y[0] < 0.4
    assert run["regret"] == pytest.approx(run["error"] - float(run.floor.error.mean()))


def emerging(last: list[float]) -> Any:
    """The law of the emergence of runs that emerge earlier with more loops, and its test at 12 loops."""
    steps = {1.5: [900.0, 700], 3.0: [500, math.inf], 6.0: [300, 350], 9.0: [200, 250], 12.0: last}
    results = emergence_study(steps, of="emerged_at")
    law = {"of": "emerged_at", "along": "training.loops", "form": ["power"], "hold_out": 1}
    study = {**results.study, "laws": [law]}
    return only_law(Results(study, results.trials, results.curves, results.history))


@pytest.mark.parametrize(
    ("last", "word", "came"),
    [
        ([150.0, 200], "hit", "came 1"),
        ([math.inf, math.inf], "miss", "at least 1e+03"),
        ([150, math.inf], "open", "at"),
    ],
)
def test_a_law_of_the_emergence_predicts_the_held_out_value(last: list[float], word: str, came: str):
    law = emerging(last)
    assert law.x == (1.5, 3, 6, 9)
    [value] = law.predictions
    assert value.verdict == word
    assert came in value.words
    assert "unknown" not in value.words
    assert value.censored == sum(map(math.isinf, last))
    assert value.verdict in prediction_sentence(law, value)


def test_a_wide_prediction_leaves_the_figure_of_the_law_readable():
    law = only_law(planted().results)
    [value] = law.predictions
    wide = replace(value.prediction, high=value.prediction.high + 40)
    drawn = with_decimal_ticks(law_figure([replace(law, predictions=(replace(value, prediction=wide),))]))
    (bar,) = [trace for trace in drawn.data if trace.marker.symbol == PREDICTED]
    assert bar.error_y.array[0] > 1e15
    assert 10 ** drawn.layout.yaxis.range[1] < 20 * max(law.y)
