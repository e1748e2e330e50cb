"""Mixtures of linear regressions in context: y = <β_z, x> + noise, with a hidden component z for every pair.

Source: @jin2024, in the version of @yang2025slides. Every prompt draws K components, x ~ N(0, I), and the component of
a pair is never given. So the best prediction of y is that of the mean component, Σ π_k <β_k, x>, even if all β_k are
known. The remaining error is `noise_variance`: σ² plus the spread of the components. The floor is `noise_variance`
over the variance of y.

For two components ±β with equal weights the mean component is 0. Then the prediction 0 is best, and labels teach
nothing. In this case, as in theorem 3.2, ask for the components (`target: components`). Any order of the components
counts as correct, and for ±β either sign. The floor is then 0, which the solver `mixture_oracle` reaches because it
reads the components. There is no formula for the lowest error given only the pairs.

@yang2025slides leaves two choices open. Here η is the root mean square of |β_k| over σ, and σ follows from η.
Components are independent Gaussians, or lie on a sphere, where η is the same in every prompt.
"""

from dataclasses import dataclass, replace
from itertools import permutations
from math import pi
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.base import Errors, FloorRule, Measures, Prediction
from loopscale.tasks.eigenvectors import mean_cosine
from loopscale.tasks.fitted_guess import fitted_guess
from loopscale.tasks.regression import Regression, RegressionTask, only_first, pose
from loopscale.tasks.tensors import constant

MOST_ORDERED = 5
"""The largest number of components with a trial of all orders: 120 orders."""


@dataclass(frozen=True, kw_only=True)
class Mixture(Regression):
    """The pairs with the true components and the known constants.

    Seen as a regression on the mean component, the spread of the components is part of `noise_variance`, and
    `weight_variance` is the variance of the mean component.
    """

    components: Float[Tensor, "batch K dim"]
    shares: tuple[float, ...]
    """π, the probabilities of the components. Their sum is 1."""
    symmetric: bool
    """Whether the components are ±β."""
    label_noise_variance: float
    """σ², the variance of y given its component."""
    component_variance: float
    """τ², the variance of a coordinate of a component."""


@dataclass(frozen=True)
class Components:
    """A mixture whose components are the target."""

    mixture: Mixture


