"""One layer of linear attention, trained to its optimum on linear regression: its weights and its excess error.

It predicts ŷ = x_q' G (1/M) Σ y_i x_i, with one matrix G for all prompts: no method of a single gradient with
coefficients fixed over prompts is below `lsa_min`. Zhang, Frei, Bartlett 2023 have noiseless prompts; noise is added
here, and so is a basis of the covariance that is drawn anew for every prompt, as the task `linear_regression` draws
it: then G, which cannot know the directions, is a multiple of the identity.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.tasks.spectrum import two_level_spectrum
from loopscale.theory.bounds.linear_regression import LinearExcess

SOURCE = "Zhang, Frei, Bartlett 2023, theorem 4.1; with noise and with a basis for every prompt: derived"


class LinearAttention(LinearExcess):
    """A statement about the layer for inputs of any covariance."""

    spectrum: tuple[PositiveFloat, ...] | None = None
    """Eigenvalues of the covariance of x / x_scale; by default the task's two levels, by dim and condition."""
    basis: Literal["prompt", "fixed"] = "prompt"
    """Whether the eigenvectors are drawn for every prompt, as the task's, or are the same in all."""

    @property
    def eigenvalues(self) -> Float[np.ndarray, " dim"]:
        """Those of Λ."""
        given = self.spectrum
        if given is None:
            given = two_level_spectrum(self.dim, self.condition)
        else:
            self.require(len(given) == self.dim, "a spectrum of `dim` eigenvalues")
            self.require(self.condition == 1, "a given spectrum, or a condition, not both")
        return self.x_scale**2 * np.array(given)

    def same_basis(self) -> None:
        isotropic = bool(np.ptp(self.eigenvalues) == 0)
        self.require(self.basis == "fixed" or isotropic, "a fixed basis, or isotropic inputs")

    def second_moment(self, n: int) -> Float[np.ndarray, " dim"]:
        """Γ = (1 + 1/n) Λ + ((tr Λ + σ²/τ²)/n) I: τ² Λ Γ is the second moment of (1/n) Σ y x."""
        self.require(n >= 1, "N >= 1")
        s = self.eigenvalues
        return (1 + 1 / n) * s + (s.sum() + self.noise**2 / self.w_scale**2) / n

    def gains(self, n: int) -> Float[np.ndarray, " dim"]:
        """Eigenvalues of the best G for n pairs: 1/Γ, or what is best on average over the directions."""
        s, gamma = self.eigenvalues, self.second_moment(n)
        if self.basis == "fixed":
            return 1 / gamma
        return np.full_like(s, np.sum(s**2) / np.sum(s**2 * gamma))

    def excess(self, trained: int, seen: int) -> float:
        """Of the layer trained on `trained` pairs, after `seen`."""
        s, gains = self.eigenvalues, self.gains(trained)
        left = s - 2 * s**2 * gains + s**2 * self.second_moment(seen) * gains**2
        return self.w_scale**2 * float(left.sum())


class LsaMin(LinearAttention, kind="lsa_min"):
    """Trained and tested on N pairs, the least that such a layer can have there; `one_step_best` for isotropic inputs.

    In a fixed basis τ² Σ λ (λ + tr Λ + σ²/τ²) / ((N+1) λ + tr Λ + σ²/τ²).
    """

    claim = "="
    source = SOURCE

    @override
    def value(self) -> float:
        return self.excess(self.seen, self.seen)


class TrainedAttention(LinearAttention):
    """A statement about the layer trained at one length and tested at another."""

    trained: NonNegativeInt | None = None
    """Pairs before the query on which it was trained, N; by default those before the prompt's last, points - 1.
    `point` is M.
    """

    @property
    def length(self) -> int:
        """N."""
        return self.points - 1 if self.trained is None else self.trained


class LsaMatrix(TrainedAttention, kind="lsa_matrix"):
    """An eigenvalue of the optimal G⁻¹: in a fixed basis of Γ = (1 + 1/N) Λ + ((tr Λ + σ²/τ²)/N) I."""

    claim = "="
    of = "coefficient"
    source = SOURCE
    direction: PositiveInt = 1
    """Which, in the order of the spectrum (the task's has the high ones first)."""

    @override
    def value(self) -> float:
        self.require(self.direction <= self.dim, "direction <= dim")
        return float(1 / self.gains(self.length)[self.direction - 1])


class LsaRisk(TrainedAttention, kind="lsa_risk"):
    """Trained on N pairs, tested on M: falls as 1/M to a floor of order 1/N², for the weights stay those for N.

    In a fixed basis τ² Σ (λ - 2 λ²/Γ + λ² Γ_M/Γ²), Γ_M with M for N.
    """

    claim = "="
    source = SOURCE

    @override
    def value(self) -> float:
        return self.excess(self.length, self.seen)


class LsaZhang(TrainedAttention, kind="lsa_zhang"):
    """τ² tr Λ ((d+1)/M + (1 + 2d + d²κ)/N²), which shows the shape of `lsa_risk` without noise."""

    claim = "<="
    source = "Zhang, Frei, Bartlett 2023, after corollary 4.3"

    @override
    def value(self) -> float:
        self.require(self.noise == 0, "noise 0")
        self.require(self.length >= 1 and self.seen >= 1, "N >= 1 and M >= 1")
        s, d = self.eigenvalues, self.dim
        kappa = float(s.max() / s.min())
        self.same_basis()
        shape = (d + 1) / self.seen + (1 + 2 * d + d**2 * kappa) / self.length**2
        return self.w_scale**2 * float(s.sum()) * shape


class LsaGeneral(TrainedAttention, kind="lsa_general"):
    """The layer trained on linear prompts, tested on M pairs of one other relation between x and y, linear or not.

    misfit + Σ λ a² (1 - λ/Γ)² + (1/M) Σ λ V/Γ², a = Λ⁻¹ E[xy], V_i the variance of x_i y. With Gaussian x and
    a = ±w_scale everywhere, as by default, this is `lsa_risk`.
    """

    claim = "="
    source = "Zhang, Frei, Bartlett 2023, theorem 4.2; with noise: derived"
    weights: tuple[float, ...] | None = None
    """a, the best linear weights, in the eigenbasis."""
    variances: tuple[NonNegativeFloat, ...] | None = None
    """V; by default that of y = <a, x> + noise, Gaussian x."""
    misfit: NonNegativeFloat = 0.0
    """The error of the best linear prediction, less σ²."""

    @override
    def value(self) -> float:
        s, gamma = self.eigenvalues, self.second_moment(self.length)
        self.same_basis()
        self.require(self.seen >= 1, "M >= 1")
        a = np.full(self.dim, self.w_scale) if self.weights is None else np.array(self.weights)
        self.require(len(a) == self.dim, "`dim` weights")
        v = (s * a) ** 2 + s * (np.sum(s * a**2) + self.noise**2)
        if self.variances is not None:
            self.require(len(self.variances) == self.dim, "`dim` variances")
            v = np.array(self.variances)
        bias = s * a**2 * (1 - s / gamma) ** 2
        return self.misfit + float(np.sum(bias + s * v / gamma**2 / self.seen))
