"""Open questions of a study, and the replicates or values that would decide them, with their cost."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from loopscale.analysis.answers.best import Best
from loopscale.analysis.answers.comparisons import Comparison, compare_cells
from loopscale.analysis.answers.search_limits import AtEnd, cells_at_ends, close_calls, run_factor
from loopscale.analysis.answers.standings import Standing
from loopscale.analysis.axes import CURVES
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.study_laws import Unfitted
from loopscale.analysis.results import CellResult, Results, mean
from loopscale.analysis.table import Column
from loopscale.stats.intervals import PooledVariance, pool

MOST_STANDINGS = 12
"""The largest number of listed comparisons with algorithms. The table of standings has all of them."""


@dataclass(frozen=True)
class OpenQuestion:
    """An open question, and what would decide it.

    Attributes
    ----------
    what, because
        The question, and why it is open.
    replicates
        The total number of replicates of each cell that would decide; None if replicates would not.
    values
        The total number of values on the axis that would decide; None if more values would not.
    more_trials
        The trainings that these replicates add.
    seconds, flops
        The cost of these trainings, at the mean cost of finished replicates or, without any, of tuning trials.
    """

    what: str
    because: str
    replicates: int | None = None
    values: int | None = None
    more_trials: int | None = None
    seconds: float | None = None
    flops: float | None = None


COLUMNS: list[Column[OpenQuestion]] = [
    Column.attribute("what", "open"),
    Column.attribute("because"),
    Column.attribute("replicates"),
    Column.attribute("values", "or values"),
    Column.attribute("more_trials", "trials to add"),
    Column.attribute("seconds", "training", "s"),
    Column.attribute("flops", "FLOPs"),
]


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
) -> list[OpenQuestion]:
    """All open questions of a study.

    - The best two cells of every task, if undecided.
    - Cells against algorithms, if undecided.
    - Trials that were pruned close to the best trial.
    - Tuned ranges whose end was best.
    - Laws whose verdict is undecided, and laws that could not be fitted.
    """
    return [
        *(question for cells in results.tasks.values() for question in _best_two_cells(results, cells)),
        *_cells_against_algorithms(results, standings),
        *_close_calls(results),
        *(_beyond_range(end) for end in cells_at_ends(results, answers)),
        *(_undecided_law(results, law) for law in laws if law.verdict and law.verdict.word == "undecided"),
        *(_unfitted_law(law) for law in unfitted),
    ]


def best_two(cells: Sequence[CellResult]) -> list[CellResult]:
    """The cells of lowest mean error, at most two, the lowest first."""
    return sorted(cells, key=lambda cell: mean(cell.values_of("error")))[:2]


def _best_two_cells(results: Results, cells: Sequence[CellResult]) -> Iterator[OpenQuestion]:
    best = best_two(cells)
    if len(best) < 2:
        return
    compared = compare_cells(results, best[0], best[1])
    what = f"Whether {best[0].label} is better than {best[1].label}"
    if compared.word == "no interval":
        runs = min(len(cell.runs) if cell.replicated else 0 for cell in best)
        because = f"there is no interval: {compared.why}"
        yield _priced(results, what, because, 2, None, max(0, 4 - 2 * runs))
    elif compared.word == "undecided":
        yield _undecided(results, what, compared, groups=2)


def _cells_against_algorithms(results: Results, standings: Sequence[Standing]) -> Iterator[OpenQuestion]:
    """Undecided comparisons with algorithms. The comparison that needs the fewest replicates comes first."""
    decidable = [
        (compared.replicates, standing)
        for standing in standings
        if not standing.exact
        and (compared := standing.comparison).word == "undecided"
        and compared.replicates
    ]
    for _, standing in sorted(decidable, key=lambda pair: pair[0])[:MOST_STANDINGS]:
        label = standing.label or "the only cell"
        what = f"Whether {label} is better than {standing.baseline} after {standing.loop} steps"
        yield _undecided(results, what, standing.comparison, groups=1)


def _undecided(results: Results, what: str, compared: Comparison, groups: int) -> OpenQuestion:
    because = f"the ratio of their errors is {compared.span}"
    if compared.replicates is None:
        return OpenQuestion(what, f"{because}; more than 1,000 replicates would be needed")
    more_trials = groups * (compared.replicates - compared.seeds)
    return _priced(results, what, because, compared.replicates, None, more_trials)


def _close_calls(results: Results) -> Iterator[OpenQuestion]:
    """A trial that was pruned on a plateau might have become the best. The cell's error is then too high."""
    noise = replicate_noise(results)
    calls = close_calls(results, noise)
    if noise is None or not calls:
        return
    cells, nearest = len({call.label for call in calls}), min(calls, key=lambda call: call.ratio)
    where = f"of {nearest.label or 'the only cell'}" if cells == 1 else f"in any of {cells} cells"
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
    verdict = law.verdict
    assert verdict
    where = f" ({law.cell})" if law.cell else ""
    places = 1 if law.along in CURVES else len(law.x)
    more_trials = None if verdict.replicates is None else places * max(0, verdict.replicates - min(law.runs))
    what = f"Whether {law.of} along {law.along}{where} falls as {law.theory} says"
    return _priced(results, what, verdict.because, verdict.replicates, verdict.values, more_trials)


def _unfitted_law(law: Unfitted) -> OpenQuestion:
    where = f" ({law.cell})" if law.cell else ""
    return OpenQuestion(f"A law of {law.of} along {law.along}{where}", law.because)


def _priced(
    results: Results,
    what: str,
    because: str,
    replicates: int | None,
    values: int | None,
    more_trials: int | None,
) -> OpenQuestion:
    """An open question with the cost of `more_trials`."""
    finished = [trial for trial in results.trained if trial.finished]
    priced = [trial for trial in finished if trial.role == "replicate"] or finished
    costs = [
        mean(trial[name] for trial in priced if math.isfinite(trial[name])) for name in ("seconds", "flops")
    ]
    seconds, flops = (
        more_trials * cost if more_trials is not None and math.isfinite(cost) else None for cost in costs
    )
    return OpenQuestion(what, because, replicates, values, more_trials, seconds, flops)
