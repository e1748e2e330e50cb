"""Policies for tabular Markov decision processes: a policy maps a tally to a distribution over actions.

Tasks play and imitate these policies, and the solvers of `loopscale.solvers.mdps` give them to studies. Equal values
share the probability. All numbers are float64.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import scipy  # scipy loads its submodules at the first use
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot

from loopscale.tasks.mdp_games import Counts, MdpRules, MdpTally, largest, optimal_values

MdpPolicyName = Literal["ucb_vi", "posterior_sampling"]
MdpPolicy = Callable[[MdpTally], Float[Tensor, "*rows A"]]
Bonus = float | Literal["theory"]
PRACTICAL_BONUS = 0.5
"""c, the factor of the bonus c / √N."""
FAILURE = 0.1
"""δ, the probability that the theory's confidence sets fail."""
DRAWS = 64
"""Problems that are drawn from the posterior."""
LARGEST = 2**22
"""Numbers that a policy computes at once. More rows are computed in parts."""
QUANTILE_BLOCK = 32
"""Shapes of gamma variables whose quantiles are computed together."""
QUANTILE_NODES = 12
"""Shapes in an octave whose quantiles are computed. The others are interpolated, within 1e-11 of their value."""
LOG_ZERO = -690.0
"""The logarithm of a probability of 0, as a number that can be multiplied by 0."""


def ucb_vi(tally: MdpTally, bonus: Bonus = PRACTICAL_BONUS) -> Float[Tensor, "*rows A"]:
    """The action with the largest optimistic value, from the plays before the episode."""
    return tally.at_state(optimistic_policy(tally.begun, tally.rules, bonus))


def theory_confidence(rules: MdpRules) -> float:
    """ι = ln(2 S A H K / δ), in the theory's bonus 2 H √(ι / N)."""
    cells = rules.states * rules.actions * rules.horizon * rules.episodes
    return math.log(2 * cells / FAILURE)


def optimistic_policy(counts: Counts, rules: MdpRules, bonus: Bonus) -> Float[Tensor, "*rows H S A"]:
    """Greedy actions for Q_h = min(r + bonus + P V_{h+1}, most), with V_h = max_a Q_h(., a) [@azar2017].

    theory: the bonus 2 H √(ι / max(1, N)), and `most` is H. A number c: the bonus c / √N, and `most` is H - h, which
    the rewards of the stages h .. H - 1 cannot exceed. A play without a known next state counts for the last stage
    alone.
    """
    theory, horizon = bonus == "theory", rules.horizon
    moved = counts.moves.sum(-1)
    factor = 2 * horizon * theory_confidence(rules) ** 0.5 if theory else float(bonus)
    rewards = counts.gains / counts.visits.clamp_min(1)
    chances = counts.moves / moved.clamp_min(1)[..., None]
    value, tables = torch.zeros_like(counts.visits[..., 0, :, 0]), list[Tensor]()
    for stage in reversed(range(horizon)):
        layer = 0 if rules.stationary else stage
        known = (counts.visits if stage == horizon - 1 else moved)[..., layer, :, :]
        most = float(horizon if theory else horizon - stage)
        later = torch.einsum("...saz,...z->...sa", chances[..., layer, :, :, :], value)
        found = rewards[..., layer, :, :] + later + factor * known.clamp_min(1).rsqrt()
        values = torch.where(known > 0, found.clamp_max(most), most)
        tables.append(values)
        value = values.amax(-1)
    return largest(torch.stack(tables[::-1], -3))


