"""Soft UCB-VI in tabular episodic decision problems: optimistic values by backward induction, softmax over actions.

The net reads plays (h, s, a, r, s'): one-hot stage, state and action, the reward, and the one-hot next state. The
last token (h, s, 0, 0, 0) asks for the policy at a stage and state. Registers stand for every (h, s) and every (h,
s, a), the cells. Conjunctions match plays with cells, so that counts are integers. Functions of counts are exact,
because their knots are integers.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot, pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.mdp_games import Episodes
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows, Term
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import UNDERFLOW
from loopscale.theory.constructions.logic import add_largest, conjunction
from loopscale.theory.constructions.piecewise import Piecewise, integer_knots
from loopscale.theory.constructions.players import Player

SYSTEM = "decision making"


class UcbVi(Player, kind="ucb_vi"):
    """Q_h = min(r + bonus + P V_{h+1}, H) and V_h = max_a Q_h(., a). The policy is softmax(Q_h / temperature).

    With N visits of a cell, r and P are sums divided by max(1, N), and the bonus is 2H sqrt(ι / max(1, N)). A step
    is a sweep that updates V of all stages at once, from V = 0. H - 1 sweeps are backward induction, and more sweeps
    change nothing.

    The net has 2 + (H-1)(1 + ceil(log2 A)) + 2 layers, or 2H + 2 with `maximum: softmax`. The source states 2H + 8
    layers (`ucbvi_depth`) for an exact net. With two actions the tournament has 2H + 2. More actions take more layers,
    because the MLP of a layer finds the larger of two numbers. The last token outputs the probabilities of the
    actions. Rewards must be at least -1: masks allow |Q| <= H.
    """

    source = "@lin2024, theorem 12"
    algorithm = "soft UCB-VI"
    solves = Episodes
    horizon: PositiveInt = 3
    """H, the number of stages of an episode."""
    confidence: NonNegativeFloat = 0.03
    """ι, in the bonus. With 1 every Q is H until actions have many visits, and the policy is uniform."""
    temperature: PositiveFloat = 0.1
    """The temperature of the softmax over actions."""
    maximum: Literal["tournament", "softmax"] = "tournament"
    """tournament: exact, in ceil(log2 A) levels. softmax: one layer, too small by at most (A - 1) / (e · sharpness)."""
    sharpness: PositiveFloat = 1e8
    """β, of the maximum by softmax."""

    @property
    @override
    def limit(self) -> Limit | None:
        if self.maximum == "tournament" or self.horizon == 1:  # one stage needs no maximum
            return None
        # Small errors of Q, so that the probabilities respond linearly.
        return Limit(
            "sharpness", 1.0, tuple(sharpness / self.temperature for sharpness in (1e2, 1e3, 1e4, 1e5))
        )

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("exact", f"2H + 8 = {2 * self.horizon + 8}")

    @override
    def example(self, rng: torch.Generator) -> Example:
        """Every play occurs twice, with twin actions. One twin pays more, by order 1 / β for a maximum by softmax.

        This lead gives the largest possible error, up to a factor. A fixed lead would give an exponentially small
        error.
        """
        stages, steps, prompts = self.horizon, max(5, self.horizon), 8
        h, s, a, r, after = (part.double() for part in random_episodes(rng, (stages, 3, 2), 24, prompts))
        r = r / 3 - min(1, 2 * stages * self.confidence**0.5)  # otherwise many Q would be clipped at H
        most = 3 / self.sharpness if self.maximum == "softmax" else 1 / 3
        leads = most * torch.rand(prompts, stages, 3, generator=rng, dtype=torch.float64)
        twin = r + torch.einsum("pnh,pns,phs->pn", h, s, leads)[..., None]
        pairs = [
            torch.cat([h, s, pad(a, (0, 2)), r, after], -1),
            torch.cat([h, s, pad(a, (2, 0)), twin, after], -1),
        ]
        log = torch.cat(pairs, 1)
        # The query is the state in which most episodes begin. Other states may have no visits at all.
        begun = one_hot((h[..., :1] * s).sum(1).argmax(-1), 3).double()
        asked = torch.cat([h[:, :1], begun[:, None], torch.zeros_like(log[:, :1, stages + 3 :])], -1)
        h, s, a, r, after = log.split([stages, 3, 4, 1, 3], -1)
        q = value_sweeps(h, s, a, r, after, self.confidence, steps)
        start = torch.einsum("ps,tpsa->tpa", begun, q[:, :, 0])
        tokens = torch.cat([log, asked], 1)
        return Example.at_last(tokens, (start / self.temperature).softmax(-1))

    @override
    def design(self, prompt: Prompt) -> Design:
        stages, actions = self.horizon, prompt.dim_out
        states = (prompt.dim_in - stages - actions - 1) // 2
        fits = stages + actions + 1 + 2 * states == prompt.dim_in
        self.require(
            fits and states > 0, "tokens (h, s, a, r, s') in which h has as many coordinates as the horizon"
        )
        self.require(actions > 1, "at least two actions")
        rows = _rows(stages, states, actions)
        read_in = rows.read_in("h", "s", "a", "r", "after")
        positions = torch.cat([_registers(rows), _played(rows, prompt.length)])
        before = [self._count(rows, prompt.length - 1), self._average(rows)]
        loop = [self._backup(rows), *self._maximum(rows)]
        maximum: Kind = "relu" if self.maximum == "tournament" else "softmax"
        kinds: list[Kind] = ["relu", "relu", "relu", *[maximum for _ in loop[1:]], "relu", "softmax"]
        after = [self._backup(rows), self._softmax(rows, "last", 1 / self.temperature, ("a", "policy"))]
        return Design(rows, read_in, rows["policy"], positions, before, loop, after, attention=kinds)

    @override
    def tokens_before(self, history: Episodes, query: int) -> Float[Tensor, "batch tokens dim_in"]:
        """The plays before the episode of the query, and the stage and the state of the query.

        The state after the last stage of an episode is 0, because no value follows. A stationary problem is played
        with counts of every stage on its own, as in the source.
        """
        stages = history.rules.horizon
        if self.horizon != stages:
            raise ValueError(
                f"construction {self.kind} has horizon {self.horizon}, and the episodes have {stages} stages; "
                f"write horizon: {stages}"
            )
        begun, states = query - query % stages, history.states.double()
        stage = one_hot(torch.arange(begun) % stages, stages).to(states).expand(len(states), -1, -1)
        follows = (torch.arange(begun) % stages < stages - 1).to(states)[:, None]
        after = states[:, 1 : begun + 1] * follows if begun else states[:, :0]
        parts = [stage, states[:, :begun], history.plays[:, :begun].double()]
        plays = torch.cat([*parts, history.ys[:, :begun, None].double(), after], -1)
        asked = plays.new_zeros(len(states), 1, plays.shape[-1])
        asked[:, 0, query % stages] = 1
        asked[:, 0, stages : stages + states.shape[-1]] = states[:, query]
        return torch.cat([plays, asked], 1)

    def _count(self, rows: StateRows, most: int) -> BlockPlan:
        """Visits, rewards and next states of every cell. The MLP computes 1 / N and the bonus from the visits."""
        moves = [(rows["played"], rows["n"]), (rows["r"], rows["sum"]), (rows["after"], rows["counts"])]
        plan = BlockPlan().head(conjunction(rows, *_same(rows, "hsa")), moves)
        knots = integer_knots(0, max(most, 1))
        Piecewise.through(lambda n: 1 / n.clamp_min(1), knots, -1).add_units(plan, rows["n"], rows["share"])
        bonus = 2 * self.horizon * self.confidence**0.5
        width = Piecewise.through(lambda n: bonus * n.clamp_min(1) ** -0.5, knots, -1)
        return width.add_units(plan, rows["n"], rows["bonus"])

    def _average(self, rows: StateRows) -> BlockPlan:
        """A cell attends to itself with the score 1 / N."""
        cell: Term = (rows["one"], rows["cell"])
        score = conjunction(rows, *_same(rows, "hsa"), cell, payload=(rows["share"], rows["one"]))
        plan = BlockPlan().head(score, [(rows["counts"], rows["p"]), (rows["sum"], rows["base"])])
        return plan.add(rows["bonus"], rows["base"])

    def _backup(self, rows: StateRows) -> BlockPlan:
        """Q of every cell from V of the next stage. V is cleared."""
        most = float(self.horizon)
        later = torch.cat([torch.zeros_like(rows["h"][:1]), rows["h"][:-1]])
        matches: list[Term] = [(later, rows["h"]), (rows["one"], rows["state"])]
        score = conjunction(rows, *matches, payload=(rows["p"], rows["s"]))
        plan = BlockPlan().head(score, [(rows["v"], rows["pv"])])
        plan.clear(torch.cat([rows["q"], rows["pv"], rows["v"]])).constant(rows["q"], most)
        return plan.unit(-rows["base"] - rows["pv"], most, -rows["q"])

    def _maximum(self, rows: StateRows) -> list[BlockPlan]:
        """V of every state from the Q of its cells."""
        if self.maximum == "softmax":
            return [self._softmax(rows, "state", self.sharpness, ("q", "v"))]
        plan = BlockPlan()
        for n in range(len(rows["a"])):
            matches: list[Term] = [(rows["state"], rows["cell"]), (rows["one"], rows.part("a", n))]
            plan.head(conjunction(rows, *_same(rows, "hs"), *matches), [(rows["q"], rows.part("entries", n))])
        return add_largest(plan, rows["entries"], rows["v"])

    def _softmax(self, rows: StateRows, asking: str, sharpness: float, move: tuple[str, str]) -> BlockPlan:
        """A head with which a token attends to the cells of its stage and state, with scores proportional to Q."""
        far = UNDERFLOW + 2 * self.horizon * sharpness
        cells: list[Term] = [*_same(rows, "hs"), (rows["one"], rows["cell"])]
        score = [(far * query, key) for query, key in cells]
        score += [(-3 * far * rows["one"], rows["one"]), (sharpness * rows[asking], rows["q"])]
        return BlockPlan().head(score, [(rows[move[0]], rows[move[1]])])


def _rows(stages: int, states: int, actions: int) -> StateRows:
    one_hot = {"h": stages, "s": states, "a": actions}
    sums = {"after": states, "counts": states, "p": states, "entries": actions, "policy": actions}
    flags, numbers = (
        ("one", "played", "last", "state", "cell"),
        ("r", "n", "sum", "share", "bonus", "base", "pv"),
    )
    return StateRows(**one_hot, **sums, **dict.fromkeys((*flags, *numbers, "q", "v"), 1))


def _same(rows: StateRows, names: str) -> list[Term]:
    return [(rows[name], rows[name]) for name in names]


def _registers(rows: StateRows) -> Tensor:
    """One token for every (h, s), then one for every (h, s, a)."""
    h, s, a = (torch.eye(rows.sizes[name], dtype=torch.float64) for name in "hsa")
    stage, state = h.repeat_interleave(len(s), 0), s.repeat(len(h), 1)
    cells = {"h": stage.repeat_interleave(len(a), 0), "s": state.repeat_interleave(len(a), 0)}
    return torch.cat(
        [
            rows.state(len(stage), one=1.0, state=1.0, h=stage, s=state),
            rows.state(len(stage) * len(a), one=1.0, cell=1.0, a=a.repeat(len(stage), 1), **cells),
        ]
    )


def _played(rows: StateRows, length: int) -> Tensor:
    """The states of the prompt's tokens without data."""
    return torch.cat([rows.state(length - 1, one=1.0, played=1.0), rows.state(1, one=1.0, last=1.0)])