class MixtureRegression(RegressionTask, kind="mixture_regression", allow_inf_nan=False):
    components: PositiveInt = 2
    """K, the number of components."""
    weights: tuple[PositiveFloat, ...] | None = None
    """Relative weights of the components; `None` for equal weights."""
    symmetric: bool = False
    """Whether there are two components, β and -β."""
    snr: PositiveFloat = 5.0
    """η, the signal-to-noise ratio: root mean square of |β| over σ."""
    w_scale: PositiveFloat = 1.0
    """τ, root mean square of a coordinate of a component."""
    prior: Literal["gaussian", "sphere"] = "gaussian"
    """gaussian: N(0, τ² I). sphere: uniform on the sphere of radius τ √d, so that η is equal in all prompts."""
    target: Literal["label", "components"] = "label"
    """label: predict y. components: predict the components, in any order (for ±β: predict β, with any sign)."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "MixtureRegression":
        if self.symmetric and self.components != 2:
            raise ValueError(
                f"symmetric means two components, β and -β, not {self.components}; write components: 2"
            )
        if self.weights is not None and len(self.weights) != self.components:
            raise ValueError(
                f"there are {len(self.weights)} weights for {self.components} components; "
                f"write {self.components} weights"
            )
        if self.target == "components" and self.components > MOST_ORDERED:
            raise ValueError(
                f"target: components tries every order of at most {MOST_ORDERED} components, not {self.components}; "
                f"write fewer components, or target: label"
            )
        return self

    @property
    @override
    def prompt(self) -> Prompt:
        prompt = super().prompt
        if self.target == "label":
            return prompt
        return replace(prompt, dim_out=self.wanted * self.dim, pairs=None)  # the target is not y

    @property
    def wanted(self) -> int:
        """Number of components in the target: 1 for ±β."""
        return 1 if self.symmetric else self.components

    @property
    def shares(self) -> tuple[float, ...]:
        """π, the probabilities of the components. Their sum is 1."""
        weights = self.weights or (1.0,) * self.components
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def concentration(self) -> float:
        """E |Σ π_k β_k|² / E |β|². With equal weights: 1/K for K independent components, 0 for ±β."""
        shares = self.shares
        return (shares[0] - shares[1]) ** 2 if self.symmetric else sum(share**2 for share in shares)

    @property
    def signal(self) -> float:
        """The variance of <β, x>."""
        return self.at_work * self.w_scale**2

    @property
    def label_noise(self) -> float:
        """σ, the standard deviation of y given its component. A curriculum does not change σ."""
        return self.dim**0.5 * self.w_scale / self.snr

    @property
    @override
    def variance(self) -> float:
        if self.target == "components":
            return self.signal / self.dim
        return self.signal + self.label_noise**2

    @property
    @override
    def noise_variance(self) -> float:
        """For labels: σ² plus the variance caused by the unknown component. For components: 0."""
        if self.target == "components":
            return 0.0
        return self.label_noise**2 + self.signal * (1 - self.concentration)

    @property
    @override
    def floor_rule(self) -> FloorRule:
        """For labels of ±β with equal weights, the prediction 0 is the Bayes predictor."""
        if self.target == "label" and self.concentration == 0:
            return FloorRule("bayes")
        return FloorRule("reference", {"kind": "mixture_em", "restarts": 8})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """0 for labels. The order of components is free, and so is the sign of ±β, so a fixed guess gains from both."""
        zero = torch.zeros(len(self.seen), self.prompt.dim_out)
        if self.target == "label":
            return zero
        if not self.symmetric:
            return fitted_guess(self.model_dump_json(), same=True)
        sphere = self.prior == "sphere"
        cosine = mean_cosine(self.at_work) * self.at_work**0.5 if sphere else (2 / pi) ** 0.5
        return zero + self.w_scale * cosine * torch.eye(self.dim)[0]

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = only_first(torch.randn(batch_size, self.points, self.dim, generator=rng), self.active)
        betas = only_first(torch.randn(batch_size, self.wanted, self.dim, generator=rng), self.active)
        if self.prior == "sphere":
            betas = betas / betas.norm(dim=-1, keepdim=True) * self.at_work**0.5
        betas = self.w_scale * betas
        components = torch.cat([betas, -betas], 1) if self.symmetric else betas
        shares = constant(self.shares, rng.device)
        labels = torch.multinomial(shares, batch_size * self.points, replacement=True, generator=rng)
        weights = components.gather(1, labels.view(batch_size, -1, 1).expand_as(xs))
        noise = self.label_noise * torch.randn(batch_size, self.points, generator=rng)
        ys = (xs * weights).sum(-1) + noise
        mixture = Mixture(
            xs,
            ys,
            noise_variance=self.label_noise**2 + self.signal * (1 - self.concentration),
            weight_variance=self.concentration * self.w_scale**2,
            components=components,
            shares=self.shares,
            symmetric=self.symmetric,
            label_noise_variance=self.label_noise**2,
            component_variance=self.w_scale**2,
        )
        batch = pose(mixture, self.format)
        if self.target == "label":
            return batch
        targets = betas.flatten(1)[:, None].expand(-1, len(batch.queries), -1)
        return replace(batch, targets=targets, problem=Components(batch.problem))

    @override
    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """For components, the squared error in the best order. A random prediction can cost less than predicting 0."""
        if self.target == "label":
            return super().raw_error(prediction, batch)
        shape = (self.wanted, self.dim)
        guess, truth = prediction.unflatten(-1, shape), batch.targets.unflatten(-1, shape)
        if self.symmetric:
            versions = [truth, -truth]
        else:
            parts = truth.unbind(-2)  # a list as an index would be copied to a GPU at every step
            versions = [torch.stack(order, -2) for order in permutations(parts)]
        return torch.stack([(guess - version).square().mean((-2, -1)) for version in versions]).amin(0)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        """`oracle_distance` for labels, `parameter_error` for components.

        `oracle_distance`: the squared distance to the prediction that knows the components, over the variance of y.
        This is the excess without the noise of the evaluation labels.

        `parameter_error`: |β̂ - β| at the last query over the root mean square of |β|, also for K components.
        `error_last` averages its square.
        """
        if self.target == "label":
            mixture: Mixture = batch.problem
            shares = constant(mixture.shares, mixture.xs.device).to(mixture.xs.dtype)
            mean = torch.einsum("bkd,k->bd", mixture.components, shares)
            best = torch.einsum("bd,bpd->bp", mean, mixture.xs[:, mixture.first :])[..., None]
            return {"oracle_distance": (prediction - best).square().mean((-2, -1)) / self.variance}
        last = replace(batch, targets=batch.targets[:, -1:])
        return {"parameter_error": self.error(prediction[:, :, -1:], last).sqrt().squeeze(-1)}
