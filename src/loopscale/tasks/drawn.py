"""A task from a function that draws pairs (x, y).

def signs(rng, batch: int, dim: int = 5, points: int = 10):
    xs = torch.randn(batch, points, dim, generator=rng)
    w = torch.randint(0, 2, (batch, dim, 1), generator=rng) * 2.0 - 1
    return xs, (xs @ w).squeeze(-1)

task_from(signs)    # the task `signs`, with the settings `dim` and `points`
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Float
from pydantic import Field, create_model
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.argument_settings import argument_settings
from loopscale.core.member_faults import snake_case
from loopscale.core.plugins import UnusableMember, calling_module, function_error
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule, Task
from loopscale.tasks.regression import LARGEST_NOISE, Regression, RegressionTask, pose

DEFAULT_SIZES = {"dim": 20, "points": 40}
CHUNKS, CHUNK = 8, 4096
"""Prompts from which the mean and the mean square of a target are estimated."""
CHANCE_ERRORS = 5.0
"""Standard errors. A difference that is not larger counts as chance."""


def task_from(
    draw: Callable[..., tuple[Tensor, Tensor]], *, kind: str = "", floor: FloorRule | None = None
) -> type[Task]:
    """Make a task of a function that draws pairs. A file that a study names under `plugins` calls this function.

    The arguments of the function after the first two are the settings of the task, with their annotations and defaults.

    Parameters
    ----------
    draw
        A function `(rng, batch, dim, points, ...)`, which draws every number from the generator `rng`. The function
        returns x [batch, points, dim] and y [batch, points]. An argument `noise` is σ, the standard deviation of
        independent noise in y.
    kind
        The name of the task in a study. By default the name of the function in small letters.
    floor
        How the least error is known. By default ridge regression is the best known algorithm.

    Returns
    -------
    type[Task]
        The task, in both formats. The task belongs to the module that calls `task_from`. Its scale of errors is an
        estimate from 32,768 prompts.

    Raises
    ------
    UnusableMember
        An argument cannot be a setting, or `dim` or `points` is missing. In a plugin the error is one line, with the
        place of the function.
    KindTaken
        Another task has this kind.
    """
    if not isinstance(draw, FunctionType):
        what = f"{getattr(draw, '__name__', repr(draw))} is no function of Python"
        raise UnusableMember(what, "write def my_task(rng, batch, dim: int = 5, points: int = 10)")
    name, code = draw.__name__, draw.__code__
    names = code.co_varnames[: code.co_argcount]
    if not set(names[2:]) >= DEFAULT_SIZES.keys():
        what = f"{name} takes ({', '.join(names)}), and the task gives rng, batch, dim and points"
        raise UnusableMember(what, f"write def {name}(rng, batch, dim: int = 5, points: int = 10)", code)
    fields = argument_settings(draw, name, 2, DrawnTask, DEFAULT_SIZES)
    if "noise" in fields:
        default = fields["noise"][1].default
        text = "σ, the standard deviation of the noise in y."
        fields["noise"] = float, Field(default, ge=0, le=LARGEST_NOISE, description=text)
    made = create_model(
        "".join(part.capitalize() for part in name.split("_")),
        __base__=DrawnTask,
        __module__=calling_module(),
        __doc__=draw.__doc__ or f"Pairs from the function {name}.",
        __cls_kwargs__={"kind": kind or snake_case(name), "allow_inf_nan": False},
        **fields,
    )
    made.draws = (draw,)
    made.rule = floor or FloorRule("reference", {"kind": "ridge"})
    return made


@dataclass(frozen=True)
class Moments:
    """The estimated mean and mean square of the targets without noise, at every query."""

    mean: Float[Tensor, " points"]
    """Zeros if the estimates are near 0."""
    square: Float[Tensor, " points"]
    """Equal numbers if the estimates are near each other."""


class DrawnTask(RegressionTask):
    """A task whose pairs come from one function."""

    draws: ClassVar[tuple[FunctionType]]
    """The function, in a tuple because a function in a class is a method."""
    rule: ClassVar[FloorRule]
    """How the least error is known."""

    @property
    @override
    def noise_variance(self) -> float:
        return float(getattr(self, "noise", 0.0)) ** 2

    @property
    @override
    def variance(self) -> float:
        squares = self._moments.square[self._queries]
        return float(squares.double().mean()) + self.noise_variance

    @property
    @override
    def variances(self) -> float | Float[Tensor, " points"]:
        squares = self._moments.square[self._queries]
        return self.variance if bool((squares == squares[0]).all()) else squares + self.noise_variance

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return self.rule

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points 1"]:
        return self._moments.mean[self._queries, None].clone()

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs, ys = self.pairs(batch_size, rng)
        xs = pad(xs, (0, self.dim - self.at_work))
        weight_variance = float(self._moments.square.mean()) / self.at_work
        return pose(Regression(xs, ys, self.noise_variance, weight_variance), self.format)

    def pairs(
        self, batch_size: int, rng: torch.Generator, **changed: float
    ) -> tuple[Float[Tensor, "batch points active"], Float[Tensor, "batch points"]]:
        """The numbers of the function, with `active` coordinates under a curriculum.

        Parameters
        ----------
        changed
            Settings with other values.

        Raises
        ------
        PluginError
            The function returns no two tensors of these shapes and of float32.
        """
        draw = self.draws[0]
        names = type(self).model_fields.keys() - {"format", "active"}
        settings: dict[str, Any] = {name: getattr(self, name) for name in names} | {"dim": self.at_work}
        found = cast(Any, draw(rng, batch_size, **settings | changed))
        shapes = (batch_size, self.points, self.at_work), (batch_size, self.points)
        if not (isinstance(found, tuple | list) and len(cast("list[Any]", found)) == 2):
            raise function_error(draw, f"returns {type(found).__name__}, not two tensors x and y")
        for name, part, shape in zip("xy", cast("list[Any]", found), shapes, strict=True):
            if not isinstance(part, Tensor):
                raise function_error(draw, f"returns {type(part).__name__} for {name}, not a tensor")
            if part.shape != shape or part.dtype != torch.float32:
                kind = f"{tuple(part.shape)} and {part.dtype}"
                raise function_error(draw, f"returns {name} of {kind}, not {shape} and torch.float32")
        return found[0], found[1]

    @property
    def _queries(self) -> slice:
        """The pairs that are asked for."""
        return slice(self.points - 1, None) if self.whole else slice(None)

    @property
    def _moments(self) -> Moments:
        settings = self.model_copy(update={"format": "decoder"})
        return _estimated(settings.model_dump_json())

    @override
    def __reduce__(self) -> tuple[Callable[..., Task], tuple[dict[str, Any]]]:
        """By kind and settings, because no name of its module has this class."""
        return Task.model_validate, (self.model_dump(),)


@lru_cache(maxsize=64)
def _estimated(task: str) -> Moments:
    """The moments of a drawn task, given its settings as JSON. Raises PluginError."""
    posed = Task.model_validate_json(task)
    assert isinstance(posed, DrawnTask)
    _require_own_generator(posed)
    quiet = {"noise": 0.0} if "noise" in type(posed).model_fields else {}
    sums = torch.zeros(3, posed.points, dtype=torch.float64)
    for chunk in range(CHUNKS):
        ys = posed.pairs(CHUNK, stream("moments", chunk), **quiet)[1].double()
        sums += torch.stack([ys.sum(0), ys.square().sum(0), ys.pow(4).sum(0)])
    prompts = CHUNKS * CHUNK
    mean, square, fourth = sums / prompts
    if not (square > 0).all():
        raise function_error(
            posed.draws[0], "returns y of 0 in every prompt, which leaves nothing to predict"
        )
    mean_error = ((square - mean.square()).clamp(min=0) / prompts).sqrt()
    square_error = ((fourth - square.square()).clamp(min=0) / prompts).sqrt()
    if (mean.abs() <= CHANCE_ERRORS * mean_error).all():
        mean = torch.zeros_like(mean)
    if ((square - square.mean()).abs() <= CHANCE_ERRORS * square_error + 1e-9 * square.mean()).all():
        square = square.mean().expand_as(square)
    return Moments(mean.float(), square.float())


def _require_own_generator(task: DrawnTask) -> None:
    """Raises PluginError unless `rng` alone determines the pairs."""
    with torch.random.fork_rng(devices=()):
        drawn = list[Tensor]()
        for seed, path in enumerate(("first", "first", "second")):
            torch.default_generator.manual_seed(seed)
            drawn.append(torch.cat([part.flatten() for part in task.pairs(2, stream("generator", path))]))
    if not torch.equal(drawn[0], drawn[1]):
        raise function_error(
            task.draws[0], "returns other pairs for the same rng, so some number is not from rng"
        )
    if torch.equal(drawn[0], drawn[2]):
        raise function_error(task.draws[0], "returns the same pairs for every rng")
