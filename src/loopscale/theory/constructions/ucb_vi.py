"""Soft UCB-VI in tabular episodic decision problems: optimistic values by backward induction, a softmax over actions.

The net reads what was played, tokens (h, s, a, r, s') of one-hot stage, state and action, the reward, and the one-hot
state that followed; and last a token (h, s, 0, 0, 0) that asks what to play. Registers stand for every (h, s) and
every (h, s, a). What matches is found by conjunctions, so that counts are whole numbers, and what is made of
counts, by pieces with knots at whole numbers, is exact.
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
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.logic import agreeing, largest
from loopscale.theory.constructions.piecewise import Piecewise, whole
from loopscale.theory.constructions.plan import Plan, Rows, Term


class UcbVi(Construction, kind="ucb_vi"):
    """Q_h = min(r + bonus + P V_{h+1}, H), V_h its maximum over actions; plays softmax(Q_h(s, .) / temperature).

    With N visits r and P are means, over max(1, N), and the bonus is 2H sqrt(ι / max(1, N)). A step is a sweep: V of
    all stages from V of all stages, first 0, so that H - 1 sweeps are backward induction, and more change nothing.
    Then the net has 2 + (H-1)(1 + ceil(log2 A)) + 2 layers, or 2H + 2 where the maximum is by softmax. The source's
    2H + 8 for an exact net is met for two actions; a layer's MLP finds the larger of two, not of more. Read out at
    the last token are the probabilities of the actions. Rewards are -1 at least: masks are made for |Q| <= H.
    """

    source = "Lin et al. 2024 (Transformers as decision makers), theorem on soft UCB-VI"
    algorithm = "soft UCB-VI"
    horizon: PositiveInt = 3
    """H, the stages of an episode."""
    confidence: NonNegativeFloat = 0.03
    """ι, in the bonus. With 1 all Q are H, and nothing is told apart, before actions have been played often."""
    temperature: PositiveFloat = 0.1
    """Of the softmax over actions."""
    maximum: Literal["tournament", "softmax"] = "tournament"
    """Exact, two by two, or in one layer, too small by at most (A - 1) / (e · sharpness)."""
    sharpness: PositiveFloat = 1e8
    """β, of the maximum by softmax."""

    @property
    @override
    def limit(self) -> Limit | None:
        if self.maximum == "tournament" or self.horizon == 1:  # of one stage, no maximum is used
            return None
        # Where probabilities are no longer bent by what is off in Q.
        return Limit("sharpness", 1.0, tuple(each / self.temperature for each in (1e2, 1e3, 1e4, 1e5)))

    @override
    def example(self, rng: torch.Generator) -> Example:
        """Every play is there twice, of twin actions, of which one pays more: some 1 / β, for a maximum by softmax.

        There it is off by as much as it can be, in order; by a fixed lead it would be exponentially little.
        """
        stages, steps, prompts = self.horizon, max(5, self.horizon), 8
        h, s, a, r, after = (part.double() for part in episodes(rng, (stages, 3, 2), 24, prompts))
        r = r / 3 - min(1, 2 * stages * self.confidence**0.5)  # else many Q would be H, whatever was played
        most = 3 / self.sharpness if self.maximum == "softmax" else 1 / 3
        leads = most * torch.rand(prompts, stages, 3, generator=rng, dtype=torch.float64)
        twin = r + torch.einsum("pnh,pns,phs->pn", h, s, leads)[..., None]
        pairs = [
            torch.cat([h, s, pad(a, (0, 2)), r, after], -1),
            torch.cat([h, s, pad(a, (2, 0)), twin, after], -1),
        ]
        log = torch.cat(pairs, 1)
        # Asked is about the state in which most episodes begin: of others there may be nothing known to differ.
        begun = one_hot((h[..., :1] * s).sum(1).argmax(-1), 3).double()
        asked = torch.cat([h[:, :1], begun[:, None], torch.zeros_like(log[:, :1, stages + 3 :])], -1)
        h, s, a, r, after = log.split([stages, 3, 4, 1, 3], -1)
        q = sweeps(h, s, a, r, after, self.confidence, steps)
        start = torch.einsum("ps,tpsa->tpa", begun, q[:, :, 0])
        tokens = torch.cat([log, asked], 1)
        return Example.at_last(tokens, (start / self.temperature).softmax(-1))

    @override
    def design(self, prompt: Prompt) -> Design:
        stages, actions = self.horizon, prompt.dim_out
        states = (prompt.dim_in - stages - actions - 1) // 2
        whole = stages + actions + 1 + 2 * states == prompt.dim_in
        self.require(whole and states > 0, "tokens (h, s, a, r, s') with h of as many rows as the horizon")
        self.require(actions > 1, "two actions or more")
        rows = _rows(stages, states, actions)
        read_in = torch.cat([rows[name] for name in ("h", "s", "a", "r", "after")]).T
        positions = torch.cat([_registers(rows), _played(rows, prompt.length)])
        before = [self._count(rows, prompt.length - 1), self._average(rows)]
        loop = [self._backup(rows), *self._maximum(rows)]
        maximum: Kind = "relu" if self.maximum == "tournament" else "softmax"
        kinds: list[Kind] = ["relu", "relu", "relu", *[maximum for _ in loop[1:]], "relu", "softmax"]
        after = [self._backup(rows), self._softmax(rows, "last", 1 / self.temperature, ("a", "policy"))]
        return Design(
            rows, read_in, rows["policy"], positions, before, loop, after,
            attention=kinds, registers=len(positions) - prompt.length,
        )  # fmt: skip

    def _count(self, rows: Rows, most: int) -> Plan:
        """Visits, rewards and states that followed, of every cell; and of the visits 1 / N and the bonus."""
        moves = [(rows["played"], rows["n"]), (rows["r"], rows["sum"]), (rows["after"], rows["counts"])]
        plan = Plan().head(agreeing(rows, *_same(rows, "hsa")), moves)
        knots = whole(0, max(most, 1))
        Piecewise.through(lambda n: 1 / n.clamp_min(1), knots, -1).units(plan, rows["n"], rows["share"])
        bonus = 2 * self.horizon * self.confidence**0.5
        width = Piecewise.through(lambda n: bonus * n.clamp_min(1) ** -0.5, knots, -1)
        return width.units(plan, rows["n"], rows["bonus"])

    def _average(self, rows: Rows) -> Plan:
        """A cell reads itself by a score that is 1 / N."""
        cell: Term = (rows["one"], rows["cell"])
        score = agreeing(rows, *_same(rows, "hsa"), cell, payload=(rows["share"], rows["one"]))
        plan = Plan().head(score, [(rows["counts"], rows["p"]), (rows["sum"], rows["base"])])
        return plan.add(rows["bonus"], rows["base"])

    def _backup(self, rows: Rows) -> Plan:
        """Q of every cell from V of the next stage, which is cleared."""
        most = float(self.horizon)
        later = torch.cat([torch.zeros_like(rows["h"][:1]), rows["h"][:-1]])
        matches: list[Term] = [(later, rows["h"]), (rows["one"], rows["state"])]
        score = agreeing(rows, *matches, payload=(rows["p"], rows["s"]))
        plan = Plan().head(score, [(rows["v"], rows["pv"])])
        plan.clear(torch.cat([rows["q"], rows["pv"], rows["v"]])).constant(rows["q"], most)
        return plan.unit(-rows["base"] - rows["pv"], most, -rows["q"])

    def _maximum(self, rows: Rows) -> list[Plan]:
        """V of every state from the Q of its cells."""
        if self.maximum == "softmax":
            return [self._softmax(rows, "state", self.sharpness, ("q", "v"))]
        plan = Plan()
        for n in range(len(rows["a"])):
            matches: list[Term] = [(rows["state"], rows["cell"]), (rows["one"], rows.part("a", n))]
            plan.head(agreeing(rows, *_same(rows, "hs"), *matches), [(rows["q"], rows.part("entries", n))])
        return largest(plan, rows["entries"], rows["v"])

    def _softmax(self, rows: Rows, asking: str, sharpness: float, move: tuple[str, str]) -> Plan:
        """A head by which a token attends to the cells of its stage and state, by their Q."""
        far = SURE + 2 * self.horizon * sharpness
        cells: list[Term] = [*_same(rows, "hs"), (rows["one"], rows["cell"])]
        score = [(far * query, key) for query, key in cells]
        score += [(-3 * far * rows["one"], rows["one"]), (sharpness * rows[asking], rows["q"])]
        return Plan().head(score, [(rows[move[0]], rows[move[1]])])


def _rows(stages: int, states: int, actions: int) -> Rows:
    one_hot = {"h": stages, "s": states, "a": actions}
    sums = {"after": states, "counts": states, "p": states, "entries": actions, "policy": actions}
    flags, numbers = (
        ("one", "played", "last", "state", "cell"),
        ("r", "n", "sum", "share", "bonus", "base", "pv"),
    )
    return Rows(**one_hot, **sums, **dict.fromkeys((*flags, *numbers, "q", "v"), 1))


def _same(rows: Rows, names: str) -> list[Term]:
    return [(rows[name], rows[name]) for name in names]


def _registers(rows: Rows) -> Tensor:
    """A token for every (h, s), then one for every (h, s, a)."""
    h, s, a = (torch.eye(rows.sizes[name], dtype=torch.float64) for name in "hsa")
    stage, state = h.repeat_interleave(len(s), 0), s.repeat(len(h), 1)
    cells = {"h": stage.repeat_interleave(len(a), 0), "s": state.repeat_interleave(len(a), 0)}
    return torch.cat([
        rows.state(len(stage), one=1.0, state=1.0, h=stage, s=state),
        rows.state(len(stage) * len(a), one=1.0, cell=1.0, a=a.repeat(len(stage), 1), **cells),
    ])  # fmt: skip


def _played(rows: Rows, length: int) -> Tensor:
    """What is known of the prompt's tokens by where they are."""
    return torch.cat([rows.state(length - 1, one=1.0, played=1.0), rows.state(1, one=1.0, last=1.0)])


