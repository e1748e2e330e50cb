"""A study as one self-contained page: question, answer, figures, laws, standings, cost, trials, provenance."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from loopscale.analysis.answers.best_cells import best_columns, best_notes, front, front_columns, regret_notes
from loopscale.analysis.answers.claims import READ_COLUMNS, claim_notes, equal_flops_notes
from loopscale.analysis.answers.comparisons import lowest_first
from loopscale.analysis.answers.cost import COST_COLUMNS, training_costs
from loopscale.analysis.answers.findings import QUESTIONS, Findings, study_findings
from loopscale.analysis.answers.importance import RELIABLE, Importance, importance
from loopscale.analysis.answers.matched_steps import MATCHED_COLUMNS, matched_notes
from loopscale.analysis.answers.pareto import PARETO_COLUMNS, Front, compares_models, fronts, stretches
from loopscale.analysis.answers.standings import STANDINGS, standings_notes
from loopscale.analysis.answers.summary import summary
from loopscale.analysis.figures import cells, curves, emergence, matched, settings, similarity, tuning
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.figures.pareto import cost_front
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.words import LAW_COLUMNS, split_shared_note
from loopscale.analysis.recorded.axes import independent_axes
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.analysis.report.page import Figure, render, text
from loopscale.core.titles import readable
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
    importances = importance(results)
    laws, shared = split_shared_note(findings.laws)
    cells, total = training_costs(results)
    of_costs = cost_fronts(results)
    configurations = best_columns(results)
    return render(
        "report.html.j2",
        list(study_figures(results, findings.laws, importances, of_costs)),
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
        importance_notes=_labels_of_notes(importances),
        stretches=[stretch for each in of_costs for stretch in stretches(each)],
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
    lines = [line.strip() for line in trial.detail.splitlines() if line.strip()]
    if lines:
        return lines[-1]
    where = "" if trial.step is None else f" at step {trial.step:,}"
    reasons = {"pruned": f"behind other trials of its cell{where}", "running": f"still training{where}"}
    return reasons.get(_outcome(trial), f"no reason was recorded{where}")


MOST_GROUPS = 12
"""The largest number of tasks, and of tuned cells, with figures of their own."""
FEWEST_LINES = 5
"""With fewer finished trials a cell has no figure of parallel coordinates."""
FEWEST_VALUES = 3
"""A numeric setting with fewer values has no figure."""
LEGEND = (
    " A ring marks T, the number of trained loops. Dashed and muted: classical algorithms. Black: exact lower bound of"
    " the mean error."
)
MEDIANS = (
    " Thin and dotted, from T on: the median over prompts, which a few very large errors do not change. The lower bound"
    " does not apply to the median."
)


def cost_fronts(results: Results) -> list[Front]:
    """The fronts against FLOPs and against seconds, if the study compares kinds of models."""
    if not compares_models(results):
        return []
    return [*fronts(results, "flops")[:MOST_GROUPS], *fronts(results, "seconds")[:MOST_GROUPS]]


def study_figures(
    results: Results, laws: Sequence[Law], importances: Sequence[Importance], of_costs: Sequence[Front] = ()
) -> Iterator[Figure]:
    """All figures: first the answers, then the tuning, then the training."""
    yield from _of_tasks(results)
    yield from _of_costs(of_costs)
    yield from _of_axes(results, laws)
    yield from _of_tuning(results, importances)
    if len(results.history):
        text = "Validation error during training of the runs that answer for each cell."
        yield Figure("Learning curves", text, "learning", tuning.learning_curves(results))
    yield from _of_solvers(results)
    if results.learnt.of:
        text = (
            "The share of runs that have not left the plateau before in-context learning: more than half of the"
            " reducible error is left. A run emerges at the first of two consecutive validations below this half. Runs"
            " that never emerge count (Turnbull's estimate)."
        )
        yield Figure("Emergence", text, "emergence", emergence.on_plateau(results))


def _of_solvers(results: Results) -> Iterator[Figure]:
    """The comparison of nets in training with solvers."""
    for place, solver in enumerate(similarity.compared_solvers(results)):
        named = readable(solver).replace("_", " ")
        text = (
            f"The iterate of {named} whose errors are most similar to those of the net, on validation prompts. Along"
            " the loops a match of Newton's iteration grows linearly, and a match of gradient descent exponentially."
        )
        drawing = similarity.matches_along_training(results, solver)
        yield Figure(f"Matches of {named} along training", text, f"trainedmatch{place}", drawing)
        text = (
            "The similarity at the best matches, the mean over the loops of a looped net. Solvers of one problem"
            " resemble each other, so a high similarity alone tells no algorithms apart."
        )
        drawing = similarity.similarity_along_training(results, solver)
        yield Figure(f"Similarity to {named} along training", text, f"trainedsimilarity{place}", drawing)


def _of_tasks(results: Results) -> Iterator[Figure]:
    for place, (name, of_task) in enumerate(list(results.tasks.items())[:MOST_GROUPS]):
        title = f": {name}" if name else ""
        if curves.has_regret(of_task):  # first, because only regret says how far a better net could still go
            text = (
                "Regret after every loop or layer: the error that a better predictor could still lose. A ring marks T."
                " Values below zero, which are noise, are left out."
            )
            drawing = curves.against_loops(results, of_task, "regret")
            yield Figure(f"Regret against loops{title}", text, f"regret{place}", drawing)
            text = (
                "Regret at T against the pairs seen before the query. Values below zero (noise) are left out."
            )
            drawing = curves.against_points(results, of_task, "regret")
            yield Figure(f"Regret against points{title}", text, f"pointsregret{place}", drawing)
        text = "Error after every loop or layer, averaged over all queries, with 95 % bands over replicates."
        drawing = curves.against_loops(results, of_task)
        legend = LEGEND + (MEDIANS if any(drawing.select_traces({"name": curves.MEDIANS_ENTRY})) else "")
        yield Figure(f"Error against loops{title}", text + legend, f"loops{place}", drawing)
        text = "Error at T against the pairs seen before the query, with 95 % bands over replicates."
        drawing = curves.against_points(results, of_task)
        yield Figure(f"Error against points{title}", text, f"points{place}", drawing)
        if any(curve.played for cell in of_task for curve in cell.curves):
            text = (
                "Cumulative pseudo-regret of sampled play at T: the lost reward in expectation, summed over the rounds."
                " All nets, policies and constructions play the same games with the same luck."
            )
            drawing = curves.against_rounds(results, of_task)
            yield Figure(f"Regret of play against rounds{title}", text, f"rounds{place}", drawing)
        text = "Mean error at T of every cell with its 95 % interval. The dashes are single runs."
        yield Figure(f"Replicates{title}", text, f"runs{place}", cells.replicates(results, of_task))


def _of_costs(of_costs: Sequence[Front]) -> Iterator[Figure]:
    for place, drawn in enumerate(of_costs):
        text = (
            f"Mean {drawn.measure} over runs at every report, on the validation prompts. The broad grey line is the"
            " least that any cell reaches for this cost. Large markers are ends of trainings. Points before the end are"
            " indicative, because their schedules are not complete."
        )
        cost = "FLOPs" if drawn.basis == "flops" else "time"
        measure = "Regret" if drawn.measure == "regret" else "Error"
        name = f": {drawn.task}" if drawn.task else ""
        yield Figure(f"{measure} against {cost}{name}", text, f"front{place}", cost_front(drawn))


def _of_axes(results: Results, laws: Sequence[Law]) -> Iterator[Figure]:
    for place, path in enumerate(independent_axes(results, FEWEST_VALUES)):
        if any(np.isfinite(trial["regret"]) for trial in results.everything):
            text = (
                "Mean regret at T of every cell with its 95 % interval: the error that a better predictor could still"
                " lose. Cells with a run whose regret is not above zero are left out."
            )
            drawing = settings.against_axis(results, path, "regret")
            yield Figure(f"Regret against {path}", text, f"axisregret{place}", drawing)
        text = (
            "Mean error at T of every cell with its 95 % interval over replicates, and classical algorithms on the same"
            " task. Along loops or layers, algorithms are shown after as many steps."
        )
        yield Figure(f"Error against {path}", text, f"axis{place}", settings.against_axis(results, path))
    for place, path in enumerate(independent_axes(results)):
        for number, algorithm in enumerate(matched.iterative_algorithms(results)):
            named = readable(algorithm)
            text = (
                f"The steps of {named} after which its error of the last query is that of the nets, with 95 %"
                " intervals. Triangles mark nets whose error lies outside the recorded steps."
            )
            drawing = matched.matched_along(results, path, algorithm, "last")
            setting = path.rpartition(".")[2].replace("_", " ")
            title = f"Steps of {named} that match the nets, by {setting}"
            yield Figure(title, text, f"matched{place}-{number}", drawing)
    for place, (along, of) in enumerate(dict.fromkeys((law.along, law.of) for law in laws)):
        same = [law for law in laws if (law.along, law.of) == (along, of)]
        text = (
            "Means over runs, fitted laws, and the prediction of theory (dotted or dashed). A prediction that is exact"
            " for this quantity is drawn as is. Of any other prediction only the shape counts: its constant is fitted."
            " Short bars with an interval are predictions of held-out values, and open diamonds are the runs there."
        )
        yield Figure(f"Law: {of} along {along}", text, f"law{place}", law_figure(same))


def _of_tuning(results: Results, importances: Sequence[Importance]) -> Iterator[Figure]:
    varied = tuning.varied_settings(results)
    for place, setting in enumerate(varied):
        text = (
            f"The error of finished trials for each tried value of {setting}, by cell. Crosses at the top mark trials"
            " that diverged or ran out of memory."
        )
        drawing = tuning.tuning_slice(results, setting)
        yield Figure(f"Tuning: {setting}", text, f"tuning{place}", drawing)
    several = [cell for cell in results.cells if _varied_count(cell, varied) > 1]
    for place, cell in enumerate(several[:MOST_GROUPS]):
        text = (
            "Every finished tuning trial as a line through its settings to its error. The best fifth has the thickest"
            " lines."
        )
        drawing = tuning.parallel_coordinates(results, cell, varied)
        name = cell.name or "the only cell"
        yield Figure(f"Tuning of {name}, all settings at once", text, f"parallel{place}", drawing)
    if any(importance.shares for importance in importances):
        text = (
            "How strongly each setting distinguishes the better quarter of a cell's trials (PED-ANOVA). The shares of a"
            f" cell sum to 1. Hollow markers are unreliable, because they rest on fewer than {RELIABLE} trials."
        )
        drawing = tuning.importances(importances)
        yield Figure("Importance of the tuned settings", text, "importance", drawing)
    if results.two_objectives:
        text = "Error of every finished trial against its training cost. A table above lists the best points."
        yield Figure("Error against cost", text, "objectives", tuning.error_against_cost(results))


def _varied_count(cell: CellResult, settings: Sequence[str]) -> int:
    """The number of settings with more than one value in the cell; 0 if the cell has too few finished trials."""
    trials = [trial for trial in cell.tuning if trial.finished]
    if len(trials) < FEWEST_LINES:
        return 0
    return sum(len({repr(trial.settings.get(path)) for trial in trials}) > 1 for path in settings)
