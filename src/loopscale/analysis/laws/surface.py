"""The surface error = E + A x^-α + B z^-β over two crossed axes, and the best way to spend FLOPs on it.

The surface is that of @hoffmann2022, section 3.3, with loops, width or prompts as axes. The fit uses variable
projection [@golub1973]: for given exponents, E, A and B follow from least squares, each at least 0. A grid
and then nonlinear least squares find the two exponents. Residuals are relative to the fitted error.

Every interval follows the profile: the range of a quantity over all pairs of exponents that the data allow. The noise
is that of the replicates, pooled. If the cells scatter about the surface plainly more, the scatter is the noise, as for
laws.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares, nnls

from loopscale.stats.contrasts import Array, PooledVariance, pool, student

EXPONENT_LIMITS = (0.02, 12.0)
"""The range of the exponents. An interval that reaches an end is open there. An exponent at an end is no estimate."""
GRID, ZOOMS, REWEIGHTS, PARAMETERS = 41, 3, 3, 5
Ends = tuple[float, float]


@dataclass(frozen=True)
class Cells:
    """Mean errors of the cells at x and z, the runs of each cell, and the noise of one run's log error."""

    x: Array
    z: Array
    error: Array
    runs: Array
    noise: PooledVariance | None


@dataclass(frozen=True)
class Envelope:
    """The least error for every number of FLOPs: floor + scale · FLOPs^-exponent."""

    floor: float
    scale: float
    exponent: float

    def __call__(self, flops: Any) -> Any:
        return self.floor + self.scale * np.asarray(flops, dtype=np.float64) ** -self.exponent


@dataclass(frozen=True)
class Surface:
    """A fitted surface. Intervals are None without replicates; an open end is 0 or infinite."""

    floor: float
    """The floor E."""
    scales: tuple[float, float]
    """The scales (A, B)."""
    exponents: tuple[float, float]
    """The exponents (α, β)."""
    cost: tuple[float, float, float]
    """(c, p, q) of FLOPs = e^c x^p z^q, fitted to the cost of the trials."""
    cost_off: float
    """The largest relative difference between the cost of a cell and this power law."""
    intervals: tuple[Ends, Ends] | None
    """The intervals of α and of β."""
    share_interval: Ends | None
    """The interval of `share`."""
    envelope_interval: Ends | None
    """The interval of the envelope's exponent."""
    cells: Cells
    scatter: bool
    """True if the cells scatter about the surface by more than the noise of the replicates."""
    goodness: float
    """The share of the variance of the log errors that the surface explains."""

    def value(self, x: Any, z: Any) -> Any:
        """The error at x and z."""
        x, z = np.asarray(x, dtype=np.float64), np.asarray(z, dtype=np.float64)
        return (
            self.floor + self.scales[0] * x ** -self.exponents[0] + self.scales[1] * z ** -self.exponents[1]
        )

    def flops(self, x: Any, z: Any) -> Any:
        """The cost of a training at x and z, by the fitted power law."""
        c, p, q = self.cost
        return np.exp(c + p * np.log(np.asarray(x, np.float64)) + q * np.log(np.asarray(z, np.float64)))

    @property
    def unknown(self) -> tuple[str, str]:
        """Why α and β are no estimates; empty for an estimate. The reason follows the subject "an exponent"."""
        first, second = self.intervals or (None, None)
        return _unknown(self.exponents[0], first), _unknown(self.exponents[1], second)

    @property
    def share(self) -> float:
        """The share of a growth in log FLOPs that is best spent on x: β p/(α q + β p).

        With FLOPs ∝ x z this is the exponent a = β/(α + β) of @hoffmann2022: the best x grows as FLOPs^a.
        """
        return float(_share(*self.exponents, *self.cost[1:]))

    @property
    def growth(self) -> tuple[float, float]:
        """The exponents with which the best x and the best z grow with FLOPs."""
        return self.share / self.cost[1], (1 - self.share) / self.cost[2]

    def best(self, flops: float) -> tuple[float, float]:
        """The x and z of least error at this number of FLOPs.

        Raises ValueError if the error does not fall along both axes, or an exponent is unknown.
        """
        (a, b), (alpha, beta), (c, p, q) = self.scales, self.exponents, self.cost
        if min(a, b) <= 0 or min(p, q) <= 0:
            raise ValueError(
                "the error or the cost does not depend on both axes, so that no pair of them is best"
            )
        if why := next(filter(None, self.unknown), ""):
            raise ValueError(f"an exponent {why}, so that the best share of FLOPs is undecided")
        rest = np.log(flops) - c
        first = (q * np.log(alpha * a * q / (beta * b * p)) + beta * rest) / (alpha * q + beta * p)
        return float(np.exp(first)), float(np.exp((rest - p * first) / q))

    def within_cells(self, x: float, z: float) -> bool:
        """True if a pair lies within the range of the trained cells."""
        cells = self.cells
        return bool(cells.x.min() <= x <= cells.x.max() and cells.z.min() <= z <= cells.z.max())

    def envelope(self) -> Envelope:
        """The least error as a function of FLOPs. Raises ValueError for the reasons of `best`."""
        exponent = float(_envelope_exponent(*self.exponents, *self.cost[1:]))
        flops = float(np.exp(self.cost[0]))
        above = float(self.value(*self.best(flops))) - self.floor
        return Envelope(self.floor, above * flops**exponent, exponent)