def random_episodes(
    rng: torch.Generator, sizes: tuple[int, int, int], count: int, prompts: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Random play in random problems with these numbers of stages, states and actions.

    Returns h, s, a, r and s', each of shape [prompts, plays, size].
    """
    stages, states, actions = sizes
    transitions = torch.randn(prompts, stages, states, actions, states, generator=rng).softmax(-1)
    means = torch.rand(prompts, stages, states, actions, generator=rng)
    prompt = torch.arange(prompts)[:, None].expand(prompts, count)
    s, log = torch.randint(states, (prompts, count), generator=rng), []
    for h in range(stages):
        a = torch.randint(actions, (prompts, count), generator=rng)
        r = torch.bernoulli(means[prompt, h, s, a], generator=rng)
        after = torch.multinomial(transitions[prompt, h, s, a].flatten(0, 1), 1, generator=rng).view_as(s)
        log.append((torch.full_like(s, h), s, a, r, after))
        s = after
    h, s, a, r, after = (torch.cat(parts, 1) for parts in zip(*log, strict=True))
    return one_hot(h, stages), one_hot(s, states), one_hot(a, actions), r[..., None], one_hot(after, states)


def value_sweeps(
    h: Float[Tensor, "prompts plays stages"],
    s: Float[Tensor, "prompts plays states"],
    a: Float[Tensor, "prompts plays actions"],
    r: Float[Tensor, "prompts plays 1"],
    after: Float[Tensor, "prompts plays states"],
    confidence: float,
    steps: int,
) -> Float[Tensor, "steps prompts stages states actions"]:
    """Q after 1, 2, ... sweeps of V over all stages at once, from V = 0. stages - 1 sweeps are backward induction."""
    stages = h.shape[2]
    visits = torch.einsum("pnh,pns,pna->phsa", h, s, a).clamp_min(1)
    rewards = torch.einsum("pnh,pns,pna,pn->phsa", h, s, a, r[..., 0]) / visits
    transitions = torch.einsum("pnh,pns,pna,pnz->phsaz", h, s, a, after) / visits[..., None]
    base, iterates = rewards + 2 * stages * (confidence / visits).sqrt(), []
    v = torch.zeros_like(base[..., 0])
    for _ in range(steps + 1):
        later = torch.cat([v[:, 1:], torch.zeros_like(v[:, :1])], 1)
        q = (base + torch.einsum("phsaz,phz->phsa", transitions, later)).clamp_max(stages)
        v = q.amax(-1)
        iterates.append(q)
    return torch.stack(iterates[1:])
