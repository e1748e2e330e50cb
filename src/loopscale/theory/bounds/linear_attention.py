"""One layer of linear attention, trained to the optimum on linear regression: weights and excess error.

The layer predicts ŷ = x_q' G (1/M) Σ y_i x_i with one matrix G [d, d] for all prompts. No method with a
single gradient and fixed coefficients has a smaller excess than `lsa_min`. @zhang2023 have
noiseless prompts. Two extensions are derived here: label noise, and a basis of the covariance that is drawn
for every prompt, as in the task `linear_regression`. G cannot depend on a basis that changes, so G is then a
multiple of the identity.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.tasks.spectrum import level_spectrum
from loopscale.theory.bounds.linear_regression import LinearExcess

SYSTEM = "linear regression"

SOURCE = "@zhang2023, theorem 4.1; with noise and with a basis for every prompt: derived"


class LinearAttentionRisk(LinearExcess):
    """A statement about the layer for inputs of any covariance."""

    spectrum: tuple[PositiveFloat, ...] | None = None
    """Eigenvalues of the covariance of x / x_scale; by default the levels that the task has for dim, condition
    and spectrum_levels.
    """
    basis: Literal["prompt", "fixed"] = "prompt"
    """`prompt`: every prompt has its own eigenvectors, as in the task. `fixed`: all prompts share the
    eigenvectors.
    """

    @property
    def eigenvalues(self) -> Float[np.ndarray, " dim"]:
        """Eigenvalues of Λ, the covariance of x."""
        spectrum = self.spectrum
        if spectrum is None:
            spectrum = level_spectrum(self.dim, self.condition, self.spectrum_levels)
        else:
            self.require(len(spectrum) == self.dim, "a spectrum of `dim` eigenvalues")
            self.require(self.condition == 1, "a given spectrum, or a condition, not both")
        return self.x_scale**2 * np.array(spectrum)

    def require_fixed_basis(self) -> None:
        isotropic = bool(np.ptp(self.eigenvalues) == 0)
        self.require(self.basis == "fixed" or isotropic, "a fixed basis, or isotropic inputs")

    def second_moment(self, n: int) -> Float[np.ndarray, " dim"]:
        """Eigenvalues of Γ = (1 + 1/n) Λ + ((tr Λ + σ²/τ²)/n) I. The second moment of (1/n) Σ y x is τ² Λ Γ."""
        self.require(n >= 1, "N >= 1")
        s = self.eigenvalues
        return (1 + 1 / n) * s + (s.sum() + self.noise**2 / self.w_scale**2) / n

    def gains(self, n: int) -> Float[np.ndarray, " dim"]:
        """Eigenvalues of the best G for n pairs: 1/Γ in a fixed basis, otherwise the best common value."""
        s, gamma = self.eigenvalues, self.second_moment(n)
        if self.basis == "fixed":
            return 1 / gamma
        return np.full_like(s, np.sum(s**2) / np.sum(s**2 * gamma))

    def excess(self, trained: int, tested: int) -> float:
        """Excess of the layer that is trained with `trained` pairs and tested with `tested` pairs."""
        s, gains = self.eigenvalues, self.gains(trained)
        left = s - 2 * s**2 * gains + s**2 * self.second_moment(tested) * gains**2
        return self.w_scale**2 * float(left.sum())


class LsaMin(LinearAttentionRisk, kind="lsa_min", titled="best linear attention"):
    """Smallest excess of one layer of linear attention, trained and tested with N pairs.

    In a fixed basis the excess is τ² Σ λ (λ + tr Λ + σ²/τ²) / ((N+1) λ + tr Λ + σ²/τ²). For isotropic inputs
    it equals `one_step_best`.
    """

    claim = "="
    source = SOURCE

    @override
    def value(self) -> float:
        return self.excess(self.seen, self.seen)


class TrainedAttention(LinearAttentionRisk):
    """A statement about the layer trained with N pairs and tested with M = `point` pairs."""

    trained: NonNegativeInt | None = None
    """N, the number of pairs before the query in training; by default points - 1. `point` is M."""

    @property
    def trained_pairs(self) -> int:
        """N."""
        return self.points - 1 if self.trained is None else self.trained


class LsaMatrix(TrainedAttention, kind="lsa_matrix", titled="weights of linear attention"):
    """Eigenvalue of the inverse of the best weights G of one layer of linear attention.

    In a fixed basis this is an eigenvalue of Γ = (1 + 1/N) Λ + ((tr Λ + σ²/τ²)/N) I.
    """

    claim = "="
    of = "coefficient"
    source = SOURCE
    direction: PositiveInt = 1
    """Number of the eigenvector, from 1, in the order of the spectrum (the task's high level comes first)."""

    @override
    def value(self) -> float:
        self.require(self.direction <= self.dim, "direction <= dim")
        return float(1 / self.gains(self.trained_pairs)[self.direction - 1])


class LsaRisk(TrainedAttention, kind="lsa_risk", titled="risk of linear attention"):
    """Excess of one layer of linear attention, trained with N pairs and tested with M pairs.

    The excess falls as 1/M to a floor of order 1/N², because the weights stay those for N pairs. In a fixed
    basis the excess is τ² Σ (λ - 2 λ²/Γ + λ² Γ_M/Γ²), where Γ_M has M instead of N.
    """

    claim = "="
    source = SOURCE
    without_study = "concerns tests on prompts of another length than in training, and no study has them"

    @override
    def value(self) -> float:
        return self.excess(self.trained_pairs, self.seen)


class LsaZhang(TrainedAttention, kind="lsa_zhang", titled="bound of linear attention (Zhang et al.)"):
    """Simple bound with the shape of `lsa_risk`, without noise: τ² tr Λ ((d+1)/M + (1 + 2d + d²κ)/N²)."""

    claim = "<="
    source = "@zhang2023, after corollary 4.3"
    without_study = "a looser form of `lsa_risk`, for tests on prompts of another length than in training"

    @override
    def value(self) -> float:
        self.require(self.noise == 0, "noise 0")
        self.require(self.trained_pairs >= 1 and self.seen >= 1, "N >= 1 and M >= 1")
        s, d = self.eigenvalues, self.dim
        kappa = float(s.max() / s.min())
        self.require_fixed_basis()
        shape = (d + 1) / self.seen + (1 + 2 * d + d**2 * kappa) / self.trained_pairs**2
        return self.w_scale**2 * float(s.sum()) * shape


class LsaGeneral(TrainedAttention, kind="lsa_general", titled="linear attention on other prompts"):
    """Excess of one layer of linear attention on prompts of one other relation between x and y.

    The excess is misfit + Σ λ a² (1 - λ/Γ)² + (1/M) Σ λ V/Γ², with a = Λ⁻¹ E[xy] and V_i the variance of x_i
    y. The training prompts are linear. The other relation has M pairs and may be nonlinear. With Gaussian x
    and the default a = w_scale in every coordinate (the signs do not matter), the excess equals `lsa_risk`.
    """

    claim = "="
    source = "@zhang2023, theorem 4.2; with noise: derived"
    without_study = "needs training on linear and tests on nonlinear prompts, and no study has both"
    weights: tuple[float, ...] | None = None
    """a, the best linear weights, in the eigenbasis."""
    variances: tuple[NonNegativeFloat, ...] | None = None
    """V; by default the variances for y = <a, x> + noise and Gaussian x."""
    misfit: NonNegativeFloat = 0.0
    """Error of the best linear prediction, minus σ²."""

    @override
    def value(self) -> float:
        s, gamma = self.eigenvalues, self.second_moment(self.trained_pairs)
        self.require_fixed_basis()
        self.require(self.seen >= 1, "M >= 1")
        a = np.full(self.dim, self.w_scale) if self.weights is None else np.array(self.weights)
        self.require(len(a) == self.dim, "`dim` weights")
        v = (s * a) ** 2 + s * (np.sum(s * a**2) + self.noise**2)
        if self.variances is not None:
            self.require(len(self.variances) == self.dim, "`dim` variances")
            v = np.array(self.variances)
        bias = s * a**2 * (1 - s / gamma) ** 2
        return self.misfit + float(np.sum(bias + s * v / gamma**2 / self.seen))
