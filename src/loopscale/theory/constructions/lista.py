"""Iterative soft thresholding by causal ReLU attention, at every prefix of a prompt at once: LISTA with varying
measurements.

The token of x_{n+1} keeps weights β, 0 at first, for the n pairs (X, y) before it. A layer is
β <- S_θ(β - M X'(Xβ - y) / (2n + 1)), with 2n + 1 the tokens in sight and S_θ the soft threshold; exactly so, for
all n together. A stack of them has an M and a θ of its own for every layer, as a LISTA has; a loop has one of each,
and is ISTA for the lasso with penalty θ (2n + 1) / n, where M is the identity.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import normalize, softshrink
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.format_conversion import Turns, conversion
from loopscale.theory.constructions.plan import Form, Plan, Rows
from loopscale.theory.constructions.regression import paired

Matrix = tuple[tuple[float, ...], ...]


class Thresholding(Construction):
    """Tokens of x's coordinates and then y's one, x_1, y_1, x_2, y_2, ..; read at an x, which has seen all before.

    The guess β·x takes two heads that add β·x - out to what is out, since no fixed read-out multiplies.
    """

    source = "Slides on Liu et al. 2025 (sparse recovery by transformers), theorem 12"
    tokens: Literal["turns", "repeated"] = "turns"
    """turns: (x, 0) and (0, y), and two layers of `format_conversion` first. repeated: (x, 0) and (x, y), as in the
    theorem; then what the x tokens hold is kept out by -`bound`, and there are no layers before the first step."""
    answer: Literal["guess", "weights"] = "guess"
    """What is out: the guess β·x, or β, where nothing is multiplied."""
    bound: PositiveFloat = 100.0
    """At least as large as any β·x_j, and any twice where guesses are out. Rounding is 1e-16 · bound · pairs."""
    rate: PositiveFloat = 0.2
    """M is this times the identity, where it is not given; steps shrink where rate · λ_max(X'X) < 2 (2n + 1)."""

    def rows(self, prompt: Prompt) -> Rows:
        self.require(prompt.dim_in > 1, "tokens of x's coordinates and then one of y")
        dim, guess = prompt.dim_in - 1, self.answer == "guess"
        size = "one output, the guess" if guess else f"as many outputs as x has coordinates, {dim}"
        self.require(prompt.dim_out == (1 if guess else dim), size)
        return Rows(x=dim, y=1, pair=dim, beta=dim, out=1, **Turns.SIZES)

    def _laid_out(
        self,
        rows: Rows,
        prompt: Prompt,
        before: list[Plan],
        loop: Sequence[Plan] = (),
        after: Sequence[Plan] = (),
    ) -> Design:
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["out" if self.answer == "guess" else "beta"],
            Turns.positions(rows, prompt.length), before, loop, after,
            attention="relu", causal=True, normaliser="position",
        )  # fmt: skip

    def converted(self, rows: Rows) -> list[Plan]:
        return conversion(rows, rows["pair"]) if self.tokens == "turns" else []

    def matrix_of(self, given: Matrix | None, dim: int) -> Float[Tensor, "dim dim"]:
        """M, for x of so many coordinates."""
        if given is None:
            return self.rate * torch.eye(dim, dtype=torch.float64)
        fits = [len(row) for row in given] == [dim] * dim
        self.require(fits, f"prompts in which x has {len(given)} coordinates, as M has")
        return torch.tensor(given, dtype=torch.float64)

    def step(self, rows: Rows, matrix: Matrix | None, threshold: float) -> Plan:
        """A step at every x; β stays 0 at every y."""
        given = self.matrix_of(matrix, rows.sizes["x"])
        at_x, beta = rows["one"] - rows["e"], rows["beta"]
        turns = self.tokens == "turns"
        key, mask = rows["pair" if turns else "x"], [] if turns else [(-self.bound * at_x, at_x)]
        plan = Plan().pair([(beta, key), (-at_x, rows["y"])], [(-given @ key, beta)], mask)
        return plan.unit(beta, -threshold, beta).unit(beta, threshold, -beta).constant(beta, threshold)

    def guess(self, rows: Rows, plan: Plan) -> Plan:
        """Two more heads, by which what is out becomes β·x of the state that the layer is given."""
        if self.answer != "guess":
            return plan
        far: list[tuple[Form, Form]] = [
            (-self.bound * rows["p"], rows["one"]),
            (self.bound * rows["one"], rows["p"]),
        ]
        number = 2 * rows["p"] - rows["one"]
        return plan.pair(
            [(rows["beta"], rows["x"]), (-rows["out"], rows["one"])], [(number, rows["out"])], far
        )

    def _held(
        self, rng: torch.Generator, matrices: Sequence[Matrix | None], thresholds: Sequence[float], first: int
    ) -> Example:
        """Steps with these on random problems, where so many layers are in front of the first's answer."""
        dim = len(matrices[0]) if matrices and matrices[0] else 4
        given = [self.matrix_of(matrix, dim) for matrix in matrices]
        xs, ys = problem(rng, dim, max(float(matrix.norm(2)) for matrix in given), min(1.0, self.bound / 50))
        found = iterates(xs, ys, given, thresholds)
        if self.answer == "guess":
            found = (found * xs).sum(-1, keepdim=True)
        steps, prompts, points, size = found.shape
        expected = found.new_full((first + steps, prompts, 2 * points - 1, size), torch.nan)
        expected[first:, :, 0::2] = found
        if self.answer == "weights":
            expected[first:, :, 1::2] = 0  # nothing is learned at a y
        return Example(posed(xs, ys, self.tokens), expected)


