"""What a study found, computed once: the report, the end of a run and the notebooks all read it here."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from loopscale.analysis.answers.best import Best, Standing, against, best
from loopscale.analysis.answers.impossible import Impossible, impossible
from loopscale.analysis.answers.open_questions import Needed, needed
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.study_laws import Unfitted, laws
from loopscale.analysis.tables import StudyTable, by_task

MOST_TASKS = 6
"""Of a study of several tasks, each of which has an answer of its own."""


@dataclass(frozen=True)
class Findings:
    """A study's answers, as its records give them."""

    study: StudyTable
    tasks: dict[str, list[str]]
    """The cells of every task, under what sets it apart: errors are compared within one alone."""
    answers: list[Best]
    """One a cell, in the study's order."""
    standings: list[Standing]
    """Every cell beside every classical algorithm of its task."""
    laws: list[Law]
    missing: list[Unfitted]
    """Laws that the study asks for and that too little has finished for."""
    impossible: list[Impossible]
    """Results below what any predictor can reach: bugs, or leaks."""
    needed: list[Needed]
    """What would decide each thing that is open."""

    @cached_property
    def sentences(self) -> list[str]:
        """The answer in words, as it came out."""
        return list(_sentences(self))


def find(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, history: pd.DataFrame) -> Findings:
    """The findings of a study from its tables, which are those of `loopscale query`, of it alone."""
    answers, standings = best(trials, study), against(trials, curves, study)
    fitted, missing = laws(study, trials, curves)
    return Findings(
        study,
        by_task(study, trials),
        answers,
        standings,
        fitted,
        missing,
        impossible(trials, curves),
        needed(study, trials, history, answers, standings, fitted, missing),
    )


def number(value: float | None) -> str:
    """Three digits."""
    if value is None or value != value:
        return "–"
    return "unbounded" if value in (float("inf"), float("-inf")) else f"{value:.3g}"


def spanned(middle: float | None, low: float | None, high: float | None) -> str:
    """A value with its interval, or why it has none."""
    if low is None or high is None:
        return f"{number(middle)} (no interval: fewer than two replicates)"
    return f"{number(middle)} (95 % interval {number(low)} to {number(high)})"


def said(law: Law) -> str:
    """A law's verdict in a sentence; it must have one."""
    assert law.verdict
    where = f" ({law.cell})" if law.cell else ""
    words = {"undecided": "undecided against", "agrees": "agrees with"}
    found = words.get(law.verdict.word, f"{law.verdict.word} than")
    measure = law.of.replace("_", " ").capitalize()
    return f"{measure} along {law.along}{where}: {found} {law.theory}; {law.verdict.because}."


def _sentences(found: Findings) -> Iterator[str]:
    known = sorted((one for one in found.answers if one.error is not None), key=lambda one: one.error or 0.0)
    if not known:
        yield "No trial has finished yet, so there is no answer yet."
        return
    verdicts, several = [said(law) for law in found.laws if law.verdict], len(found.tasks) > 1
    if several:  # a law over them is the answer, and each of their errors a value of it
        yield from verdicts
    for task, cells in list(found.tasks.items())[:MOST_TASKS]:
        yield from _answer(found, task, [one for one in known if one.cell in cells])
    if len(found.tasks) > MOST_TASKS:
        yield f"{len(found.tasks) - MOST_TASKS} more tasks are in the table."
    if not several:
        yield from verdicts
    if len(known) < len(found.answers):
        yield f"{len(found.answers) - len(known)} of {len(found.answers)} cells have no finished trial yet."


def _answer(found: Findings, task: str, known: list[Best]) -> Iterator[str]:
    """Of one task: its best cell, whether the next is told apart, and where the best stands against algorithms."""
    first, alone = known[0], len(found.tasks) == 1
    cost = ", where predicting nothing costs 1" if alone else ""
    if len(known) == 1 and task:
        yield f"With {task}: error {_with_interval(first)}."
    else:
        yield (
            f"{f'With {task}, lowest' if task else 'Lowest'} error: {_with_interval(first)} by"
            f" {first.label or 'the only cell'}{cost}{_rivals(known)}."
        )
    standings = [one for one in found.standings if one.cell == first.cell]
    for standing in standings if alone else sorted(standings, key=lambda one: one.baseline_error)[:1]:
        yield _beside(standing)


def _beside(standing: Standing) -> str:
    after = f"after {standing.loop} step{'s' * (standing.loop != 1)}"
    if standing.exact:
        return f"The error of {standing.baseline} {after} is rounding, {number(standing.baseline_error)}."
    span = f" (95 % interval {number(standing.low)} to {number(standing.high)})" if standing.low else ""
    theirs = f"the error of {standing.baseline} {after}, {number(standing.baseline_error)}"
    return f"That is {number(standing.ratio)} times{span} {theirs}."


def _with_interval(answer: Best) -> str:
    return spanned(answer.error, answer.error_low, answer.error_high)


def _rivals(known: list[Best]) -> str:
    """Whether the next cell is told apart from the first: their intervals, no test, and said so."""
    if len(known) < 2:
        return ""
    first, second = known[:2]
    next_ = f"; next is {second.label} with {_with_interval(second)}"
    if first.error_high is None or second.error_low is None:
        return next_
    apart = second.error_low > first.error_high
    return next_ + ("; their intervals are apart" if apart else "; their intervals overlap")
