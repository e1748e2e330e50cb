"""Iterative soft thresholding by causal ReLU attention, at every prefix of a prompt at once (theorem 12 of
@liu2025 in @liu2025slides): LISTA with varying measurements.

The token of x_{n+1} holds weights β for the n pairs (X, y) before it, from 0 on. A layer computes `β <- S_θ(β - M
X'(Xβ - y) / (2n + 1))` exactly, for all n at once. S_θ is the soft threshold, and 2n + 1 is the number of visible
tokens. A stack has its own M and θ in every layer, like LISTA. A loop has one M and one θ. With M a multiple `rate`
of the identity the loop is ISTA for the lasso with penalty `θ (2n + 1) / (rate · n)`.
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
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows, Term
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.format_conversion import AlternatingTokens, conversion_plans
from loopscale.theory.constructions.regression import interleaved_tokens

SYSTEM = "sparse recovery"

Matrix = tuple[tuple[float, ...], ...]


class Thresholding(Construction):
    """Tokens of x's coordinates and one y, x_1, y_1, x_2, ... Each x outputs the result from all pairs before it.

    The guess β·x takes two heads that add β·x - out to `out`, because a fixed read-out cannot multiply.
    """

    source = "@liu2025, theorem 12 of @liu2025slides"
    tokens: Literal["turns", "repeated"] = "turns"
    """turns: tokens (x, 0) and (0, y), after two layers of `format_conversion`. repeated: tokens (x, 0) and (x, y),
    as in the theorem, without these layers. Then -`bound` hides the x tokens as keys."""
    answer: Literal["guess", "weights"] = "guess"
    """The output: the guess β·x, or the weights β."""
    bound: PositiveFloat = 100.0
    """An upper bound on every |β·x_j|. For guesses, at least twice the largest. Rounding is 1e-16 · bound · pairs."""
    rate: PositiveFloat = 0.2
    """M is this multiple of the identity if no matrix is given. Steps converge if rate · λ_max(X'X) < 2 (2n + 1)."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        layers = "one per step, after the conversion of the tokens"
        return Stated("exact", layers, width=f"2d + 2 = {2 * prompt.dim_in}")

    def rows(self, prompt: Prompt) -> StateRows:
        self.require(prompt.dim_in > 1, "tokens that hold x's coordinates and then one y")
        dim, guess = prompt.dim_in - 1, self.answer == "guess"
        size = "one output, the guess" if guess else f"{dim} outputs, one per coordinate of x"
        self.require(prompt.dim_out == (1 if guess else dim), size)
        return StateRows(x=dim, y=1, pair=dim, beta=dim, out=1, **AlternatingTokens.SIZES)

    def _design_of(
        self,
        rows: StateRows,
        prompt: Prompt,
        before: list[BlockPlan],
        loop: Sequence[BlockPlan] = (),
        after: Sequence[BlockPlan] = (),
    ) -> Design:
        read_in, positions = rows.read_in("x", "y"), AlternatingTokens.positions(rows, prompt.length)
        read_out = rows["out" if self.answer == "guess" else "beta"]
        return Design(
            rows,
            read_in,
            read_out,
            positions,
            before,
            loop,
            after,
            "relu",
            causal=True,
            normaliser="position",
        )

    def conversion(self, rows: StateRows) -> list[BlockPlan]:
        return conversion_plans(rows, rows["pair"]) if self.tokens == "turns" else []

    def matrix_of(self, given: Matrix | None, dim: int) -> Float[Tensor, "dim dim"]:
        """M, for x with `dim` coordinates."""
        if given is None:
            return self.rate * torch.eye(dim, dtype=torch.float64)
        fits = [len(row) for row in given] == [dim] * dim
        self.require(fits, f"x of {len(given)} coordinates, the size of M")
        return torch.tensor(given, dtype=torch.float64)

    def step(self, rows: StateRows, matrix: Matrix | None, threshold: float) -> BlockPlan:
        """One step at every x. β stays 0 at every y."""
        multiplier = self.matrix_of(matrix, rows.sizes["x"])
        at_x, beta = rows["one"] - rows["e"], rows["beta"]
        turns = self.tokens == "turns"
        key, mask = rows["pair" if turns else "x"], [] if turns else [(-self.bound * at_x, at_x)]
        plan = BlockPlan().signed_pair([(beta, key), (-at_x, rows["y"])], [(-multiplier @ key, beta)], mask)
        return plan.unit(beta, -threshold, beta).unit(beta, threshold, -beta).constant(beta, threshold)

    def guess(self, rows: StateRows, plan: BlockPlan) -> BlockPlan:
        """Add two heads that set `out` to β·x, from the state before the layer."""
        if self.answer != "guess":
            return plan
        own_token: list[Term] = [
            (-self.bound * rows["p"], rows["one"]),
            (self.bound * rows["one"], rows["p"]),
        ]
        number = 2 * rows["p"] - rows["one"]
        return plan.signed_pair(
            [(rows["beta"], rows["x"]), (-rows["out"], rows["one"])], [(number, rows["out"])], own_token
        )

    def _example_of(
        self, rng: torch.Generator, matrices: Sequence[Matrix | None], thresholds: Sequence[float], first: int
    ) -> Example:
        """Random problems with these steps. `first` layers stand before the layer that outputs the first step."""
        dim = len(matrices[0]) if matrices and matrices[0] else 4
        multipliers = [self.matrix_of(matrix, dim) for matrix in matrices]
        xs, ys = random_sparse_regression(
            rng, dim, max(float(matrix.norm(2)) for matrix in multipliers), min(1.0, self.bound / 50)
        )
        betas = lista_iterates(xs, ys, multipliers, thresholds)
        if self.answer == "guess":
            betas = (betas * xs).sum(-1, keepdim=True)
        steps, prompts, points, size = betas.shape
        expected = betas.new_full((first + steps, prompts, 2 * points - 1, size), torch.nan)
        expected[first:, :, 0::2] = betas
        if self.answer == "weights":
            expected[first:, :, 1::2] = 0  # β stays 0 at every y
        return Example(sparse_tokens(xs, ys, self.tokens), expected)


class Lista(Thresholding, kind="lista"):
    """LISTA, one step per layer. The layers of the conversion come first, and a guess stands one layer after its β.

    With `tokens: turns` the guess stands in the last of `layers` + 3 layers, and the weights in the last of `layers`
    + 2.
    """

    algorithm = "LISTA with varying measurements"
    layers: PositiveInt = 16
    """K, the number of steps."""
    threshold: NonNegativeFloat = 0.1
    """θ of the first step, if `thresholds` are not given."""
    decay: PositiveFloat = 0.9
    """The factor of θ from step to step, like the bound on the distance in the theory of LISTA."""
    matrices: tuple[Matrix, ...] | None = None
    """M of every layer. `None` means `rate` times the identity."""
    thresholds: tuple[NonNegativeFloat, ...] | None = None
    """θ of every layer."""

    @model_validator(mode="after")
    def _one_for_each_layer(self) -> "Lista":
        for name in ("matrices", "thresholds"):
            given = getattr(self, name)
            if given is not None and len(given) != self.layers:
                raise ValueError(f"{len(given)} {name} for {self.layers} layers; give one for each layer")
        return self

    @property
    def step_settings(self) -> tuple[Sequence[Matrix | None], Sequence[float]]:
        """M and θ of every layer."""
        thresholds = [self.threshold * self.decay**k for k in range(self.layers)]
        return self.matrices or [None] * self.layers, self.thresholds or thresholds

    @override
    def example(self, rng: torch.Generator) -> Example:
        return self._example_of(
            rng, *self.step_settings, 2 * (self.tokens == "turns") + (self.answer == "guess")
        )

    @override
    def design(self, prompt: Prompt) -> Design:
        rows = self.rows(prompt)
        steps = [self.step(rows, m, t) for m, t in zip(*self.step_settings, strict=True)]
        last = [self.guess(rows, BlockPlan())] if self.answer == "guess" else []
        plans = [*self.conversion(rows), *(self.guess(rows, step) for step in steps), *last]
        return self._design_of(rows, prompt, plans)


class Ista(Thresholding, kind="ista"):
    """ISTA, one step per loop: one layer in the loop, the conversion before it, and the guess after it."""

    algorithm = "ISTA, proximal descent for the lasso"
    threshold: NonNegativeFloat = 0.1
    """θ."""
    matrix: Matrix | None = None
    """M. `None` means `rate` times the identity."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        return self._example_of(rng, 20 * [self.matrix], 20 * [self.threshold], 0)

    @override
    def design(self, prompt: Prompt) -> Design:
        rows = self.rows(prompt)
        after = [self.guess(rows, BlockPlan())] if self.answer == "guess" else []
        loop = [self.step(rows, self.matrix, self.threshold)]
        return self._design_of(rows, prompt, self.conversion(rows), loop, after)


def random_sparse_regression(
    rng: torch.Generator, dim: int, norm: float, size: float
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points"]]:
    """xs and ys. Half of the weights are 0, the others have this size. Steps converge for every M of this norm."""
    xs = torch.randn(8, 12, dim, generator=rng, dtype=torch.float64)
    weights = 2 * torch.randn(8, dim, 1, generator=rng, dtype=torch.float64) * size
    weights[:, (dim + 1) // 2 :] = 0
    xs = normalize(xs, dim=2) * min(3.0, (2 / max(norm, 1e-9)) ** 0.5)
    return xs, (xs @ weights)[..., 0]


def sparse_tokens(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points"],
    tokens: Literal["turns", "repeated"],
) -> Float[Tensor, "prompts tokens dim_in"]:
    """x_1, y_1, ..., x_N. With `repeated` the token of y also holds x."""
    tokens_of_pairs = interleaved_tokens(xs, ys[..., None])
    if tokens == "repeated":
        tokens_of_pairs[:, 1::2, :-1] = xs[:, :-1]
    return tokens_of_pairs


def lista_iterates(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points"],
    matrices: Sequence[Float[Tensor, "dim dim"]],
    thresholds: Sequence[float],
) -> Float[Tensor, "steps prompts points dim"]:
    """β after every step, at each point, from the pairs before it."""
    betas = xs.new_zeros(len(thresholds) + 1, *xs.shape)
    for n in range(xs.shape[1]):
        x, y, beta = xs[:, :n], ys[:, :n, None], xs.new_zeros(len(xs), xs.shape[2], 1)
        for k, (matrix, threshold) in enumerate(zip(matrices, thresholds, strict=True)):
            beta = softshrink(beta - matrix @ x.mT @ (x @ beta - y) / (2 * n + 1), threshold)
            betas[k + 1, :, n] = beta[..., 0]
    return betas[1:]