def fit_surface(x: Any, z: Any, error: Any, flops: Any) -> Surface:
    """The surface through the errors of runs at x and z; `flops` is the cost of each run.

    Runs with an error that is not finite and positive are left out. Raises ValueError for fewer than three values on
    an axis, or fewer than six cells (five parameters and one).
    """
    x, z, error, flops = (np.asarray(each, dtype=np.float64) for each in (x, z, error, flops))
    good = np.isfinite(error) & (error > 0) & np.isfinite(flops) & (np.minimum(np.minimum(x, z), flops) > 0)
    x, z, error, flops = x[good], z[good], error[good], flops[good]
    cells = _grouped(x, z, error)
    if min(len(np.unique(x)), len(np.unique(z))) < 3 or len(cells.x) <= PARAMETERS:
        raise ValueError(
            f"{len(np.unique(x))} by {len(np.unique(z))} values in {len(cells.x)} cells are too few for a surface; "
            f"3 on each axis and {PARAMETERS + 1} cells are needed"
        )
    design = np.stack([np.ones_like(x), np.log(x), np.log(z)], axis=1)
    cost, *_ = np.linalg.lstsq(design, np.log(flops), rcond=None)
    off = float(np.abs(np.expm1(design @ cost - np.log(flops))).max())
    exponents, linear, fitted = _best_exponents(cells)
    weight = cells.runs / fitted**2
    scatter = _scatter(cells, fitted)
    noise = scatter or cells.noise
    ranges: list[Ends] | None = None
    if noise is not None:
        _, p, q = cost
        quantities = (
            lambda alpha, beta: alpha + 0 * beta,
            lambda alpha, beta: beta + 0 * alpha,
            lambda alpha, beta: _share(alpha, beta, p, q),
            lambda alpha, beta: _envelope_exponent(alpha, beta, p, q),
        )
        ranges = _ranges(cells, weight, exponents, noise, quantities)
    logs = np.log(cells.error)
    goodness = 1 - float(np.sum((logs - np.log(fitted)) ** 2) / (np.sum((logs - logs.mean()) ** 2) or 1.0))
    return Surface(
        floor=float(linear[0]),
        scales=(float(linear[1]), float(linear[2])),
        exponents=(float(exponents[0]), float(exponents[1])),
        cost=(float(cost[0]), float(cost[1]), float(cost[2])),
        cost_off=off,
        intervals=(ranges[0], ranges[1]) if ranges else None,
        share_interval=ranges[2] if ranges else None,
        envelope_interval=ranges[3] if ranges else None,
        cells=cells,
        scatter=scatter is not None,
        goodness=goodness,
    )


def _unknown(exponent: float, interval: Ends | None) -> str:
    if not EXPONENT_LIMITS[0] * 1.01 < exponent < EXPONENT_LIMITS[1] * 0.99:
        return "is at the limit of the search"
    return "has no upper bound" if interval and np.isinf(interval[1]) else ""


def _share(alpha: Any, beta: Any, p: float, q: float) -> Any:
    return beta * p / (alpha * q + beta * p)


def _envelope_exponent(alpha: Any, beta: Any, p: float, q: float) -> Any:
    return alpha * beta / (alpha * q + beta * p)


def _grouped(x: Array, z: Array, error: Array) -> Cells:
    """Runs at the same x and z form one cell, with the geometric mean of their errors."""
    places, index = np.unique(np.stack([x, z], axis=1), axis=0, return_inverse=True)
    groups = [np.log(error[index.ravel() == number]) for number in range(len(places))]
    means = np.exp([group.mean() for group in groups])
    runs = np.array([len(group) for group in groups], dtype=np.float64)
    return Cells(places[:, 0], places[:, 1], means, runs, pool(groups))


def _basis(cells: Cells, alpha: Array, beta: Array) -> tuple[Array, Array]:
    """(x / least x)^-α and (z / least z)^-β, [exponents, cells]."""
    return (
        np.exp(-np.outer(alpha, np.log(cells.x / cells.x.min()))),
        np.exp(-np.outer(beta, np.log(cells.z / cells.z.min()))),
    )


