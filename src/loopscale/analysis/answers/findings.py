"""The findings of a study: answers, laws, impossible results and open questions, with sentences for readers.

An open question comes with the replicates or values that would decide it, and with their cost.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from loopscale.analysis.answers.best_cells import AtEnd, Best, best, cells_at_ends
from loopscale.analysis.answers.claims import JudgedClaim, count_words, judged_claims
from loopscale.analysis.answers.comparisons import Comparison, lowest_first
from loopscale.analysis.answers.impossible import Impossible, impossible_results
from loopscale.analysis.answers.matched_steps import MatchedSteps, matched_steps
from loopscale.analysis.answers.standings import Standing, standings
from loopscale.analysis.laws.held_out import AFTERWARDS, PredictedValue
from loopscale.analysis.laws.law import NO_LAW, Law, Unfitted, study_laws
from loopscale.analysis.laws.words import law_name, measure_name
from loopscale.analysis.recorded.learning import NOT_LEARNT, learnt, on_plateau, study_sentence
from loopscale.analysis.recorded.looks import order_sentences, schedule_of
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult, mean
from loopscale.analysis.table import Column, number
from loopscale.core.titles import bound_name, readable
from loopscale.questions.axes.base import axis_of
from loopscale.stats.contrasts import PooledVariance, pool

MOST_STANDINGS = 12
"""The largest number of listed comparisons with algorithms. The table of standings has all of them."""
MOST_NAMED = 4
"""The largest number of cells that one question names."""
MOST_TASKS = 6
"""The largest number of tasks with sentences. The table has the answers of all tasks."""


@dataclass(frozen=True)
class OpenQuestion:
    """An open question, and what would decide it."""

    what: str
    """The question."""
    because: str
    """The reason why the question is open."""
    replicates: int | None = None
    """The total number of replicates of each cell that would decide; None if replicates would not."""
    values: int | None = None
    """The total number of values on the axis that would decide; None if more values would not."""
    more_trials: int | None = None
    """The trainings that these replicates add."""
    seconds: float | None = None
    """The training time of these trainings, at the mean of finished replicates or, without any, of tuning trials."""
    flops: float | None = None
    """The FLOPs of these trainings, at the same mean."""


QUESTIONS: list[Column[OpenQuestion]] = [
    Column.attribute("what", "open"),
    Column.attribute("because"),
    Column.attribute("replicates"),
    Column.attribute("values", "or values"),
    Column.attribute("more_trials", "trials to add"),
    Column.attribute("seconds", "training", "s"),
    Column.attribute("flops", "FLOPs"),
]


@dataclass(frozen=True)
class CloseCall:
    """A pruned trial that was hardly behind the best trial of its cell."""

    trial: str
    label: str
    step: int
    """The training step at which the trial was pruned."""
    ratio: float
    """The validation error of the trial at that step, divided by the error of the best trial at the same step."""


@dataclass(frozen=True)
class Findings:
    """The findings of a study."""

    results: Results
    answers: Sequence[Best]
    """The best configuration of each cell, in the study's order."""
    standings: Sequence[Standing]
    """Every cell beside every classical algorithm of its task."""
    laws: Sequence[Law]
    """The fitted laws."""
    unfitted: Sequence[Unfitted]
    """The laws that could not be fitted."""
    impossible: Sequence[Impossible]
    """Results below the least possible error: bugs, or answers that leak into the prompts."""
    open: Sequence[OpenQuestion]
    """The open questions, with the replicates or values that would decide them."""
    claims: Sequence[JudgedClaim] = ()
    """The claims of the study's file with their verdicts, as one family."""
    matched: Sequence[MatchedSteps] = ()
    """Every cell beside every iterative algorithm of its task: the steps that match the error of the nets."""

    @cached_property
    def sentences(self) -> list[str]:
        """The answer in words."""
        return list(_sentences(self))


