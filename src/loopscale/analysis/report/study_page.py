"""A study as one self-contained page: question, answer, figures, laws, standings, cost, trials, provenance."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from loopscale.analysis.answers.best_cells import best_columns, best_notes, front, front_columns, regret_notes
from loopscale.analysis.answers.claims import READ_COLUMNS, claim_notes, equal_flops_notes
from loopscale.analysis.answers.comparisons import lowest_first
from loopscale.analysis.answers.cost import COST_COLUMNS, training_costs
from loopscale.analysis.answers.findings import QUESTIONS, Findings, study_findings
from loopscale.analysis.answers.importance import Importance
from loopscale.analysis.answers.matched_steps import MATCHED_COLUMNS, matched_notes
from loopscale.analysis.answers.optima import OPTIMUM_COLUMNS, optima_at_equal_cost
from loopscale.analysis.answers.pareto import PARETO_COLUMNS, stretches
from loopscale.analysis.answers.standings import STANDINGS, standings_notes
from loopscale.analysis.answers.summary import summary
from loopscale.analysis.figures.base import Reported, report_figures
from loopscale.analysis.laws.words import LAW_COLUMNS, split_shared_note
from loopscale.analysis.recorded.results import Results, TrialResult
from loopscale.analysis.report.page import render, text
from loopscale.core.visible import last_line
from loopscale.theory.prediction import missing_theory

MOST_TRIALS = 3000
"""The largest number of rows in the table of trials. Further finished tuning trials are only counted."""
MOST_REASONS = 40
MOST_OPEN = 5
"""The largest number of open questions that a reader sees without opening the list."""


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
    reported = Reported(results, findings.laws)
    laws, shared = split_shared_note(findings.laws)
    cells, total = training_costs(results)
    configurations = best_columns(results)
    return render(
        "report.html.j2",
        list(report_figures(reported)),
        study=results.study,
        findings=findings,
        columns={
            "best": [column for column in configurations if not column.detail],
            "best_details": [configurations[0], *(column for column in configurations if column.detail)],
            "claims": READ_COLUMNS,
            "front": front_columns(results),
            "laws": [column for column in LAW_COLUMNS if not column.detail],
            "law_details": [
                LAW_COLUMNS[0],
                *(column for column in LAW_COLUMNS[1:] if column.detail or column in LAW_COLUMNS[1:3]),
            ],
            "open": QUESTIONS,
            "standings": STANDINGS,
            "matched": MATCHED_COLUMNS,
            "costs": COST_COLUMNS,
            "fronts": PARETO_COLUMNS,
            "optima": OPTIMUM_COLUMNS,
        },
        summary=summary(findings),
        most_open=MOST_OPEN,
        best_notes=" ".join([*best_notes(findings.answers), *regret_notes(results)]),
        examples=_examples(results),
        standings_notes=" ".join(standings_notes(findings.standings)),
        matched_notes=" ".join(matched_notes(findings.matched)),
        claim_notes=" ".join(
            [*claim_notes(findings.claims), *equal_flops_notes(findings.results, findings.claims)]
        ),
        law_notes=[
            f"{law.along}: {why}."
            for law in {law.along: law for law in findings.laws if not law.theory}.values()
            if (why := missing_theory(law.along))
        ],
        impossible=[result.sentence for result in findings.impossible],
        importance_notes=_labels_of_notes(reported.importances),
        stretches=[stretch for each in reported.fronts for stretch in stretches(each)],
        optima=optima_at_equal_cost(results),
        points=front(results) if results.two_objectives else [],
        counts=Counter(_outcome(trial) for trial in results.present),
        removed=len(results.trained) - len(results.present),
        reasons=_reasons(results.trained),
        trials=_listed(results.trained),
        outcome=_outcome,
        omitted=max(len(results.trained) - MOST_TRIALS, 0),
        costs=[*cells, total],
        laws=laws,
        of_all_laws=f" For all laws: {shared}." if shared else "",
        provenance={name: text(value) for name, value in (provenance or {}).items()},
    )


def _examples(results: Results) -> list[TrialResult]:
    """The first replicate of the best cell of each task with answers that a person can read."""
    best = [lowest_first(of_task)[0] for of_task in results.tasks.values()]
    return [run for cell in best for run in cell.runs[:1] if run.examples]


def _labels_of_notes(importances: Sequence[Importance]) -> dict[str, list[str]]:
    """The labels of the cells by the note on their importances."""
    labels: dict[str, list[str]] = {}
    for of_cell in importances:
        if of_cell.note:
            labels.setdefault(of_cell.note, []).append(of_cell.label)
    return labels


def _listed(trials: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials of the table. Finished tuning trials come last, so only they exceed the limit."""

    def place(trial: TrialResult) -> tuple[bool, str, str, int]:
        is_last = trial.outcome == "finished" and trial.role == "tuning"
        return is_last, trial.label, trial.role, trial.number

    ordered = sorted(trials, key=place)
    return ordered[:MOST_TRIALS]


def _reasons(trials: Sequence[TrialResult]) -> list[tuple[str, str, int]]:
    """Why trials did not finish: outcome, reason and number of trials, the most frequent first."""
    unfinished = [trial for trial in trials if trial.outcome != "finished"]
    counts = Counter((_outcome(trial), _reason(trial)) for trial in unfinished)
    return [(outcome, reason, count) for (outcome, reason), count in counts.most_common(MOST_REASONS)]


def _outcome(trial: TrialResult) -> str:
    return trial.outcome.replace("_", " ") or "running"


def _reason(trial: TrialResult) -> str:
    """The reason in one line: of a traceback the last line, which names the error."""
    if line := last_line(trial.detail):
        return line
    where = "" if trial.step is None else f" at step {trial.step:,}"
    reasons = {"pruned": f"behind other trials of its cell{where}", "running": f"still training{where}"}
    return reasons.get(_outcome(trial), f"no reason was recorded{where}")
