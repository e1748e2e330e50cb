"""Stochastic gradient descent [@robbins1951], with the momentum of @sutskever2013."""

import torch
from pydantic import model_validator
from typing_extensions import override

from loopscale.optimizers.base import HasWeights, NotNegative, Optimizer, Share, Updater, WithoutCompiler


class Sgd(Optimizer, kind="sgd", titled="SGD"):
    """A step is the rate times the gradient, or times the running sum of gradients."""

    momentum: Share = 0.0
    """Factor of the running sum of gradients; 0 for the gradient of the step alone."""
    nesterov: bool = False
    """Whether a step looks ahead: the gradient plus momentum times the sum. This needs a momentum above 0."""
    weight_decay: NotNegative = 0.0
    """Factor on the weights that is added to the gradient."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> "Sgd":
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov needs a momentum; write momentum: 0.9, or nesterov: false")
        return self

    @override
    def build(self, net: HasWeights, lr: float) -> Updater:
        return FusedSgd(
            net.parameters(),
            lr=lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            fused=True,
        )

    @override
    def priced(self) -> "Sgd":
        return self.model_copy(update={"momentum": 0.9 if self.momentum else 0.0, "weight_decay": 0.0})

    @override
    def moments(self, rule: str) -> int:
        return 1 if self.momentum else 0


class FusedSgd(WithoutCompiler, torch.optim.SGD):
    """torch's stochastic gradient descent."""
