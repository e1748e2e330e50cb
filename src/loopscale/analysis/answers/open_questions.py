"""What would decide what is open: how many replicates or values more, computed from the noise that was seen."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from loopscale.analysis.answers.best import Best, Standing, replicate_noise
from loopscale.analysis.answers.pruning import alike, close_calls
from loopscale.analysis.answers.ranges import AtEnd, at_ends
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.study_laws import CURVES, Unfitted
from loopscale.analysis.laws.verdict import MOST
from loopscale.analysis.tables import StudyTable, answers, by_task, finished, numbers
from loopscale.stats.intervals import PooledVariance, student

MOST_STANDINGS = 12
"""Open comparisons with algorithms that are listed; the table of standings has them all."""


@dataclass(frozen=True)
class Needed:
    """What one open question would take. `None` where that would not decide it, or cannot be said."""

    what: str
    because: str
    replicates: int | None
    """Of every cell concerned, in all."""
    values: int | None
    """On the axis, in all."""
    more_trials: int | None
    """Trainings that the replicates add."""
    seconds: float | None
    flops: float | None
    """What these would cost, at what the finished replicates (else tuning trials) took on average."""


def needed(
    study: StudyTable,
    trials: pd.DataFrame,
    history: pd.DataFrame,
    found: Sequence[Best],
    standings: Sequence[Standing],
    laws: Sequence[Law],
    missing: Sequence[Unfitted],
) -> list[Needed]:
    """All that is open: of every task the best two cells if they overlap, and cells level with an algorithm; close
    calls of pruning, and ranges whose end was best; undecided verdicts, and laws that could not be fitted.
    """
    noise, groups = replicate_noise(study, trials), sum(one.replicates > 0 for one in found)
    tasks = ([one for one in found if one.cell in cells] for cells in by_task(study, trials).values())
    return [
        *(one for here in tasks for one in _cells(trials, here, noise, groups)),
        *_standings(trials, standings, noise, groups),
        *_pruned(trials, history, noise),
        *(_beyond(one) for one in at_ends(study, found)),
        *(_law(trials, one) for one in laws if one.verdict and one.verdict.word == "undecided"),
        *(_unfitted(one) for one in missing),
    ]


def _law(trials: pd.DataFrame, law: Law) -> Needed:
    """Along a curve a replicate is one run, along a setting one at every value."""
    verdict = law.verdict
    assert verdict
    where = f" ({law.cell})" if law.cell else ""
    places = 1 if law.along in CURVES else len(law.x)
    replicates = verdict.replicates
    more = None if replicates is None else places * max(0, replicates - min(law.runs))
    what = f"Whether {law.of} along {law.along}{where} falls as {law.theory} says"
    return _priced(trials, what, verdict.because, replicates, verdict.values, more)


def _unfitted(one: Unfitted) -> Needed:
    where = f" ({one.cell})" if one.cell else ""
    return Needed(f"A law of {one.of} along {one.along}{where}", one.because, None, None, None, None, None)


def _cells(
    trials: pd.DataFrame, here: Sequence[Best], spread: PooledVariance | None, groups: int
) -> Iterator[Needed]:
    """How many replicates would tell the best two of these cells apart, were their means and noise what they seem now.

    The interval of the difference of two mean log errors of n runs each has half width t sqrt(2 s² / n), with
    the noise s² pooled over all `groups` of replicates.
    """
    known = sorted((one for one in here if one.error is not None), key=lambda one: one.error or 0.0)[:2]
    if len(known) < 2:
        return
    first, second = known
    what = f"Whether {first.label} is better than {second.label}"
    both = [answers(trials, one.cell) for one in known]
    if spread is None or not all(replicated for _, replicated in both):
        runs = min(one.replicates for one in known)
        because = "fewer than two replicates say nothing of the noise; at least 2 of each would"
        yield _priced(trials, what, because, 2, None, 4 - 2 * runs)
        return
    one, other = (np.log(numbers(rows["error"])) for rows, _ in both)
    gap, now = abs(float(other.mean() - one.mean())), min(len(one), len(other))
    noise = math.sqrt(spread.variance)
    if student(spread.freedom) * noise * math.sqrt(1 / len(one) + 1 / len(other)) < gap:
        return
    runs = _first(noise, gap, now, groups)
    because = (
        f"their errors differ by a factor of {math.exp(gap):.3g}, and runs of one cell by {math.exp(noise):.3g}"
        f" (one standard deviation)"
    )
    if runs is None:
        yield Needed(what, f"{because}: over {MOST} replicates of each", None, None, None, None, None)
        return
    yield _priced(trials, what, because, runs, None, 2 * (runs - now))


def _standings(
    trials: pd.DataFrame, standings: Sequence[Standing], spread: PooledVariance | None, groups: int
) -> Iterator[Needed]:
    """How many replicates would tell a cell from an algorithm; of those that could, the nearest to an answer first."""
    level = [(one, abs(math.log(one.ratio))) for one in standings if one.open]
    if spread is None or not level:
        return
    noise = math.sqrt(spread.variance)
    wanted = [
        (runs, one)
        for one, gap in level
        for runs in [_first(noise / math.sqrt(2), gap, one.replicates, groups)]
        if runs is not None
    ]
    for runs, one in sorted(wanted, key=lambda each: each[0])[:MOST_STANDINGS]:
        what = f"Whether {one.label or 'the only cell'} is better than {one.baseline} after {one.loop} steps"
        because = f"{one.ratio:.3g} of its error, {one.low:.3g} to {one.high:.3g}"
        yield _priced(trials, what, because, runs, None, runs - one.replicates)


def _first(noise: float, gap: float, now: int, cells: int) -> int | None:
    """The fewest replicates with which half the interval of a difference is less than the gap; up to so many."""
    return next((n for n in range(now + 1, MOST + 1) if _half(noise, n, cells) < gap), None)


def _pruned(trials: pd.DataFrame, history: pd.DataFrame, noise: PooledVariance | None) -> Iterator[Needed]:
    """What was ended on a plateau could have come out best, and then the answer of its cell is too high."""
    calls = close_calls(trials, history, noise)
    if noise is None or not calls:
        return
    cells, nearest = len({one.label for one in calls}), min(calls, key=lambda one: one.ratio)
    where = f"of {nearest.label or 'the only cell'}" if cells == 1 else f"in any of {cells} cells"
    because = (
        f"{len(calls)} pruned no further behind, at the same step, than two runs of one point differ"
        f" (a factor of {alike(noise):.3g}); the nearest, {nearest.trial}, at step {nearest.step:,} with"
        f" {nearest.ratio:.3g} times the error of the best. A new store, and no `scheduler` or a later"
        " `first_rung`, would tell"
    )
    yield _priced(trials, f"Whether pruning ended the best point {where}", because, None, None, len(calls))


def _beyond(one: AtEnd) -> Needed:
    """How many trials a wider range takes is for whoever widens it."""
    cells = "1 cell" if len(one.labels) == 1 else f"{len(one.labels)} cells"
    beyond = "below" if one.side == "lowest" else "above"
    return Needed(
        f"Whether a {one.path} {beyond} {one.end:g} is better for {cells}",
        f"{one}; a wider range under `nuisance`, and trials to try it, would tell: those there are still count",
        None,
        None,
        None,
        None,
        None,
    )


def _half(noise: float, runs: int, cells: int) -> float:
    return student(max(cells * (runs - 1), 1)) * noise * math.sqrt(2 / runs)


def _priced(
    trials: pd.DataFrame,
    what: str,
    because: str,
    replicates: int | None,
    values: int | None,
    more: int | None,
) -> Needed:
    done = finished(trials, "replicate")
    done = done if len(done) else finished(trials, "tuning")
    seconds, flops = (_mean(done, name) for name in ("seconds", "flops"))
    each = (None, None) if more is None else (seconds and more * seconds, flops and more * flops)
    return Needed(what, because, replicates, values, more, *each)


def _mean(rows: pd.DataFrame, name: str) -> float | None:
    values = numbers(rows[name])
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None
