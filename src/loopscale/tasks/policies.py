"""Policies for bandits: a policy maps a tally to a distribution over arms.

Tasks play and imitate these policies, and the solvers of `loopscale.solvers.bandits` give them to studies. All
policies treat arms alike: equal scores share the probability. All numbers are float64.

Thompson sampling is given as the distribution of its action, not as one draw: P(arm is best | history). For
independent arms, P(arm k is best) = ∫ f_k(x) Π_{j≠k} F_j(x) dx with the posterior density f and distribution F of a
mean. Gauss-Legendre quadrature is exact for Bernoulli arms, because the integrand is a polynomial.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # scipy loads its submodules at the first use
import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.tasks.bandit_games import Rules, Tally

PolicyName = Literal["empirical_mean", "ucb1", "lin_ucb", "soft_lin_ucb", "thompson"]
Policy = Callable[[Tally], Float[Tensor, "*rows K"]]
Exploration = float | Literal["theory"]
AUTHORS_EXPLORATION = 2.0
"""The factor of LinUCB's bonus in the code of @lin2024."""
TEMPERATURE = 0.1
"""τ of soft LinUCB."""
DRAWS = 512
"""Points of the quasi-random rule for Thompson sampling on linear bandits."""
PENALTY = 1.0
"""λ of LinUCB's ridge regression."""
FAILURE = 0.1
"""δ, the probability that the theory's confidence sets of LinUCB fail."""
NORMAL_REACH = 8.0
"""Standard deviations that the quadrature covers on each side of a normal prior."""
LARGEST = 2**22
"""Numbers that a policy computes at once. More rows are computed in parts."""


def uniform(tally: Tally) -> Float[Tensor, "*rows K"]:
    return _in_play(tally) / tally.rules.arms


def empirical_mean(tally: Tally) -> Float[Tensor, "*rows K"]:
    """The largest mean reward so far, after one play of every arm."""
    return _largest(torch.where(tally.counts > 0, tally.sums / tally.counts.clamp_min(1), torch.inf), tally)


def ucb1(tally: Tally, constant: Literal["theory", "authors"] = "theory") -> Float[Tensor, "*rows K"]:
    """theory: mean + √(2 ln t / n), after one play of every arm [@auer2002]. authors: s / (1 + n) + 1 / √(1 + n), as
    in the code of @lin2024."""
    counts, sums = tally.counts, tally.sums
    if constant == "authors":
        return _largest(sums / (1 + counts) + (1 + counts).rsqrt(), tally)
    rounds = counts.sum(-1, keepdim=True).clamp_min(1)
    played = counts.clamp_min(1)
    bonus = (2 * rounds.log() / played).sqrt()
    return _largest(torch.where(counts > 0, sums / played + bonus, torch.inf), tally)


def lin_ucb(tally: Tally, exploration: Exploration = AUTHORS_EXPLORATION) -> Float[Tensor, "*rows K"]:
    """The largest upper confidence bound <x, w> + α √(x'V⁻¹x) of ridge regression.

    `exploration` is α. theory is the width of @abbasi2011, theorem 2, with S = √d.
    """
    return _largest(_confidence_bounds(tally, exploration), tally)


def soft_lin_ucb(
    tally: Tally, exploration: Exploration = AUTHORS_EXPLORATION, temperature: float = TEMPERATURE
) -> Float[Tensor, "*rows K"]:
    """The softmax of the upper confidence bounds over the temperature [@lin2024]."""
    return (_confidence_bounds(tally, exploration) / temperature).softmax(-1)