def study_findings(results: Results, judged: tuple[list[Law], list[Unfitted]] | None = None) -> Findings:
    """The findings of a study. `judged` are the laws of `study_laws`, if they are known already."""
    laws, unfitted = judged or study_laws(results)
    answers, rows = best(results), standings(results)
    claims = judged_claims(results)
    questions = open_questions(results, answers, rows, laws, unfitted, claims)
    return Findings(
        results,
        answers,
        rows,
        laws,
        unfitted,
        impossible_results(results),
        questions,
        claims,
        matched_steps(results),
    )


def law_sentence(law: Law) -> str:
    """A law, the law of its bound, and the verdict, in words. The law must have a verdict."""
    assert law.judgement
    name = law.along.rpartition(".")[2]
    axis, form = (name, name if axis_of(law.along).curve else f"unit of {name}"), type(law.shape)
    measure = measure_name(law.of).replace("_", " ").capitalize() + (
        f" ({readable(law.cell)})" if law.cell else ""
    )
    if law.judgement.verdict == NO_LAW or law.predicted is None:
        return f"{measure} along {name}: {law.judgement.verdict}, because {law.judgement.because}."
    words = {"undecided": "undecided against", "agrees": "agrees with"}
    verdict = f"{words.get(law.judgement.verdict, f'{law.judgement.verdict} than')} {bound_name(law.theory)}"
    if law.judgement.verdict == NOT_LEARNT:
        verdict = f"{NOT_LEARNT}: {law.judgement.because}"
    elif law.judgement.verdict == "undecided" or law.judgement.flat:
        verdict += f", because {law.judgement.because}"
    measured, predicted = form.worded(*axis, law.rate, law.low, law.high), form.worded(*axis, law.predicted)
    note = f" ({law.note})" if law.note else ""
    return f"{measure} {measured}. Theory ({bound_name(law.theory)}) {predicted}. Verdict: {verdict}{note}."


def prediction_sentence(law: Law, value: PredictedValue) -> str:
    """A prediction, the result and the score, in words."""
    ends = (value.prediction.low, value.prediction.centre, value.prediction.high)
    low, centre, high = (number(math.exp(end)) for end in ends)
    when = "before its runs started" if value.foretold else AFTERWARDS
    place = f"{law.along.rpartition('.')[2]} {value.at:g}"
    text = f"The law of {law_name(law)} predicted {centre} (95 % interval {low} to {high}) at {place}, {when}"
    if value.score is None:
        return f"{text}. No run there has finished yet."
    word = (
        f"not judged, because {value.prediction.reason}"
        if value.verdict == "not judged"
        else "open, because only an interval is known"
        if value.verdict == "open"
        else f"a {value.merit}"
    )
    scores = f"{value.scores.capitalize()}, the CRPS of log errors; smaller is better."
    return f"{text}. The runs gave {value.came}: {word}. {scores}"


def _sentences(findings: Findings) -> Iterator[str]:
    tasks = findings.results.tasks
    if not tasks:
        yield "No trial has finished yet, so there is no answer yet."
        return
    verdicts = [law_sentence(law) for law in findings.laws if law.judgement]
    verdicts += dict.fromkeys(
        prediction_sentence(law, value) for law in findings.laws for value in law.predictions
    )
    several = len(tasks) > 1
    if several:  # a law over several tasks comes first: the errors on the tasks are its data
        yield from verdicts
    for task, cells in list(tasks.items())[:MOST_TASKS]:
        yield from _answer(findings, task, cells)
    if len(tasks) > MOST_TASKS:
        yield f"{len(tasks) - MOST_TASKS} more tasks are in the table."
    if not several:
        yield from verdicts
    if findings.claims:
        yield f"Claims: {count_words(findings.claims)}."
    if learning := study_sentence(findings.results.learnt):
        yield learning
    yield from order_sentences(findings.results)
    unfinished = sum(answer.error is None for answer in findings.answers)
    if unfinished:
        yield f"{unfinished} of {len(findings.answers)} cells have no finished trial yet."


