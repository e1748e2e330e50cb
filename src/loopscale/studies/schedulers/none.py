"""All trials train to the end."""

from collections.abc import Mapping, Sequence

from loopscale.studies.schedulers.base import RungErrors, Scheduler


class NoScheduler(Scheduler, kind="none"):
    """The default."""

    prunes = False

    def ladder(self, number: int, steps: int) -> tuple[int, ...]:
        return ()

    def survives(self, number: int, rung: int, rungs: Mapping[int, RungErrors]) -> bool:
        return True

    def survives_rank(self, earlier: Sequence[int], rank: int) -> bool:
        return True
