"""Mixtures of linear regressions in context: y = <β_z, x> + noise, with a hidden component z drawn for every pair.

Jin et al. 2024 (from slides). K components are drawn anew for every prompt, x ~ N(0, I), and which of them made a y
is never told. So the best prediction of y is that of the mean component, Σ π_k <β_k, x>, even for one who knows all
β_k: what is left, σ² and the spread of the components, is `noise_variance`: over the variance of y, the floor. Of two
components ±β with equal weights that mean is 0, and predicting nothing is best: nothing is learned from their labels.
There, as in theorem 3.2, ask for the components themselves (`target: components`): any order, and of ±β either sign,
will do. The floor is then 0, which the solver `mixture_oracle` has, who is told them; what pairs allow has no formula
here.

Decided here, where the slides say nothing: η is the root mean square of |β_k| over σ, and σ follows from it; components
are independent Gaussians, or on a sphere, where η is the same in every prompt.
"""

from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.regression import Regression, RegressionTask, only_first, pose

MOST_ORDERED = 5
"""Components whose order is tried out: 120 orders."""


@dataclass(frozen=True, kw_only=True)
class Mixture(Regression):
    """The pairs, the components, and what an observer knows: shares, σ, τ, and whether components are ±β.

    As a regression on the mean component, what the components spread is noise, and `weight_variance` is that mean's.
    """

    components: Float[Tensor, "batch K dim"]
    shares: tuple[float, ...]
    """π, in all 1."""
    symmetric: bool
    label_noise_variance: float
    """σ², of y given its component."""
    component_variance: float
    """τ², of a coordinate of a component."""


@dataclass(frozen=True)
class Components:
    """The same, with the components asked for."""

    mixture: Mixture


class MixtureRegression(RegressionTask, kind="mixture_regression", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of x, d; x ~ N(0, I)."""
    points: PositiveInt = 40
    """Pairs in the prompt: query k = 0 .. points-1 has seen k of them."""
    components: PositiveInt = 2
    """K."""
    weights: tuple[PositiveFloat, ...] | None = None
    """The components' shares, in proportion; `None` for equal ones."""
    symmetric: bool = False
    """Whether the components are β and -β, two."""
    snr: PositiveFloat = 5.0
    """η, the root mean square of |β| over σ."""
    w_scale: PositiveFloat = 1.0
    """τ, the root mean square of a coordinate of a component."""
    prior: Literal["gaussian", "sphere"] = "gaussian"
    """Components N(0, τ² I), or uniform on the sphere of radius τ √d, where η is exact in every prompt."""
    target: Literal["label", "components"] = "label"
    """What is asked for: y, or the components, up to their order (of ±β: β, up to its sign)."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "MixtureRegression":
        if self.symmetric and self.components != 2:
            raise ValueError(
                f"symmetric components are 2, β and -β, not {self.components}; write components: 2"
            )
        if self.weights is not None and len(self.weights) != self.components:
            raise ValueError(
                f"{len(self.weights)} weights are not one for each of {self.components} components; "
                f"write {self.components} weights"
            )
        if self.target == "components" and self.components > MOST_ORDERED:
            raise ValueError(
                f"target components tries every order, of {MOST_ORDERED} components at most, not {self.components}; "
                f"write fewer, or target: label"
            )
        return self

    @property
    @override
    def prompt(self) -> Prompt:
        told = super().prompt
        if self.target == "label":
            return told
        return replace(told, dim_out=self.wanted * self.dim, pairs=None)  # no y is asked for

    @property
    def wanted(self) -> int:
        """How many components there are to find: of ±β one."""
        return 1 if self.symmetric else self.components

    @property
    def shares(self) -> tuple[float, ...]:
        """π, in all 1."""
        weights = self.weights or (1.0,) * self.components
        return tuple(weight / sum(weights) for weight in weights)

    @property
    def concentration(self) -> float:
        """E |Σ π_k β_k|² / E |β|²: 1/K for K independent components of equal weights, 0 for such ±β."""
        shares = self.shares
        return (shares[0] - shares[1]) ** 2 if self.symmetric else sum(share**2 for share in shares)

    @property
    def signal(self) -> float:
        """The variance of <β, x>."""
        return self.at_work * self.w_scale**2

    @property
    def label_noise(self) -> float:
        """σ, of y given its component; a curriculum leaves it as it is."""
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
        """Of a label σ², and what it varies by for the component's being unknown; of components nothing."""
        if self.target == "components":
            return 0.0
        return self.label_noise**2 + self.signal * (1 - self.concentration)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = only_first(torch.randn(batch_size, self.points, self.dim, generator=rng), self.active)
        drawn = only_first(torch.randn(batch_size, self.wanted, self.dim, generator=rng), self.active)
        if self.prior == "sphere":
            drawn = drawn / drawn.norm(dim=-1, keepdim=True) * self.at_work**0.5
        drawn = self.w_scale * drawn
        components = torch.cat([drawn, -drawn], 1) if self.symmetric else drawn
        shares = torch.tensor(self.shares)
        of = torch.multinomial(shares, batch_size * self.points, replacement=True, generator=rng)
        own = components.gather(1, of.view(batch_size, -1, 1).expand_as(xs))
        noise = self.label_noise * torch.randn(batch_size, self.points, generator=rng)
        ys = (xs * own).sum(-1) + noise
        spread = self.label_noise**2 + self.signal * (1 - self.concentration)
        mixture = Mixture(
            xs, ys, spread, self.concentration * self.w_scale**2, components=components, shares=self.shares,
            symmetric=self.symmetric, label_noise_variance=self.label_noise**2,
            component_variance=self.w_scale**2,
        )  # fmt: skip
        batch = pose(mixture, self.format)
        if self.target == "label":
            return batch
        wanted = drawn.flatten(1)[:, None].expand(-1, len(batch.queries), -1)
        return replace(batch, targets=wanted, problem=Components(batch.problem))

    @override
    def raw_error(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """Of components, in the order that is nearest: a guess that knows nothing may thereby cost less than 0 does."""
        if self.target == "label":
            return super().raw_error(prediction, batch)
        found, truth = (each.unflatten(-1, (self.wanted, self.dim)) for each in (prediction, batch.targets))
        if self.symmetric:
            ways = [truth, -truth]
        else:
            ways = [truth[..., list(order), :] for order in permutations(range(self.wanted))]
        return torch.stack([(found - way).square().mean((-2, -1)) for way in ways]).amin(0)

    @override
    def measures(
        self, prediction: Float[Tensor, "steps batch points dim_out"], batch: Batch
    ) -> dict[str, Float[Tensor, "steps batch"]]:
        """Of labels `oracle_distance`: the squared distance from the guess of one who knows the components, over the
        variance of y: the excess without the noise of the labels that it is measured on.

        Of components `parameter_error`: |β̂ - β| at the last query over the root mean square of |β|, of ±β and of K
        components alike; its square is what `error_last` averages.
        """
        if self.target == "label":
            mixture: Mixture = batch.problem
            shares = torch.tensor(mixture.shares, device=mixture.xs.device, dtype=mixture.xs.dtype)
            mean = torch.einsum("bkd,k->bd", mixture.components, shares)
            best = torch.einsum("bd,bpd->bp", mean, mixture.xs[:, mixture.first :])[..., None]
            return {"oracle_distance": (prediction - best).square().mean((-2, -1)) / self.variance}
        last = replace(batch, targets=batch.targets[:, -1:])
        return {"parameter_error": self.error(prediction[:, :, -1:], last).sqrt().squeeze(-1)}
