"""Linear bandits in context: every arm has features, and its mean reward is <θ, features>.

Source: @lin2024 (algorithm distillation of LinUCB), with the sizes of their code. These are d = 5, A = 10 and Gaussian
noise with the standard deviation 1.5. The features are uniform on [-1, 1] and fixed for a prompt, and θ is uniform on
[0, 1]^d. The prior N(0, I) of Thompson sampling is wrong there. With `prior: normal` it is right.

A token also holds the features of all arms, and those of the arm in its round. See `bandit` for all else. An easier
task has fewer features that are not 0.
"""

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.tasks.bandit import BanditTask, Context, Expert, Problems
from loopscale.tasks.bandit_games import Prior, Rules
from loopscale.tasks.base import FloorRule
from loopscale.tasks.regression import only_first


class LinearBandit(BanditTask, kind="linear_bandit", allow_inf_nan=False):
    dim: PositiveInt = 5
    """d, features of an arm."""
    arms: int = Field(10, ge=2)
    """A, the number of arms."""
    reward_noise: PositiveFloat = 1.5
    """σ, the standard deviation of the noise in a reward."""
    prior: Prior = "uniform"
    """Distribution of θ. uniform: on [0, 1]^d. normal: N(0, I), the prior of Thompson sampling."""
    context: Context = "lin_ucb"
    """The policy that plays the rounds of a prompt: see `loopscale show bandit`."""
    expert: Expert = "lin_ucb"
    """The policy whose actions are the targets. optimal: the arm with the largest mean."""

    @property
    @override
    def arm_count(self) -> int:
        return self.arms

    @property
    @override
    def features(self) -> int:
        return self.dim

    @property
    @override
    def rules(self) -> Rules:
        return Rules("gaussian", self.reward_noise, self.prior, self.arms)

    @property
    @override
    def floor_rule(self) -> FloorRule:
        """Thompson sampling is only a reference: its probabilities come from draws, and its prior may be wrong."""
        if self.expert == "optimal":
            return FloorRule("reference", {"kind": "thompson"})
        return super().floor_rule

    @override
    def problems(self, batch_size: int, rng: torch.Generator) -> Problems:
        actions = 2 * torch.rand(batch_size, self.arms, self.dim, generator=rng) - 1
        draw = torch.rand if self.prior == "uniform" else torch.randn
        thetas = draw(batch_size, self.dim, generator=rng)
        actions = only_first(actions, self.active)
        return (actions @ thetas[..., None]).squeeze(-1), actions