def _answer(findings: Findings, task: str, cells: Sequence[CellResult]) -> Iterator[str]:
    """For one task: the best cell, the next cell, and the best cell beside the classical algorithms."""
    alone = len(findings.results.tasks) == 1
    answers = {answer.cell: answer for answer in findings.answers}
    first, *others = lowest_first(cells)[:2]
    lowest = answers[first.key]
    if not others and task:
        yield f"With {task}: error {lowest.words}."
    else:
        cost = ", where predicting nothing costs 1" if alone else ""
        opening = f"With {task}, lowest" if task else "Lowest"
        yield f"{opening} error: {lowest.words} by {first.name or 'the only cell'}{cost}."
    for other in others:
        yield _next_cell(first, other, answers[other.key].against_best)
    rows = [standing for standing in findings.standings if standing.cell == first.key]
    for standing in rows if alone else sorted(rows, key=lambda standing: standing.baseline_error)[:1]:
        yield _standing(standing)


def _next_cell(first: CellResult, second: CellResult, compared: Comparison | None) -> str:
    assert compared
    decided = dict.fromkeys(("less", "more"), "the difference is decided")
    others = {
        "undecided": "undecided which is better",
        NOT_LEARNT: f"{NOT_LEARNT}: {compared.plateau}",
        "learns more often": "the next learns more often",
        "learns less often": "the next learns less often",
    }
    verdict = (decided | others).get(compared.verdict, "no verdict")
    if compared.among_learnt and compared.verdict in ("less", "more", "undecided"):
        verdict += " among learnt runs"
    if compared.lost:
        verdict += f" among {compared.family:,} comparisons"
    if compared.ratio is None:
        because = compared.plateau or compared.why or "too little has finished"
        return f"Next is {second.name}. Its error has no ratio to that of {first.name}, because {because}."
    return f"Next is {second.name} with {compared.span} times the error of {first.name}: {verdict}."


def _standing(standing: Standing) -> str:
    after = f"after {standing.loop} step{'s' * (standing.loop != 1)}"
    if standing.exact:
        return f"The error of {standing.algorithm} {after} is rounding, {number(standing.baseline_error)}."
    low, high = standing.comparison.low, standing.comparison.high
    interval = f" (95 % interval {number(low)} to {number(high)})" if low else ""
    algorithm = f"the error of {standing.algorithm} {after}, {number(standing.baseline_error)}"
    if standing.ratio is None:
        return f"There is no ratio to {algorithm}, because {standing.comparison.plateau}."
    verdict = f" ({NOT_LEARNT}: {standing.comparison.plateau})" if standing.verdict == NOT_LEARNT else ""
    return f"That is {number(standing.ratio)} times{interval} {algorithm}{verdict}."


def replicate_noise(results: Results) -> PooledVariance | None:
    """The variance of the logarithm of a replicate's error, pooled over cells; None if no cell has two replicates."""
    logs = [np.log(cell.values_of("error")) for cell in results.cells if cell.replicated]
    return pool([log for log in logs if np.isfinite(log).all()])


def open_questions(
    results: Results,
    answers: Sequence[Best],
    standings: Sequence[Standing],
    laws: Sequence[Law],
    unfitted: Sequence[Unfitted],
    claims: Sequence[JudgedClaim] = (),
) -> list[OpenQuestion]:
    """All open questions of a study.

    - Claims whose verdict is undecided. The claim that needs the fewest replicates comes first.
    - The best two cells of every task, if undecided.
    - Cells against algorithms, if undecided.
    - Trials that were pruned close to the best trial.
    - Tuned ranges whose end was best.
    - Laws whose verdict is undecided, and laws that could not be fitted.
    - Cells with runs on the plateau.

    The verdicts are those of the tables, so the corrections of the tables hold here too.
    """
    compared = {answer.cell: answer.against_best for answer in answers if answer.against_best}
    return [
        *_unlearnt(results),
        *_undecided_claims(results, claims),
        *(
            question
            for cells in results.tasks.values()
            for question in _best_two_cells(results, cells, compared)
        ),
        *_cells_against_algorithms(results, standings),
        *_close_calls(results),
        *(_beyond_range(end) for end in cells_at_ends(results, answers)),
        *(
            _undecided_law(results, law)
            for law in laws
            if law.judgement and law.judgement.verdict == "undecided"
        ),
        *(OpenQuestion(f"A law of {law_name(law)}", law.because) for law in unfitted),
    ]


