"""Muon [@jordan2024]: the step of a hidden matrix is its momentum with all singular values near 1.

A few steps of a Newton-Schulz iteration in bfloat16 replace the singular values. The rate is scaled as in @liu2025muon,
so that a step is as large as a step of Adam and one rate serves both. Vectors, read-in, read-out and positions are
Adam's. Stacked matrices (queries, keys and values; the gates of an LSTM) are one matrix.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.optimizers.base import (
    RATIO,
    FusedAdam,
    HasWeights,
    NotNegative,
    Optimizer,
    Share,
    Updater,
    WithoutCompiler,
)

OTHER_CALLS_OF_A_MATRIX = 9
"""Operations of an update besides the Newton-Schulz steps: momentum, bfloat16, norm, weight decay, the step itself."""
CALLS_OF_A_STEP = 3
"""Operations of a Newton-Schulz step: three products."""


class Muon(Optimizer, kind="muon", titled="Muon"):
    """Adam updates every weight that is not a hidden matrix."""

    momentum: Share = 0.95
    """Factor of the running mean of a matrix's gradient."""
    nesterov: bool = True
    """Whether a step looks ahead: it mixes the gradient into the running mean once more."""
    weight_decay: NotNegative = 0.0
    """Every step takes this share of Muon's matrices away, times the learning rate."""
    newton_schulz_steps: PositiveInt = 5
    """Steps of the iteration that moves the singular values towards 1."""
    smallest_side: PositiveInt = 16
    """Hidden matrices are Muon's if both sides are at least so large. Adam updates smaller matrices."""
    adam_rate: PositiveFloat = 1.0
    """Learning rate of Adam for all other weights, divided by `training.lr`."""
    beta1: Share = 0.9
    """Factor of Adam's running mean of the gradient."""
    beta2: Share = 0.999
    """Factor of Adam's running mean of the squared gradient."""

    @override
    def assignment(self, net: HasWeights) -> dict[str, str]:
        """`muon` for hidden matrices with both sides of at least `smallest_side`, and `adam` for all other weights."""
        hidden = net.hidden_matrices()
        return {
            name: "muon"
            if name in hidden and weight.ndim == 2 and min(weight.shape) >= self.smallest_side
            else "adam"
            for name, weight in net.named_parameters()
        }

    @override
    def build(self, net: HasWeights, lr: float) -> Updater:
        rules, parts = self.assignment(net), list[torch.optim.Optimizer]()
        of_rule = {
            rule: [weight for name, weight in net.named_parameters() if rules[name] == rule]
            for rule in ("muon", "adam")
        }
        if of_rule["muon"]:
            parts.append(
                MuonOfMatrices(
                    of_rule["muon"],
                    lr=lr,
                    weight_decay=self.weight_decay,
                    momentum=self.momentum,
                    nesterov=self.nesterov,
                    ns_steps=self.newton_schulz_steps,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        if of_rule["adam"]:
            group = {"params": of_rule["adam"], RATIO: self.adam_rate}
            parts.append(FusedAdam([group], lr * self.adam_rate, betas=(self.beta1, self.beta2)))
        return Together(list(net.parameters()), parts)

    @override
    def moments(self, rule: str) -> int:
        return 1 if rule == "muon" else 2

    @override
    def update_flops(self, rule: str, shape: Sequence[int]) -> int:
        """Of a Newton-Schulz step for a matrix m x n: X X', its square, and the product with X."""
        if rule != "muon":
            return 0
        m, n = sorted(shape)
        return self.newton_schulz_steps * (2 * m * m * n + 2 * m**3 + 2 * m * m * n)

    @override
    def update_calls(self, rule: str) -> int:
        return OTHER_CALLS_OF_A_MATRIX + CALLS_OF_A_STEP * self.newton_schulz_steps if rule == "muon" else 0


class MuonOfMatrices(WithoutCompiler, torch.optim.Muon):
    """torch's Muon, which takes matrices only. A rate in a tensor stays on its device.

    torch's Muon reads such a rate on the host, and a CUDA graph forbids that. So the matrices take a step of rate 1
    from zero, and the device multiplies this step by the rate. The result differs from torch's by rounding only.
    """

    @override
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        if not any(isinstance(group["lr"], Tensor) for group in self.param_groups):
            return super().step(closure)
        loss = closure() if closure else None
        with torch.no_grad():
            self._step_at_rates_of_the_device()
        return loss

    def _step_at_rates_of_the_device(self) -> None:
        settings = [{name: group[name] for name in ("lr", "weight_decay")} for group in self.param_groups]
        before = [[weight.clone() for weight in group["params"]] for group in self.param_groups]
        for group in self.param_groups:
            group.update(lr=1.0, weight_decay=0.0)
            for weight in group["params"]:
                weight.zero_()
        super().step()
        for group, own, weights in zip(self.param_groups, settings, before, strict=True):
            group.update(own)
            for weight, start in zip(group["params"], weights, strict=True):
                weight.mul_(own["lr"]).add_(start * (1 - own["lr"] * own["weight_decay"]))


class Together:
    """Several optimizers of torch, each of some weights of one net, with the interface of one optimizer.

    The state dict has the format of one optimizer of torch: states by the index of the weight in the net, and groups
    of these indices. So checkpoints need no further format.
    """

    def __init__(self, weights: Sequence[Tensor], parts: Sequence[torch.optim.Optimizer]) -> None:
        index = {id(weight): number for number, weight in enumerate(weights)}
        self._parts = [
            (part, [index[id(weight)] for group in part.param_groups for weight in group["params"]])
            for part in parts
        ]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part, _ in self._parts for group in part.param_groups]

    @property
    def state(self) -> Mapping[Any, dict[str, Any]]:
        return {weight: state for part, _ in self._parts for weight, state in part.state.items()}

    def zero_grad(self) -> None:
        for part, _ in self._parts:
            part.zero_grad()

    def step(self) -> None:
        for part, _ in self._parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        states, groups = dict[int, Any](), list[dict[str, Any]]()
        for part, indices in self._parts:
            own = part.state_dict()
            states |= {indices[number]: state for number, state in own["state"].items()}
            groups += [
                group | {"params": [indices[number] for number in group["params"]]}
                for group in own["param_groups"]
            ]
        return {"state": dict(sorted(states.items())), "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raises ValueError for a state of other groups, or of other weights."""
        groups = list(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError("the state has other groups of weights than this optimizer")
        for part, indices in self._parts:
            number = {index: number for number, index in enumerate(indices)}
            own, groups = groups[: len(part.param_groups)], groups[len(part.param_groups) :]
            if [index for group in own for index in group["params"]] != indices:
                raise ValueError("the state assigns weights to other groups than this optimizer")
            part.load_state_dict(
                {
                    "state": {
                        number[index]: state
                        for index, state in state_dict["state"].items()
                        if index in number
                    },
                    "param_groups": [
                        group | {"params": [number[index] for index in group["params"]]} for group in own
                    ],
                }
            )
