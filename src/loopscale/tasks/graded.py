"""What tasks share that a curriculum can make easier: fewer coordinates at work, fewer points in the prompt."""

from pydantic import PositiveInt, model_validator
from typing_extensions import override

from loopscale.tasks.base import Task


class GradedTask(Task):
    """A task of `dim` coordinates and `points` pairs, points or chains; each says what its own are."""

    dim: PositiveInt
    points: PositiveInt
    active: PositiveInt | None = None
    """Coordinates at work, the others being zero; `None` for all. For a curriculum (see `easier`)."""

    @model_validator(mode="after")
    def _active_within_dim(self) -> "GradedTask":
        if self.at_work > self.dim:
            raise ValueError(
                f"active {self.active} is more than the dim {self.dim} coordinates that there are; "
                f"write {self.dim} or less"
            )
        return self

    @property
    def at_work(self) -> int:
        """Coordinates that may be other than zero."""
        return self.active or self.dim

    @override
    def easier(self, dim: int, points: int) -> "GradedTask":
        for name, value, largest in (("dim", dim, self.at_work), ("points", points, self.points)):
            if not 1 <= value <= largest:
                raise ValueError(f"no easier task with {name} {value}; write {name} 1 .. {largest}")
        return type(self).model_validate(self.model_dump() | {"active": dim, "points": points})
