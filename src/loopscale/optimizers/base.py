"""The base classes of optimizers. An optimizer is a config that updates the weights of a net after every step.

Only calls of the optimizer see a stand-in for torch's compiler, so that a net may be compiled. The import of the
compiler takes half a second of processor time at a worker's start.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, Self, overload

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from loopscale.core.cheap_imports import without_compiler
from loopscale.core.config import Family, is_tree

Share = Annotated[float, Field(ge=0, lt=1)]
"""A factor of a running mean. At 1 the mean would never move."""
NotNegative = Annotated[float, Field(ge=0)]
RATIO = "ratio"
"""The key of a group of weights for its rate over the rate of the training. A group without the key has the ratio 1."""


class HasWeights(Protocol):
    """A net, as an optimizer sees it."""

    def parameters(self) -> Iterator[torch.nn.Parameter]: ...

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]: ...

    def hidden_matrices(self) -> set[str]:
        """The names of the matrices from hidden states to hidden states."""
        ...


class Updater(Protocol):
    """What training needs of an optimizer of torch."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...

    @property
    def state(self) -> Mapping[Any, dict[str, Any]]: ...

    def zero_grad(self) -> None: ...

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class Optimizer(Family, package="loopscale.optimizers"):
    """How the gradient of a step changes the weights."""

    default_kind: ClassVar[str] = "adam"
    capturable: ClassVar[bool] = True
    """Whether a CUDA graph can hold the update: it reads its rate from a tensor, and never waits for the GPU."""

    @abstractmethod
    def build(self, net: HasWeights, lr: float) -> Updater:
        """The optimizer of a net's weights, in the order of `net.parameters()`, at the rate `lr`.

        Training sets `lr` in all groups of weights before every step, times the group's `ratio`.
        """

    def assignment(self, net: HasWeights) -> dict[str, str]:
        """The rule that updates each weight, by the weight's name. An optimizer of one rule names its kind."""
        return dict.fromkeys((name for name, _ in net.named_parameters()), self.kind)

    @abstractmethod
    def moments(self, rule: str) -> int:
        """The number of tensors that a rule of `assignment` keeps for a weight, each of the weight's shape."""

    def update_flops(self, rule: str, shape: Sequence[int]) -> int:
        """FLOPs of the matrix products in the update of a weight. Other operations are not counted."""
        return 0

    def update_calls(self, rule: str) -> int:
        """Operations that torch starts for the update of one weight; 0 for a rule that updates all weights at once."""
        return 0

    def priced(self) -> Self:
        """The optimizer with a step of the same price, shared by optimizers that differ in real numbers only.

        An optimizer overrides this method if some of its real numbers change the price.
        """
        fields = type(self).model_fields
        try:
            return type(self)(
                **{name: value for name, value in self if not isinstance(fields[name].default, float)}
            )
        except ValueError:  # the other settings do not go with these defaults
            return self


def with_default_kind(data: Any) -> Any:
    """Complete an optimizer that is written as its kind alone, or without its kind."""
    if isinstance(data, str):
        return {"kind": data}
    if is_tree(data) and "kind" not in data:
        return {"kind": Optimizer.default_kind} | dict(data)
    return data


class WithoutCompiler(torch.optim.Optimizer):
    """Comes before an optimizer of torch among the bases of a class, so that no call imports torch's compiler."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        with without_compiler():
            super().__init__(*arguments, **settings)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @override
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        with without_compiler():
            return super().step(closure)

    @override
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, without torch's profiler, which takes ten times as long."""
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    @override
    def state_dict(self) -> dict[str, Any]:
        with without_compiler():
            return super().state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        with without_compiler():
            super().load_state_dict(state_dict)


class FusedAdam(WithoutCompiler, torch.optim.Adam):
    """torch's Adam in one fused kernel.

    Time of a step for 28 tensors (width 32, one thread): fused 0.3 ms, foreach 0.9 ms, default 1.1 ms.
    """

    def __init__(
        self, weights: Iterable[Tensor] | Iterable[dict[str, Any]], lr: float, **settings: Any
    ) -> None:
        super().__init__(weights, lr=lr, fused=True, **settings)
