"""What tasks share whose prompt is a cloud of points: drawn anew for every prompt, or rows of real tables."""

from pydantic import model_validator
from typing_extensions import override

from loopscale.tasks.graded import GradedTask
from loopscale.tasks.tables import TABLES


class PointCloud(GradedTask):
    """N = `points` points of d = `dim` coordinates, seen by every query; no target stands in the prompt."""

    data: str | tuple[str, ...] = "gaussian"
    """Gaussian points, of the settings below; or tables, of which a prompt is rows of one, under a random projection
    to d coordinates, standardised. Of tables, the settings that describe a distribution are not asked.
    """
    standardised: bool = False
    """Whether every prompt is centred and has mean square 1, as those of tables always are."""

    @model_validator(mode="after")
    def _tables_are_there(self) -> "PointCloud":
        if self.data == () or not set(self.tables) <= set(TABLES):
            raise ValueError(f"data names no table; write gaussian, or one or a list of {', '.join(TABLES)}")
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
        """0: `excess` is then the error itself. What nobody can know of these points is no setting, but a bound."""
        return 0.0
