"""A study as one self-contained page: question, answer, figures, laws, standings, cost, trials, provenance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loopscale.analysis.answers.best import best_columns, front, front_columns
from loopscale.analysis.answers.cost import COLUMNS as COSTS
from loopscale.analysis.answers.cost import training_costs
from loopscale.analysis.answers.findings import Findings, study_findings
from loopscale.analysis.answers.importance import importance
from loopscale.analysis.answers.open_questions import COLUMNS as QUESTIONS
from loopscale.analysis.answers.standings import COLUMNS as STANDINGS
from loopscale.analysis.laws.law import COLUMNS as LAWS
from loopscale.analysis.report.figures import study_figures
from loopscale.analysis.report.page import render, text
from loopscale.analysis.results import Results, TrialResult

MOST_TRIALS = 3000
"""The largest number of rows in the table of trials. Further finished tuning trials are only counted."""
MOST_REASONS = 40


def study_page(
    results: Results, provenance: Mapping[str, Any] | None = None, findings: Findings | None = None
) -> str:
    """The page as HTML.

    Parameters
    ----------
    provenance
        Commit, versions and the study's file, by heading. A mapping is shown as a table.
    findings
        The findings of the study. They are computed if they are not given.
    """
    findings = findings or study_findings(results)
    importances = importance(results)
    cells, total = training_costs(results)
    return render(
        "report.html.j2",
        list(study_figures(results, findings.laws, importances)),
        study=results.study,
        findings=findings,
        columns={
            "best": best_columns(results),
            "front": front_columns(results),
            "laws": LAWS,
            "open": QUESTIONS,
            "standings": STANDINGS,
            "costs": COSTS,
        },
        impossible=[result.sentence for result in findings.impossible],
        importance_notes=[importance for importance in importances if importance.note],
        points=front(results) if results.two_objectives else [],
        counts=Counter(_outcome(trial) for trial in results.trained),
        reasons=_reasons(results.trained),
        trials=_trial_rows(results.trained),
        omitted=max(len(results.trained) - MOST_TRIALS, 0),
        costs=[*cells, total],
        provenance={name: text(value) for name, value in (provenance or {}).items()},
    )


def _trial_rows(trials: Sequence[TrialResult]) -> list[dict[str, Any]]:
    """The rows of the table of trials. Finished tuning trials come last, so only they exceed the limit."""
    ordered = sorted(
        trials,
        key=lambda trial: (
            trial.outcome == "finished" and trial.role == "tuning",
            trial.label,
            trial.role,
            trial.number,
        ),
    )
    return [
        {
            "trial": trial.trial,
            "label": trial.label,
            "role": trial.role,
            "detail": trial.detail,
            "outcome": _outcome(trial),
            "seed": "" if trial.seed is None else trial.seed,
            "step": "" if trial.step is None else trial.step,
            "error": trial.measures.get("error"),
        }
        for trial in ordered[:MOST_TRIALS]
    ]


def _reasons(trials: Sequence[TrialResult]) -> list[tuple[str, str, int]]:
    """Why trials did not finish: outcome, reason and number of trials, the most frequent first."""
    unfinished = [trial for trial in trials if trial.outcome != "finished"]
    counts = Counter((_outcome(trial), _reason(trial)) for trial in unfinished)
    return [(outcome, reason, count) for (outcome, reason), count in counts.most_common(MOST_REASONS)]


def _outcome(trial: TrialResult) -> str:
    return trial.outcome.replace("_", " ") or "running"


def _reason(trial: TrialResult) -> str:
    """The reason in one line: of a traceback the last line, which names the error."""
    lines = [line.strip() for line in trial.detail.splitlines() if line.strip()]
    if lines:
        return lines[-1]
    where = "" if trial.step is None else f" at step {trial.step:,}"
    reasons = {"pruned": f"behind other trials of its cell{where}", "running": f"still training{where}"}
    return reasons.get(_outcome(trial), f"no reason was recorded{where}")
