"""The findings of a study: answers, laws, impossible results and open questions, with sentences for readers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from loopscale.analysis.answers.best import Best, best, number
from loopscale.analysis.answers.comparisons import compare_cells
from loopscale.analysis.answers.impossible import Impossible, impossible_results
from loopscale.analysis.answers.open_questions import OpenQuestion, best_two, open_questions
from loopscale.analysis.answers.standings import Standing, standings
from loopscale.analysis.axes import CURVES
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.study_laws import Unfitted, study_laws
from loopscale.analysis.results import CellResult, Results

MOST_TASKS = 6
"""The largest number of tasks with sentences. The table has the answers of all tasks."""


@dataclass(frozen=True)
class Findings:
    """The findings of a study.

    Attributes
    ----------
    answers
        The best configuration of each cell, in the study's order.
    standings
        Every cell beside every classical algorithm of its task.
    laws, unfitted
        The fitted laws, and the laws that could not be fitted.
    impossible
        Results below the least possible error: bugs, or answers that leak into the prompts.
    open
        The open questions, with the replicates or values that would decide them.
    """

    results: Results
    answers: Sequence[Best]
    standings: Sequence[Standing]
    laws: Sequence[Law]
    unfitted: Sequence[Unfitted]
    impossible: Sequence[Impossible]
    open: Sequence[OpenQuestion]

    @cached_property
    def sentences(self) -> list[str]:
        """The answer in words."""
        return list(_sentences(self))


def study_findings(results: Results) -> Findings:
    """The findings of a study."""
    answers, rows = best(results), standings(results)
    laws, unfitted = study_laws(results)
    questions = open_questions(results, answers, rows, laws, unfitted)
    return Findings(results, answers, rows, laws, unfitted, impossible_results(results), questions)


def law_sentence(law: Law) -> str:
    """A law, the law of its bound, and the verdict, in words. The law must have a verdict."""
    assert law.verdict
    assert law.predicted is not None
    name = law.along.rpartition(".")[2]
    axis, form = (name, name if law.along in CURVES else f"unit of {name}"), type(law.shape)
    measure = law.of.replace("_", " ").capitalize() + (f" ({law.cell})" if law.cell else "")
    words = {"undecided": "undecided against", "agrees": "agrees with"}
    verdict = f"{words.get(law.verdict.word, f'{law.verdict.word} than')} {law.theory}"
    if law.verdict.word == "undecided" or law.verdict.flat:
        verdict += f", because {law.verdict.because}"
    measured, predicted = form.worded(*axis, law.rate, law.low, law.high), form.worded(*axis, law.predicted)
    return f"{measure} {measured}. The bound {law.theory} {predicted}. Verdict: {verdict}."


def _sentences(findings: Findings) -> Iterator[str]:
    tasks = findings.results.tasks
    if not tasks:
        yield "No trial has finished yet, so there is no answer yet."
        return
    verdicts, several = [law_sentence(law) for law in findings.laws if law.verdict], len(tasks) > 1
    if several:  # a law over several tasks comes first: the errors on the tasks are its data
        yield from verdicts
    for task, cells in list(tasks.items())[:MOST_TASKS]:
        yield from _answer(findings, task, cells)
    if len(tasks) > MOST_TASKS:
        yield f"{len(tasks) - MOST_TASKS} more tasks are in the table."
    if not several:
        yield from verdicts
    unfinished = sum(answer.error is None for answer in findings.answers)
    if unfinished:
        yield f"{unfinished} of {len(findings.answers)} cells have no finished trial yet."


def _answer(findings: Findings, task: str, cells: Sequence[CellResult]) -> Iterator[str]:
    """For one task: the best cell, the next cell, and the best cell beside the classical algorithms."""
    alone = len(findings.results.tasks) == 1
    answers = {answer.cell: answer for answer in findings.answers}
    first, *others = best_two(cells)
    lowest = answers[first.key]
    if not others and task:
        yield f"With {task}: error {lowest.words}."
    else:
        cost = ", where predicting nothing costs 1" if alone else ""
        opening = f"With {task}, lowest" if task else "Lowest"
        yield f"{opening} error: {lowest.words} by {first.label or 'the only cell'}{cost}."
    for other in others:
        yield _next_cell(findings.results, first, other)
    rows = [standing for standing in findings.standings if standing.cell == first.key]
    for standing in rows if alone else sorted(rows, key=lambda standing: standing.baseline_error)[:1]:
        yield _standing(standing)


def _next_cell(results: Results, first: CellResult, second: CellResult) -> str:
    compared = compare_cells(results, second, first)
    decided = dict.fromkeys(("less", "more"), "the difference is decided")
    verdict = (decided | {"undecided": "undecided which is better"}).get(compared.word, "no verdict")
    return f"Next is {second.label} with {compared.span} times the error of {first.label}: {verdict}."


def _standing(standing: Standing) -> str:
    after = f"after {standing.loop} step{'s' * (standing.loop != 1)}"
    if standing.exact:
        return f"The error of {standing.baseline} {after} is rounding, {number(standing.baseline_error)}."
    interval = f" (95 % interval {number(standing.low)} to {number(standing.high)})" if standing.low else ""
    algorithm = f"the error of {standing.baseline} {after}, {number(standing.baseline_error)}"
    return f"That is {number(standing.ratio)} times{interval} {algorithm}."
