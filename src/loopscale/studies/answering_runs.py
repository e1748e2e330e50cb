"""The trials that answer for a cell: one rule for the driver, which predicts, and for the analysis, which reports."""

from collections.abc import Callable, Sequence
from typing import TypeVar

AnyRun = TypeVar("AnyRun")


def answering_runs(
    replicates: Sequence[AnyRun],
    tuned: Sequence[AnyRun],
    point: Callable[[AnyRun], object],
    error: Callable[[AnyRun], float],
) -> tuple[AnyRun, ...]:
    """The finished replicates of one point, else the best tuning trial.

    If a study was extended and its best point changed, there are replicates of several points. The point with most
    finished replicates answers. If two points have equally many, the later point answers.

    Parameters
    ----------
    replicates, tuned
        The finished trials of each role, in the order of their numbers.
    point
        The identity of a trial's settings without the seed.
    """
    if not replicates:
        return (min(tuned, key=error),) if tuned else ()
    points = [point(run) for run in replicates]
    most = max(points.count(each) for each in points)
    answering = next(each for each in reversed(points) if points.count(each) == most)
    return tuple(run for run, each in zip(replicates, points, strict=True) if each == answering)