def _losses(cells: Cells, weight: Array, alpha: Array, beta: Array) -> Array:
    """The least weighted sum of squares for every pair of exponents [alpha, beta], with E, A and B at least 0.

    Each subset of the three terms has a least sum. The smallest of those without a negative term is exact.
    """
    u, v = _basis(cells, alpha, beta)
    y, shape = cells.error, (len(alpha), len(beta))
    gram, pull = np.empty((*shape, 3, 3)), np.empty((*shape, 3))
    gram[..., 0, 0], gram[..., 0, 1], gram[..., 0, 2] = weight.sum(), (u @ weight)[:, None], v @ weight
    gram[..., 1, 1], gram[..., 2, 2] = (u**2 @ weight)[:, None], v**2 @ weight
    gram[..., 1, 2] = (u * weight) @ v.T
    for i, j in ((1, 0), (2, 0), (2, 1)):
        gram[..., i, j] = gram[..., j, i]
    pull[..., 0], pull[..., 1], pull[..., 2] = weight @ y, (u @ (weight * y))[:, None], v @ (weight * y)
    least = np.full(shape, np.inf)
    for size in (1, 2, 3):
        for chosen in itertools.combinations(range(3), size):
            part = gram[..., chosen, :][..., chosen] + 1e-13 * weight.sum() * np.eye(size)
            terms = np.linalg.solve(part, pull[..., chosen, None])[..., 0]
            loss = weight @ y**2 - (terms * pull[..., chosen]).sum(-1)
            least = np.where((terms >= 0).all(-1), np.minimum(least, loss), least)
    return least


def _linear(cells: Cells, weight: Array, exponents: Array) -> tuple[Array, Array]:
    """E, A and B for given exponents, and the fitted errors."""
    alpha, beta = exponents
    columns = np.stack([np.ones_like(cells.x), cells.x**-alpha, cells.z**-beta], axis=1)
    size = np.sqrt(weight)
    scale = np.abs(columns).max(0)
    terms = nnls(columns / scale * size[:, None], cells.error * size)[0] / scale
    return terms, columns @ terms


def _best_exponents(cells: Cells) -> tuple[Array, Array, Array]:
    """Exponents, linear coefficients and fitted errors. Each round takes its weights from the last fitted errors."""
    axis = np.geomspace(*EXPONENT_LIMITS, GRID)
    fitted, exponents, linear = cells.error, np.ones(2), np.zeros(3)
    for _ in range(REWEIGHTS):
        weight = cells.runs / fitted**2
        losses = _losses(cells, weight, axis, axis)
        start = axis[list(np.unravel_index(int(np.argmin(losses)), losses.shape))]

        def residual(logs: Array, weight: Array = weight) -> Array:
            return np.sqrt(weight) * (_linear(cells, weight, np.exp(logs))[1] - cells.error)

        bounds = (np.log(EXPONENT_LIMITS[0]), np.log(EXPONENT_LIMITS[1]))
        inside = np.clip(np.log(start), bounds[0] + 1e-6, bounds[1] - 1e-6)
        exponents = np.exp(least_squares(residual, inside, bounds=bounds, xtol=1e-10, ftol=1e-12).x)
        linear, fitted = _linear(cells, weight, exponents)
    return exponents, linear, fitted


def _scatter(cells: Cells, fitted: Array) -> PooledVariance | None:
    """The scatter of the cells about the surface; None unless it plainly exceeds the noise of the replicates."""
    freedom = len(cells.x) - PARAMETERS
    if cells.noise is None:
        return None
    lack = float(np.sum(cells.runs * np.log(cells.error / fitted) ** 2)) / freedom
    scatter = PooledVariance(lack, freedom)
    return scatter if scatter.plainly_exceeds(cells.noise) else None


def _ranges(
    cells: Cells,
    weight: Array,
    best: Array,
    noise: PooledVariance,
    quantities: tuple[Callable[[Array, Array], Array], ...],
) -> list[Ends]:
    """The range of each quantity over the exponents with an allowed sum of squares; an open end is 0 or infinite."""
    allowed = noise.variance * student(noise.freedom) ** 2
    alpha = beta = np.geomspace(*EXPONENT_LIMITS, GRID)
    region, at = np.ones((GRID, GRID), bool), (alpha, beta)
    for _ in range(ZOOMS):
        alpha, beta = np.union1d(alpha, best[0]), np.union1d(beta, best[1])
        losses = _losses(cells, weight, alpha, beta)
        inside = losses <= losses.min() + allowed
        rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        region, at = inside, (alpha, beta)
        alpha = np.geomspace(alpha[max(rows[0] - 1, 0)], alpha[min(rows[-1] + 1, len(alpha) - 1)], GRID)
        beta = np.geomspace(beta[max(columns[0] - 1, 0)], beta[min(columns[-1] + 1, len(beta) - 1)], GRID)
    ends = []
    for number, quantity in enumerate(quantities):
        values = quantity(at[0][:, None], at[1][None])[region]
        low, high = float(values.min()), float(values.max())
        if number < 2:
            low, high = (
                (0.0 if low <= EXPONENT_LIMITS[0] * 1.01 else low),
                (np.inf if high >= EXPONENT_LIMITS[1] * 0.99 else high),
            )
        ends.append((low, high))
    return ends
