"""AdamW [@loshchilov2019]: Adam, and every step shrinks the weights by the rate times the weight decay."""

from typing import Any

import torch
from typing_extensions import override

from loopscale.optimizers.base import HasWeights, NotNegative, Optimizer, Share, Updater, WithoutCompiler


class AdamW(Optimizer, kind="adamw", titled="AdamW"):
    beta1: Share = 0.9
    """Factor of the running mean of the gradient."""
    beta2: Share = 0.999
    """Factor of the running mean of the squared gradient."""
    epsilon: NotNegative = 1e-8
    """Added to the root of the mean squared gradient."""
    weight_decay: NotNegative = 0.01
    """Every step takes this share of each weight away, times the learning rate."""

    @override
    def build(self, net: HasWeights, lr: float) -> Updater:
        settings: dict[str, Any] = {"betas": (self.beta1, self.beta2), "eps": self.epsilon}
        return FusedAdamW(net.parameters(), lr=lr, weight_decay=self.weight_decay, fused=True, **settings)

    @override
    def moments(self, rule: str) -> int:
        return 2


class FusedAdamW(WithoutCompiler, torch.optim.AdamW):
    """torch's AdamW."""
