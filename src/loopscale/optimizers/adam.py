"""Adam [@kingma2015]: a step is the mean gradient over the root of the mean squared gradient, number by number."""

from typing_extensions import override

from loopscale.optimizers.base import FusedAdam, HasWeights, NotNegative, Optimizer, Share, Updater


class Adam(Optimizer, kind="adam", titled="Adam"):
    """The optimizer of @garg2022, @yang2023 and @gao2024."""

    beta1: Share = 0.9
    """Factor of the running mean of the gradient."""
    beta2: Share = 0.999
    """Factor of the running mean of the squared gradient."""
    epsilon: NotNegative = 1e-8
    """Added to the root of the mean squared gradient."""
    weight_decay: NotNegative = 0.0
    """Factor on the weights that is added to the gradient. `adamw` shrinks the weights themselves."""

    @override
    def build(self, net: HasWeights, lr: float) -> Updater:
        betas = (self.beta1, self.beta2)
        return FusedAdam(net.parameters(), lr, betas=betas, eps=self.epsilon, weight_decay=self.weight_decay)

    @override
    def moments(self, rule: str) -> int:
        return 2