def _confidence_bounds(tally: Tally, exploration: Exploration) -> Float[Tensor, "*rows K"]:
    assert tally.actions is not None, "LinUCB needs the features of the arms"
    gram, moment = _moments(tally)
    dim = gram.shape[-1]
    precision = gram + PENALTY * torch.eye(dim, dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.inv_ex(precision).inverse
    weights = (inverse @ moment[..., None]).squeeze(-1)
    directions = tally.actions @ inverse
    widths = (directions * tally.actions).sum(-1).clamp_min(0).sqrt()
    factor: float | Tensor
    if exploration != "theory":
        factor = exploration
    else:
        volume = torch.logdet(precision) - dim * math.log(PENALTY)
        radius = (2 * math.log(1 / FAILURE) + volume).sqrt()
        factor = (tally.rules.noise * radius + (PENALTY * dim) ** 0.5)[..., None]
    return (tally.actions * weights[..., None, :]).sum(-1) + factor * widths


def _moments(tally: Tally) -> tuple[Float[Tensor, "*rows dim dim"], Float[Tensor, "*rows dim"]]:
    """X'X and X'y of all plays."""
    assert tally.actions is not None
    turned = tally.actions.mT
    return (turned * tally.counts[..., None, :]) @ tally.actions, (turned @ tally.sums[..., None]).squeeze(-1)


def thompson(tally: Tally, draws: int = DRAWS) -> Float[Tensor, "*rows K"]:
    """P(arm is best | history).

    Exact up to rounding for independent arms. For a linear bandit the posterior is that of θ ~ N(0, I), also if the
    prior is another, as in the code of @lin2024. Then the probabilities are shares of `draws` quasi-random θ, with one
    more draw spread over all arms, so that no arm has probability 0.
    """
    if tally.actions is not None:
        return _in_parts(tally, draws * tally.counts.shape[-1], lambda part: _linear(part, draws))
    if tally.rules.rewards == "bernoulli":
        return _bernoulli(tally)
    nodes = _gaussian_nodes(tally)
    return _in_parts(tally, nodes * tally.counts.shape[-1], lambda part: _gaussian(part, nodes))


POLICIES: dict[PolicyName, Policy] = {
    "empirical_mean": empirical_mean,
    "ucb1": ucb1,
    "lin_ucb": lin_ucb,
    "soft_lin_ucb": soft_lin_ucb,
    "thompson": thompson,
}
"""The policies with the default settings of their solvers."""
FOR_FEATURES: tuple[PolicyName, ...] = ("lin_ucb", "soft_lin_ucb")
"""Policies that need the features of the arms."""


def _in_play(tally: Tally) -> Float[Tensor, "*rows K"]:
    """1 for arms that can be played, else 0."""
    arms = torch.arange(tally.counts.shape[-1], device=tally.counts.device) < tally.rules.arms
    return arms.to(tally.counts.dtype).expand(tally.counts.shape)


def _largest(scores: Float[Tensor, "*rows K"], tally: Tally) -> Float[Tensor, "*rows K"]:
    """All probability on the arms with the largest score."""
    scores = scores.masked_fill(_in_play(tally) == 0, -torch.inf)
    best = (scores == scores.amax(-1, keepdim=True)).to(scores.dtype)
    return best / best.sum(-1, keepdim=True)


def _in_parts(tally: Tally, per_row: int, compute: Policy) -> Float[Tensor, "*rows K"]:
    """`compute` on parts of the first dimension, so that memory stays bounded. A row needs `per_row` numbers."""
    rows = max(1, tally.counts[0].numel() // tally.counts.shape[-1])
    size = max(1, LARGEST // (rows * per_row))
    parts = [
        compute(
            Tally(
                tally.counts[n : n + size],
                tally.sums[n : n + size],
                tally.rules,
                None if tally.actions is None else tally.actions[n : n + size],
            )
        )
        for n in range(0, len(tally.counts), size)
    ]
    return torch.cat(parts)


def best_of_independent(
    density: Float[Tensor, "*rows K nodes"],
    below: Float[Tensor, "*rows K nodes"],
    weights: Float[Tensor, " nodes"],
) -> Float[Tensor, "*rows K"]:
    """P(arm has the largest mean), from densities and distribution functions at the nodes of a quadrature rule."""
    ones = torch.ones_like(below[..., :1, :])
    before = torch.cat([ones, below[..., :-1, :]], -2).cumprod(-2)
    after = torch.cat([ones, below.flip(-2)[..., :-1, :]], -2).cumprod(-2).flip(-2)
    return (density * before * after) @ weights


@lru_cache(maxsize=32)
def gauss_legendre(
    nodes: int, low: float, high: float, device: torch.device
) -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and weights on [low, high]."""
    x, weights = np.polynomial.legendre.leggauss(nodes)
    scale = (high - low) / 2
    return torch.tensor(low + scale * (1 + x), device=device), torch.tensor(scale * weights, device=device)


def _bernoulli(tally: Tally) -> Float[Tensor, "*rows K"]:
    """Arms with uniform priors. The density and distribution are computed once for every pair (wins, losses)."""
    device, arms = tally.counts.device, tally.rules.arms
    wins, losses = tally.sums, tally.counts - tally.sums
    codes, group = torch.unique(wins * 2.0**20 + losses, return_inverse=True)
    wins_of, losses_of = (
        torch.zeros_like(codes).scatter_(0, group.flatten(), each.flatten()) for each in (wins, losses)
    )
    nodes = (
        _most_rounds(tally) + arms
    ) // 2 + 1  # the degree of the integrand is the number of rounds plus K - 1
    x, weights = gauss_legendre(nodes, 0.0, 1.0, torch.device("cpu"))
    a, b, at = (1 + wins_of.cpu()[:, None]).numpy(), (1 + losses_of.cpu()[:, None]).numpy(), x.numpy()
    below = torch.from_numpy(scipy.special.betainc(a, b, at)).to(device)
    logs = (a - 1) * np.log(at) + (b - 1) * np.log1p(-at) - scipy.special.betaln(a, b)
    density = torch.from_numpy(logs).exp().to(device)
    playable = _in_play(tally)[..., None]
    per_row = nodes * tally.counts.shape[-1]
    size = max(1, LARGEST // per_row)
    groups, mask = group.flatten(0, -2), playable.flatten(0, -3)
    parts = [
        best_of_independent(
            density[rows] * shown, torch.where(shown > 0, below[rows], 1.0), weights.to(device)
        )
        for rows, shown in zip(groups.split(size), mask.split(size), strict=True)
    ]
    return torch.cat(parts).view(tally.counts.shape)


def _most_rounds(tally: Tally) -> int:
    """An upper bound on the rounds of a tally, rounded up to a multiple of 32, so that few rules are made."""
    most = float(tally.counts.sum(-1).amax().nan_to_num(0.0))
    return 32 * math.ceil(min(max(most, 0.0), 4096.0) / 32)


def _support(rules: Rules) -> tuple[float, float]:
    """The range of a mean that the quadrature covers."""
    reach = NORMAL_REACH * NORMAL_VARIANCE**0.5
    return (0.0, 1.0) if rules.prior == "uniform" else (0.5 - reach, 0.5 + reach)


NORMAL_VARIANCE = 1 / 12
"""Variance of a mean with a normal prior: that of a uniform mean, as in the code of @lee2023."""


def _gaussian_nodes(tally: Tally) -> int:
    """Nodes such that three lie within a standard deviation of the narrowest posterior."""
    low, high = _support(tally.rules)
    narrowest = tally.rules.noise / max(1, _most_rounds(tally)) ** 0.5
    return 32 + min(4096, math.ceil(3 * (high - low) / narrowest))


def _gaussian(tally: Tally, nodes: int) -> Float[Tensor, "*rows K"]:
    """Gaussian rewards: posteriors are normal, cut off at 0 and 1 for a uniform prior."""
    low, high = _support(tally.rules)
    x, weights = gauss_legendre(nodes, low, high, tally.counts.device)
    precision = tally.counts / tally.rules.noise**2
    total = tally.sums / tally.rules.noise**2
    if tally.rules.prior == "normal":
        precision, total = precision + 1 / NORMAL_VARIANCE, total + 0.5 / NORMAL_VARIANCE
    playable = _in_play(tally)[..., None]
    # exp(total x - precision x² / 2) is the density up to a factor; for no data it is flat.
    logs = total[..., None] * x - precision[..., None] * x.square() / 2
    peaks = (logs - logs.amax(-1, keepdim=True)).exp()
    mass = (peaks @ weights)[..., None]
    scale = precision.clamp_min(1e-300).rsqrt()[..., None]
    centre = (total / precision.clamp_min(1e-300))[..., None]
    z, z_low, z_high = ((each - centre) / scale for each in (x, low, high))
    # On the far side of the cut the upper tails are the small numbers, which keep their digits.
    flip = torch.where(centre < (low + high) / 2, -1.0, 1.0)
    part = torch.special.ndtr(flip * z) - torch.special.ndtr(flip * torch.where(flip > 0, z_low, z_high))
    all_mass = torch.special.ndtr(flip * z_high) - torch.special.ndtr(flip * z_low)
    below = torch.where(flip > 0, part / all_mass, 1 + part / all_mass)
    below = torch.where(precision[..., None] > 0, below, (x - low) / (high - low))
    below = torch.where(playable > 0, below, 1.0)
    return best_of_independent(playable * peaks / mass, below, weights)


@lru_cache(maxsize=8)
def normal_points(draws: int, dim: int, device: torch.device) -> Float[Tensor, "draws dim"]:
    """Quasi-random points of N(0, I)."""
    engine = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0)
    points = engine.draw(draws, dtype=torch.float64)
    # The rule of an engine has float32 resolution. A point at 0 or 1 would be at infinity.
    return torch.special.ndtri(points.clamp(2**-24, 1 - 2**-24)).to(device)


def _linear(tally: Tally, draws: int) -> Float[Tensor, "*rows K"]:
    """Shares of draws of θ from the posterior for which an arm is the best one."""
    assert tally.actions is not None
    gram, moment = _moments(tally)
    variance = tally.rules.noise**2
    dim, arms = gram.shape[-1], tally.counts.shape[-1]
    precision = gram / variance + torch.eye(dim, dtype=gram.dtype, device=gram.device)
    factor = torch.linalg.cholesky_ex(precision).L
    centre = torch.cholesky_solve(moment[..., None] / variance, factor)
    points = normal_points(draws, dim, gram.device).mT.expand(*gram.shape[:-2], -1, -1)
    thetas = centre + torch.linalg.solve_triangular(factor.mT, points, upper=True)
    best = (tally.actions @ thetas).argmax(-2)
    shares = torch.zeros_like(tally.counts).scatter_add_(-1, best, torch.ones_like(best, dtype=gram.dtype))
    return (shares + 1 / arms) / (draws + 1)