def episodes(
    rng: torch.Generator, sizes: tuple[int, int, int], count: int, prompts: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Random play in random problems of so many stages, states and actions: h, s, a, r, s' [prompts, plays, size]."""
    stages, states, actions = sizes
    leads = torch.randn(prompts, stages, states, actions, states, generator=rng).softmax(-1)
    pays = torch.rand(prompts, stages, states, actions, generator=rng)
    each = torch.arange(prompts)[:, None].expand(prompts, count)
    s, log = torch.randint(states, (prompts, count), generator=rng), []
    for h in range(stages):
        a = torch.randint(actions, (prompts, count), generator=rng)
        r = torch.bernoulli(pays[each, h, s, a], generator=rng)
        after = torch.multinomial(leads[each, h, s, a].flatten(0, 1), 1, generator=rng).view_as(s)
        log.append((torch.full_like(s, h), s, a, r, after))
        s = after
    h, s, a, r, after = (torch.cat(parts, 1) for parts in zip(*log, strict=True))
    return one_hot(h, stages), one_hot(s, states), one_hot(a, actions), r[..., None], one_hot(after, states)


def sweeps(
    h: Float[Tensor, "prompts plays stages"],
    s: Float[Tensor, "prompts plays states"],
    a: Float[Tensor, "prompts plays actions"],
    r: Float[Tensor, "prompts plays 1"],
    after: Float[Tensor, "prompts plays states"],
    confidence: float,
    steps: int,
) -> Float[Tensor, "steps prompts stages states actions"]:
    """Q after 1, 2, .. sweeps of V over all stages at once, V first 0: one less than the stages is induction."""
    stages = h.shape[2]
    visits = torch.einsum("pnh,pns,pna->phsa", h, s, a).clamp_min(1)
    rewards = torch.einsum("pnh,pns,pna,pn->phsa", h, s, a, r[..., 0]) / visits
    leads = torch.einsum("pnh,pns,pna,pnz->phsaz", h, s, a, after) / visits[..., None]
    base, found = rewards + 2 * stages * (confidence / visits).sqrt(), []
    v = torch.zeros_like(base[..., 0])
    for _ in range(steps + 1):
        later = torch.cat([v[:, 1:], torch.zeros_like(v[:, :1])], 1)
        q = (base + torch.einsum("phsaz,phz->phsa", leads, later)).clamp_max(stages)
        v = q.amax(-1)
        found.append(q)
    return torch.stack(found[1:])