def posterior_sampling(tally: MdpTally, draws: int = DRAWS) -> Float[Tensor, "*rows A"]:
    """P(action is optimal | history): the distribution of the action of posterior sampling [@osband2013].

    For random problems the posterior is Dirichlet(1 + moves) for every row of transitions, and Beta(1 + gains,
    1 + losses) for every mean reward. The probabilities are shares of `draws` problems, with one more draw spread over
    all actions. A problem is a function of counts and of fixed uniform numbers, so equal histories give equal answers.
    For chains the posterior is exact.
    """
    rules = tally.rules
    if rules.environment == "chain":
        return _chain_posterior(tally)
    now = tally.now
    # A row of the first dimension has `moves[0].numel()` cells, and a draw needs about two numbers for each.
    size = max(1, LARGEST // max(1, 2 * draws * now.moves[0].numel()))
    stage = tally.stage.expand(tally.state.shape[:-1])
    parts = [
        _shares(
            Counts(*(each[n : n + size] for each in (now.visits, now.gains, now.moves))),
            stage[n : n + size],
            tally.state[n : n + size],
            rules,
            draws,
        )
        for n in range(0, len(tally.state), size)
    ]
    return torch.cat(parts)


def _shares(
    counts: Counts, stage: Tensor, state: Float[Tensor, "*rows S"], rules: MdpRules, draws: int
) -> Float[Tensor, "*rows A"]:
    """Shares of drawn problems in which an action is optimal."""
    losses = counts.visits - counts.gains
    numbers = torch.cat([counts.moves, counts.gains[..., None], losses[..., None]], -1)
    shape, cells = numbers.shape, numbers.shape[-4:].numel()
    # A gamma variable with the shape 1 + n, for every n, draw and cell.
    rounds = rules.horizon * rules.episodes
    asked = numbers.flatten(-4).nan_to_num(0.0).round().long().clamp(0, rounds)[..., None, :]
    blocks = range(int(asked.max()) // QUANTILE_BLOCK + 1)
    table = torch.cat([_gamma_quantiles(draws, cells, block) for block in blocks]).to(numbers.device)
    draw = torch.arange(draws, device=numbers.device)[:, None]
    drawn = table[asked, draw, torch.arange(cells, device=numbers.device)].unflatten(-1, shape[-4:])
    onward, gained, lost = drawn[..., :-2], drawn[..., -2], drawn[..., -1]
    onward = onward * (torch.arange(onward.shape[-1], device=onward.device) < rules.states)
    onward = onward / onward.sum(-1, keepdim=True)
    values = optimal_values(gained / (gained + lost), onward, rules.horizon)
    at = one_hot(stage, rules.horizon).to(values)
    here = torch.einsum("...h,...s,...dhsa->...da", at, state.to(values), values)
    actions = here.shape[-1]
    votes = one_hot(here.argmax(-1), actions).to(values).sum(-2)
    return (votes + 1 / actions) / (draws + 1)


@lru_cache(maxsize=256)
def _gamma_quantiles(draws: int, cells: int, block: int) -> Float[Tensor, "shapes draws cells"]:
    """Quantiles of gamma variables at quasi-random points, for the shapes 1 .. 32 in block 0, 33 .. 64 in block 1 ..

    Few cells are visited in most rounds, so blocks are computed as they are needed. A quantile is a smooth function of
    the logarithm of the shape. From block 1 on, a few shapes in each octave are computed, and the others are
    interpolated. All quantiles of 16,384 rounds would take a minute.
    """
    shapes = torch.arange(1, 1 + QUANTILE_BLOCK, dtype=torch.float64) + QUANTILE_BLOCK * block
    if not block:
        return _quantiles_at(draws, cells, shapes)
    octave = int(math.log2(block))
    place = (shapes / (QUANTILE_BLOCK * 2**octave)).log2()
    return torch.einsum("sn,ndc->sdc", _between(place), _octave_of_quantiles(draws, cells, octave))


def _quantiles_at(
    draws: int, cells: int, shapes: Float[Tensor, " shapes"]
) -> Float[Tensor, "shapes draws cells"]:
    engine = torch.quasirandom.SobolEngine(cells, scramble=True, seed=0)
    # The rule of an engine has float32 resolution. A point at 0 or 1 would be at 0 or infinity.
    points = engine.draw(draws, dtype=torch.float64).clamp(2**-24, 1 - 2**-24).cpu().numpy()
    found = [scipy.special.gammaincinv(shape, points) for shape in shapes.tolist()]
    return torch.stack([torch.from_numpy(each) for each in found])


@lru_cache(maxsize=16)
def _octave_of_quantiles(draws: int, cells: int, octave: int) -> Float[Tensor, "nodes draws cells"]:
    """Quantiles at Chebyshev nodes between the shapes 32 and 64 in octave 0, 64 and 128 in octave 1 .."""
    return _quantiles_at(draws, cells, QUANTILE_BLOCK * 2.0**octave * 2 ** _nodes())


def _nodes() -> Float[Tensor, " nodes"]:
    """Chebyshev nodes of [0, 1]."""
    odd = 2 * torch.arange(QUANTILE_NODES, dtype=torch.float64) + 1
    return (1 - (math.pi * odd / (2 * QUANTILE_NODES)).cos()) / 2


def _between(place: Float[Tensor, " places"]) -> Float[Tensor, "places nodes"]:
    """The weights of the values at the nodes in the interpolating polynomial (Lagrange)."""
    nodes = _nodes()
    others = ~torch.eye(len(nodes), dtype=torch.bool)
    above = torch.where(others, place[:, None, None] - nodes, 1.0).prod(-1)
    return above / torch.where(others, nodes[:, None] - nodes, 1.0).prod(-1)


def _chain_posterior(tally: MdpTally) -> Float[Tensor, "*rows A"]:
    """P(action leads forward | history), and equal probabilities where the end of the chain is out of reach."""
    rules, counts = tally.rules, tally.now
    last, actions = rules.states - 1, rules.actions
    logs = [
        each.to(counts.moves.device)
        for each in _chain_likelihoods(rules.states, tally.state.shape[-1], actions, rules.slip)
    ]
    likelihood = (
        torch.einsum("...lsaz,fsaz->...lsf", counts.moves, logs[0])
        + torch.einsum("...lsa,fsa->...lsf", counts.gains, logs[1])
        + torch.einsum("...lsa,fsa->...lsf", counts.visits - counts.gains, logs[2])
    )
    tables = likelihood.softmax(-1).expand(*likelihood.shape[:-3], rules.horizon, -1, -1)
    states = torch.arange(tally.state.shape[-1], device=likelihood.device)
    stages = torch.arange(rules.horizon, device=likelihood.device)[:, None]
    useful = last - states < rules.horizon - stages
    return tally.at_state(torch.where(useful[..., None], tables, 1 / actions))


@lru_cache(maxsize=8)
def _chain_likelihoods(
    states: int, all_states: int, actions: int, slip: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Logarithms of the probabilities of a move, of a reward and of no reward, if action f leads forward."""
    chances = torch.zeros(actions, all_states, actions, all_states, dtype=torch.float64)
    gains = torch.zeros(actions, all_states, actions, dtype=torch.float64)
    for forward in range(actions):
        chances[forward], gains[forward] = chain_tables(
            torch.full((all_states,), forward), states, actions, slip
        )
    return tuple(  # pyright: ignore[reportReturnType]: three tensors
        each.log().clamp_min(LOG_ZERO) for each in (chances, gains, 1 - gains)
    )


def chain_tables(
    forward: Tensor, states: int, actions: int, slip: float
) -> tuple[Float[Tensor, "*rows S A S"], Float[Tensor, "*rows S A"]]:
    """Transitions and mean rewards of chains, from the forward action [*rows, S] of every state."""
    size = forward.shape[-1]
    ahead = one_hot(forward, actions).double()
    here = torch.eye(size, dtype=torch.float64, device=forward.device)
    beyond = here.roll(1, dims=1)
    beyond[states - 1 :] = here[states - 1 :]  # the last state leads to itself
    moved = (1 - slip) * beyond + slip * here
    moves = ahead[..., None] * moved[:, None] + (1 - ahead)[..., None] * here[0]
    pays = torch.arange(size, device=forward.device) == states - 1
    return moves, ahead * pays[:, None]


MDP_POLICIES: dict[MdpPolicyName, MdpPolicy] = {"ucb_vi": ucb_vi, "posterior_sampling": posterior_sampling}
"""The policies with the default settings of their solvers."""
