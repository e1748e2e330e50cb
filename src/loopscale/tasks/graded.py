"""Tasks that a curriculum can make easier, with fewer non-zero coordinates and fewer points."""

from pydantic import PositiveInt, model_validator
from typing_extensions import override

from loopscale.tasks.base import Task


class GradedTask(Task):
    """A task with `dim` coordinates and `points` pairs, points or chains."""

    dim: PositiveInt
    points: PositiveInt
    active: PositiveInt | None = None
    """Number of non-zero coordinates; `None` for all. A curriculum sets this number."""

    @model_validator(mode="after")
    def _active_within_dim(self) -> "GradedTask":
        if self.at_work > self.dim:
            raise ValueError(
                f"active {self.active} is more than the dim {self.dim} coordinates; write {self.dim} or less"
            )
        return self

    @property
    def at_work(self) -> int:
        """Number of coordinates that can be non-zero."""
        return self.active or self.dim

    @override
    def easier(self, dim: int, points: int) -> "GradedTask":
        for name, value, largest in (("dim", dim, self.at_work), ("points", points, self.points)):
            if not 1 <= value <= largest:
                raise ValueError(f"there is no easier task with {name} {value}; write {name} 1 .. {largest}")
        return type(self).model_validate(self.model_dump() | {"active": dim, "points": points})