def _undecided_claims(results: Results, claims: Sequence[JudgedClaim]) -> list[OpenQuestion]:
    undecided = [claim for claim in claims if claim.verdict == "undecided"]
    fewest_first = sorted(undecided, key=lambda claim: claim.replicates or math.inf)
    return [claim_question(results, claim) for claim in fewest_first]


def claim_question(results: Results, claim: JudgedClaim) -> OpenQuestion:
    """An undecided claim with the cost of deciding it."""
    because = ("the ratio is " if claim.sides.ratio is not None else "there is ") + claim.ratio_in_words
    if claim.family > 1:
        because += f", as one of {claim.family} claims"
    more_trials = claim.more_trials
    if claim.futile and claim.decision:
        because += f". {claim.decision.why_futile}"
        more_trials = round(claim.decision.needed) if math.isfinite(claim.decision.needed) else None
    elif claim.sides.contrast and claim.replicates is None:
        because += "; more than 1,000 replicates would be needed"
    counted = learnt(claim.sides.runs)
    if counted.falling:
        because += (
            f". {counted.falling} of {counted.of} runs are still falling, so longer training may decide"
        )
    return _priced(results, f"Claim: {claim.text}", because, claim.replicates, None, more_trials)


def _unlearnt(results: Results) -> Iterator[OpenQuestion]:
    """The runs on the plateau: until they have left it, no verdict describes nets that have learnt."""
    cells = [cell for cell in results.answered if on_plateau(cell.runs)]
    if cells:
        named = ", ".join(cell.name or "the only cell" for cell in cells[:MOST_NAMED])
        more = f" and {len(cells) - MOST_NAMED} more cells" if len(cells) > MOST_NAMED else ""
        because = f"{results.learnt.words}. To decide, train longer or tune the rate on more than one seed"
        yield OpenQuestion(f"What nets of {named}{more} do after they have learnt", because)


def _best_two_cells(
    results: Results, cells: Sequence[CellResult], against_best: Mapping[str, Comparison]
) -> Iterator[OpenQuestion]:
    first, *others = lowest_first(cells)[:2]
    if not others:
        return
    compared = against_best[others[0].key].reversed
    what = f"Whether {first.name} is better than {others[0].name}"
    if compared.verdict == "no interval":
        runs = min(len(cell.runs) if cell.replicated else 0 for cell in (first, *others))
        schedule = schedule_of(results)
        least = schedule.seeds[0] if schedule else 2
        because = f"there is no interval: {compared.why}"
        yield _priced(results, what, because, least, None, max(0, 2 * (least - runs)))
    elif compared.verdict == "undecided":
        yield _undecided(results, what, compared, groups=2)


def _cells_against_algorithms(results: Results, standings: Sequence[Standing]) -> Iterator[OpenQuestion]:
    """Undecided comparisons with algorithms. The comparison that needs the fewest replicates comes first."""
    undecided = [standing for standing in standings if standing.verdict == "undecided"]
    decidable = [standing for standing in undecided if standing.comparison.replicates]
    fewest_first = sorted(decidable, key=lambda standing: standing.comparison.replicates or 0)
    for standing in fewest_first[:MOST_STANDINGS]:
        name = readable(standing.label) or "the only cell"
        what = f"Whether {name} is better than {standing.algorithm} after {standing.loop} steps"
        yield _undecided(results, what, standing.comparison, groups=1)


def _undecided(results: Results, what: str, compared: Comparison, groups: int) -> OpenQuestion:
    because = f"the ratio of their errors is {compared.span}"
    if compared.family > 1:
        because += f", as one of {compared.family:,} comparisons"
    if compared.replicates is None:
        return OpenQuestion(what, f"{because}; more than 1,000 replicates would be needed")
    more_trials = groups * (compared.replicates - compared.seeds)
    return _priced(results, what, because, compared.replicates, None, more_trials)


