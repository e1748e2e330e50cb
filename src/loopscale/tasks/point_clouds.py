"""Tasks whose prompt is a cloud of points: random points, or rows of real tables."""

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.tasks.base import GradedTask
from loopscale.tasks.tables import TABLE_NAMES


class PointCloud(GradedTask):
    """N = `points` points with d = `dim` coordinates. Every query sees all points. The prompt contains no target."""

    data: str | tuple[str, ...] = "gaussian"
    """gaussian: random points. Or names of tables: a prompt has rows of one table, randomly projected to d
    coordinates and standardised. Settings of the distribution do not apply to tables."""
    standardised: bool = False
    """Whether every prompt is scaled to mean 0 and mean square 1. Prompts of tables always are."""

    @model_validator(mode="after")
    def _tables_are_there(self) -> "PointCloud":
        if self.data == () or not set(self.tables) <= set(TABLE_NAMES):
            raise ValueError(
                f"data names no table; write gaussian, or one or a list of {', '.join(TABLE_NAMES)}"
            )
        return self

    @property
    @override
    def tables(self) -> tuple[str, ...]:
        if self.data == "gaussian":
            return ()
        return (self.data,) if isinstance(self.data, str) else self.data

    @property
    def centred(self) -> bool:
        """Whether every prompt has mean 0 and mean square 1."""
        return self.standardised or bool(self.tables)

    @property
    @override
    def whole(self) -> bool:
        return True

    @property
    @override
    def noise_variance(self) -> float:
        """0, so `excess` equals the error. The unpredictable part of these targets has no formula here."""
        return 0.0


def mean_and_size(
    xs: Float[Tensor, "batch points dim"],
) -> tuple[Float[Tensor, "batch 1 dim"], Float[Tensor, "batch 1 1"]]:
    """The mean of the points, and the root mean square of a centred coordinate (1 if all points are equal)."""
    mean = xs.mean(1, keepdim=True)
    size = (xs - mean).square().mean((1, 2), keepdim=True).sqrt()
    return mean, torch.where(size > 0, size, 1)