class Lista(Thresholding, kind="lista"):
    """Layer by layer LISTA; in front are the layers of the conversion, and a guess stands a layer after its β.

    So with `turns` the last of `layers` + 3 layers has the guess, or the last of `layers` + 2 the weights.
    """

    algorithm = "LISTA with varying measurements"
    layers: PositiveInt = 16
    """K, steps."""
    threshold: NonNegativeFloat = 0.1
    """θ of the first step, where `thresholds` are not given."""
    decay: PositiveFloat = 0.9
    """By how much θ then shrinks with every step, as the bound on the distance does in the theory of LISTA."""
    matrices: tuple[Matrix, ...] | None = None
    """M of every layer; `None` for `rate`."""
    thresholds: tuple[NonNegativeFloat, ...] | None = None
    """θ of every layer."""

    @model_validator(mode="after")
    def _given_for_every_layer(self) -> "Lista":
        for name in ("matrices", "thresholds"):
            given = getattr(self, name)
            if given is not None and len(given) != self.layers:
                raise ValueError(f"{len(given)} {name} are not one for each of the {self.layers} layers")
        return self

    @property
    def each(self) -> tuple[Sequence[Matrix | None], Sequence[float]]:
        """M and θ of every layer."""
        falling = [self.threshold * self.decay**k for k in range(self.layers)]
        return self.matrices or [None] * self.layers, self.thresholds or falling

    @override
    def example(self, rng: torch.Generator) -> Example:
        return self._held(rng, *self.each, 2 * (self.tokens == "turns") + (self.answer == "guess"))

    @override
    def design(self, prompt: Prompt) -> Design:
        rows = self.rows(prompt)
        steps = [self.step(rows, m, t) for m, t in zip(*self.each, strict=True)]
        last = [self.guess(rows, Plan())] if self.answer == "guess" else []
        plans = [*self.converted(rows), *(self.guess(rows, step) for step in steps), *last]
        return self._laid_out(rows, prompt, plans)


class Ista(Thresholding, kind="ista"):
    """Loop by loop ISTA: one layer in the loop, the conversion before it, and the guess after it."""

    algorithm = "ISTA, proximal descent for the lasso"
    threshold: NonNegativeFloat = 0.1
    """θ."""
    matrix: Matrix | None = None
    """M; `None` for `rate`."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        return self._held(rng, 20 * [self.matrix], 20 * [self.threshold], 0)

    @override
    def design(self, prompt: Prompt) -> Design:
        rows = self.rows(prompt)
        after = [self.guess(rows, Plan())] if self.answer == "guess" else []
        loop = [self.step(rows, self.matrix, self.threshold)]
        return self._laid_out(rows, prompt, self.converted(rows), loop, after)


def problem(
    rng: torch.Generator, dim: int, norm: float, size: float
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points"]]:
    """xs and ys of weights of which half are not 0, of this size; for no M of such a norm do steps grow."""
    xs = torch.randn(8, 12, dim, generator=rng, dtype=torch.float64)
    weights = 2 * torch.randn(8, dim, 1, generator=rng, dtype=torch.float64) * size
    weights[:, (dim + 1) // 2 :] = 0
    xs = normalize(xs, dim=2) * min(3.0, (2 / max(norm, 1e-9)) ** 0.5)
    return xs, (xs @ weights)[..., 0]


def posed(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points"],
    tokens: Literal["turns", "repeated"],
) -> Float[Tensor, "prompts tokens dim_in"]:
    """x_1, y_1, .., x_N, with x at its y too where tokens are repeated."""
    found = paired(xs, ys[..., None])
    if tokens == "repeated":
        found[:, 1::2, :-1] = xs[:, :-1]
    return found


def iterates(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points"],
    matrices: Sequence[Float[Tensor, "dim dim"]],
    thresholds: Sequence[float],
) -> Float[Tensor, "steps prompts points dim"]:
    """β after every step, for the points before each."""
    found = xs.new_zeros(len(thresholds) + 1, *xs.shape)
    for n in range(xs.shape[1]):
        x, y, beta = xs[:, :n], ys[:, :n, None], xs.new_zeros(len(xs), xs.shape[2], 1)
        for k, (matrix, threshold) in enumerate(zip(matrices, thresholds, strict=True)):
            beta = softshrink(beta - matrix @ x.mT @ (x @ beta - y) / (2 * n + 1), threshold)
            found[k + 1, :, n] = beta[..., 0]
    return found[1:]