def _close_calls(results: Results) -> Iterator[OpenQuestion]:
    """A trial that was pruned on a plateau, where all points look alike, might have become the best.

    The cell's error is then too high.
    """
    noise = replicate_noise(results)
    calls = close_calls(results, noise)
    if noise is None or not calls:
        return
    cells, nearest = len({call.label for call in calls}), min(calls, key=lambda call: call.ratio)
    where = f"of {readable(nearest.label) or 'the only cell'}" if cells == 1 else f"in any of {cells} cells"
    because = (
        f"{len(calls)} trials were pruned less far behind the best trial than two runs of one point differ (a factor"
        f" of {run_factor(noise):.3g}). The nearest, {nearest.trial}, had {nearest.ratio:.3g} times its error at step"
        f" {nearest.step:,}. To decide, run without `scheduler` or with a later `first_rung`, in a new store"
    )
    yield _priced(results, f"Whether pruning ended the best point {where}", because, None, None, len(calls))


def _beyond_range(end: AtEnd) -> OpenQuestion:
    cells = "1 cell" if len(end.labels) == 1 else f"{len(end.labels)} cells"
    beyond = "below" if end.side == "lowest" else "above"
    return OpenQuestion(
        f"Whether a {end.path} {beyond} {end.end:g} is better for {cells}",
        f"{end}. To decide, widen the range under `nuisance` and run again. The finished trials still count",
    )


def _undecided_law(results: Results, law: Law) -> OpenQuestion:
    """Along a curve, a replicate is one run. Along a setting, a replicate is one run at every value."""
    judgement = law.judgement
    assert judgement
    places = 1 if axis_of(law.along).curve else len(law.x)
    more_trials = (
        None if judgement.replicates is None else places * max(0, judgement.replicates - min(law.runs))
    )
    what = f"Whether {law_name(law)} falls as {bound_name(law.theory)} says"
    return _priced(results, what, judgement.because, judgement.replicates, judgement.values, more_trials)


def _priced(
    results: Results,
    what: str,
    because: str,
    replicates: int | None,
    values: int | None,
    more_trials: int | None,
) -> OpenQuestion:
    """An open question with the cost of `more_trials`."""
    if more_trials is None:
        return OpenQuestion(what, because, replicates, values)
    finished = [trial for trial in results.trained if trial.finished]
    priced = [trial for trial in finished if trial.role == "replicate"] or finished
    costs = [
        mean(trial[name] for trial in priced if math.isfinite(trial[name])) for name in ("seconds", "flops")
    ]
    seconds, flops = (more_trials * cost if math.isfinite(cost) else None for cost in costs)
    return OpenQuestion(what, because, replicates, values, more_trials, seconds, flops)


def run_factor(noise: PooledVariance) -> float:
    """The typical factor between two runs of one point: one standard deviation of their log ratio."""
    return math.exp(math.sqrt(2 * noise.variance))


def close_calls(results: Results, noise: PooledVariance | None) -> list[CloseCall]:
    """Pruned trials that were less far behind the best trial than two runs of one point differ, sorted by cell.

    Parameters
    ----------
    noise
        The noise of replicates at the end of training, pooled over cells. Without it the list is empty.
    """
    if noise is None:
        return []
    calls = [
        CloseCall(trial.trial, cell.label, trial.step, ratio)
        for cell in results.cells
        for trial in cell.tuning
        if trial.outcome == "pruned" and trial.step is not None
        if (ratio := _behind(cell, trial, trial.step)) < run_factor(noise)
    ]
    return sorted(calls, key=lambda call: call.label)


def _behind(cell: CellResult, pruned: TrialResult, step: int) -> float:
    """The error of a pruned trial over that of the best trial; infinite if one was not measured at that step."""
    finished = [trial for trial in cell.tuning if trial.finished]
    if not finished:
        return math.inf
    best = min(finished, key=lambda trial: trial["error"])
    errors = [dict(zip(*trial.history(), strict=True)).get(step, math.nan) for trial in (pruned, best)]
    return errors[0] / errors[1] if errors[0] > 0 and errors[1] > 0 else math.inf
