"""Principal components by the power method and by simultaneous iteration (theorem 7 of
@he2024 in @liu2025slides).

The net reads points x_1, ..., x_N, one per token. It computes unit eigenvectors of A = (1/N) Σ_i x_i x_i', in the order
of decreasing eigenvalues. The random start determines the sign of each vector.

Corrections: V of the covariance layer writes into its own rows. Every component takes its own iterations, so that
2τ + 4k + 1 layers are too few for k > 1. Heads without biases are homogeneous of degree 1 and cannot approximate 1/|u|,
so that 1/|u| is a piecewise linear function of |u|². The deflated eigenvalue is v'Av.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows, Term
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.logic import gate_terms, newton_step
from loopscale.theory.constructions.piecewise import Piecewise, geometric_knots

SYSTEM = "spectral methods"

MEASURABLE_PIECES = ((6, 12, 24, 48), (4, 8, 16, 32), (2, 4, 8, 12), (2, 3, 4, 5), (1.25, 1.45, 1.7, 1.9))
"""By `polish`: pieces, per factor e between the eigenvalues, at which the order of the norm's error shows."""
MEASURABLE_PIECES_OF_SEVERAL = (8.5, 12, 17, 24, 34, 48)
"""The same for several vectors at once, which depend on one another. At fewer pieces higher orders show."""


class PowerIterations(Construction):
    """Shared by both methods: 1/|u| by knots in |u|², and Newton's steps for the norm after all iterations."""

    source: ClassVar[str] = "@he2024, theorem 7 of @liu2025slides"
    pieces: PositiveInt = 64
    """M, the number of pieces of t^-1/2. One head per piece."""
    polish: int = Field(2, ge=0, le=4)
    """q, the number of layers that square the error of the norm."""
    eigenvalues: tuple[PositiveFloat, PositiveFloat] = (0.05, 5.0)
    """The smallest eigenvalue of interest, and an upper bound on all. The knots lie between their squares."""
    start_seed: NonNegativeInt = 0
    """The seed of the start vectors."""

    def starts(self, dim: int, components: int) -> Float[Tensor, "components dim"]:
        """Unit vectors, uniform on the sphere, as in lemma 8."""
        rng = torch.Generator().manual_seed(self.start_seed)
        return normalize(torch.randn(components, dim, generator=rng, dtype=torch.float64), dim=1)

    def stated_at(self, components: int, iterations: str, layers: str) -> Stated:
        """The theorem for k components and τ iterations."""
        accuracy = (
            f"each vector within C τ ε λ₁² + (finite iterations), for k = {components} and τ = {iterations}"
        )
        return Stated(accuracy, f"2τ + 4k + 1 = {layers}", "at most C λ₁^d / ε²")

    def pieces_limit(self, order: float, measurable: Sequence[int | float]) -> Limit:
        """The limit of many pieces, given as pieces per factor e between the eigenvalues."""
        low, high = self.eigenvalues
        values = tuple(float(math.ceil(pieces * math.log(high / low))) for pieces in measurable)
        return Limit("pieces", order, values)

    @property
    def norm_limit(self) -> Limit:
        """The limit of the error of a norm. Every polish squares this error."""
        return self.pieces_limit(2.0 ** (self.polish + 1), MEASURABLE_PIECES[self.polish])

    @property
    def inverse_root(self) -> Piecewise:
        """t^-1/2 by knots. Raises ValueError if the polish would not converge with these knots."""
        low, high = self.eigenvalues
        self.require(low < high, f"increasing eigenvalues, not {low:g} to {high:g}")
        root = Piecewise.through(torch.rsqrt, geometric_knots(low**2, high**2, self.pieces), -1)
        between = geometric_knots(low**2, high**2, 16 * self.pieces)
        norm = (root(between) * between.sqrt()).max().item()
        enough = f"more than {self.pieces} pieces: before the polish a norm must be at most 1.4"
        self.require(
            self.polish == 0 or norm <= 1.4, enough
        )  # beyond √3 Newton's step reverses the sign of v
        return root

    def positions(self, rows: StateRows, dim: int, length: int) -> Tensor:
        """States without data. Tokens keep columns of A, and the prompt's first token holds the start vectors."""
        code = column_codes(dim, length)
        first = (torch.arange(len(code)) == len(code) - length).double()
        start = self.starts(dim, rows.sizes["v"] // dim).flatten()
        return rows.state(len(code), one=1.0, E=code, first=first, v=first[:, None] * start)

    def iterated(self, rows: StateRows, v: Form, iterations: int) -> list[BlockPlan]:
        """Repeat u = A v and v = u / |u|, at the only token with v != 0. Then polish by v <- v (3 - |v|²) / 2."""
        u, flag = rows["u"], (rows["first"], rows["one"])
        image = BlockPlan().signed_pair([(v, rows["E"])], [(rows["A"], u)]).clear(v)
        scaled = self.inverse_root.add_heads(BlockPlan(), (u, u), (u, v), flag).clear(u)
        polished = newton_step(BlockPlan(), (v, v), v, 0.5, (rows["first"], rows["first"]))
        return [image, scaled] * iterations + [polished] * self.polish


class PrincipalComponents(PowerIterations, kind="principal_components"):
    """The components one after the other, by deflation. The last layer outputs v_1, ..., v_k at the first token.

    k is dim_out / dim_in of the prompt. The net has 1 + k (2 `iterations` + `polish`) + 3 (k - 1) layers. The
    direction of the first component is that of the power method for any number of pieces. The knots affect its norm
    only. The bound `he_pca` has the error of the source.
    """

    algorithm = "power_method"
    iterations: PositiveInt = 20
    """τ, for each component."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        components = prompt.dim_out // prompt.dim_in
        layers = 2 * self.iterations + 4 * components + 1
        return self.stated_at(components, str(self.iterations), str(layers))

    @property
    @override
    def limit(self) -> Limit:
        return self.norm_limit

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, components = random_points(rng, self.eigenvalues, dim=4), 3
        layers = 1 + components * (2 * self.iterations + self.polish) + 3 * (components - 1)
        expected = x.new_full((layers, *x.shape[:2], 4 * components), torch.nan)
        expected[-1, :, 0] = power_method(x, self.starts(4, components), self.iterations).flatten(1)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, components = prompt.dim_in, prompt.dim_out // prompt.dim_in
        self.require(
            prompt.dim_out % dim == 0 and 1 <= components <= dim,
            "targets of k d coordinates, with d coordinates of a token and 1 <= k <= d",
        )
        rows = StateRows(x=dim, A=dim, E=dim, u=dim, w=dim, v=components * dim, one=1, first=1)
        plans = [covariance_plan(rows, prompt.length)]
        for n, v in enumerate(rows["v"].split(dim), 1):
            plans += self.iterated(rows, v, self.iterations)
            plans += deflation(rows, v) if n < components else []
        positions = self.positions(rows, dim, prompt.length)
        return Design(rows, rows.read_in("x"), rows["v"], positions, plans, attention="relu")


class ParallelComponents(PowerIterations, kind="parallel_components"):
    """All components in every loop, by simultaneous iteration. Token l <= k outputs v_l, where k is `components`.

    A loop of three layers computes `v_l <- A v_l - Σ_{m<l} v_m v_m'A v_l` and normalises v_l. After τ loops the net
    has 1 + 3τ + `polish` layers, for any number of components. The knots disturb single steps. The limit is exact as
    long as 2e λ_1 < λ_k, where e is the error of the norms.
    """

    algorithm = "ordered_simultaneous_iteration"
    components: PositiveInt = 2
    """k."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return self.stated_at(self.components, "the number of loops", f"2τ + {4 * self.components + 1}")

    @property
    @override
    def limit(self) -> Limit:
        """The direction of a single vector is exact. Several vectors depend on the norms before they are polished."""
        if self.components == 1:
            return self.norm_limit
        return self.pieces_limit(2.0, MEASURABLE_PIECES_OF_SEVERAL)

    @override
    def example(self, rng: torch.Generator) -> Example:
        count, dim, steps = self.components, self.components + 2, 8
        x = random_points(rng, self.eigenvalues, dim, prompts=32)
        expected = x.new_full((steps, *x.shape), torch.nan)
        expected[:, :, :count] = simultaneous_iteration(x, self.starts(dim, count), steps)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, count = prompt.dim_in, self.components
        self.require(prompt.dim_out == dim, "targets with as many coordinates as a token")
        self.require(count <= min(dim, prompt.length), "at most as many components as coordinates and tokens")
        rows = StateRows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, start=1)
        code = column_codes(dim, prompt.length)
        start = code[:, :count] @ self.starts(dim, count)
        is_start = code[:, :count].sum(1)
        v, flag = rows["v"], (rows["start"], rows["one"])
        polished = newton_step(BlockPlan(), (v, v), v, 0.5, flag, self._gate(rows, torch.eye(count)))
        positions = rows.state(len(code), one=1.0, E=code, v=start, start=is_start)
        before, after = [covariance_plan(rows, prompt.length)], [polished] * self.polish
        return Design(rows, rows.read_in("x"), rows["v"], positions, before, self._cell(rows), after, "relu")

    def _gate(self, rows: StateRows, visible: Float[Tensor, "components components"]) -> list[Term]:
        """Gate terms for tokens that hold a vector. Row l of `visible` flags the vectors that token l attends to."""
        identity = rows.part("E", 0, self.components)
        bound = 4 * (1 + self.eigenvalues[1]) ** 2  # above all knots and products of the vectors
        return gate_terms(rows["one"], bound, (visible.double() @ identity, identity))

    def _cell(self, rows: StateRows) -> list[BlockPlan]:
        u, v, identity = rows["u"], rows["v"], torch.eye(self.components)
        earlier = self._gate(rows, torch.ones_like(identity).triu(1))
        image = BlockPlan().signed_pair([(v, rows["E"])], [(rows["A"], u)])
        orthogonal = BlockPlan().signed_pair([(u, v)], [(-v, u)], earlier).clear(v)
        flag, own = (rows["start"], rows["one"]), self._gate(rows, identity)
        return [
            image,
            orthogonal,
            self.inverse_root.add_heads(BlockPlan(), (u, u), (u, v), flag, own).clear(u),
        ]


def random_points(
    rng: torch.Generator, eigenvalues: tuple[float, float], dim: int, prompts: int = 16
) -> Float[Tensor, "prompts count dim"]:
    """Points with eigenvalues of (1/N) Σ_i x_i x_i' in the given range, each well below the previous eigenvalue."""
    (low, high), count = eigenvalues, 3 * dim
    exponents = torch.arange(dim) + 0.7 * torch.rand(prompts, 1, dim, generator=rng, dtype=torch.float64)
    spectrum = high * (low / high) ** (0.05 + 0.75 * exponents / dim)
    x = torch.randn(prompts, count, dim, generator=rng, dtype=torch.float64)
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    return left * (count * spectrum).sqrt() @ right


def power_method(
    points: Float[Tensor, "prompts count dim"], starts: Float[Tensor, "components dim"], iterations: int
) -> Float[Tensor, "prompts components dim"]:
    """The eigenvectors found by the power method from each start, with deflation of the earlier eigenvectors."""
    a, vectors = points.mT @ points / points.shape[1], []
    for start in starts:
        v = start[:, None].expand(len(a), -1, 1)
        for _ in range(iterations):
            v = normalize(a @ v, dim=1)
        vectors.append(v.mT)
        a = a - v.mT @ a @ v * v @ v.mT
    return torch.cat(vectors, 1)


def simultaneous_iteration(
    points: Float[Tensor, "prompts count dim"], starts: Float[Tensor, "components dim"], steps: int
) -> Float[Tensor, "steps prompts components dim"]:
    """Every iterate of v_l <- A v_l - Σ_{m<l} v_m v_m'A v_l, normalised, for all l at once."""
    a, v, iterates = points.mT @ points / points.shape[1], starts, []
    for _ in range(steps):
        v = normalize(v @ a - (v @ a @ v.mT).tril(-1) @ v, dim=2)
        iterates.append(v)
    return torch.stack(iterates)


def column_codes(dim: int, length: int) -> Float[Tensor, "tokens dim"]:
    """One-hot codes of the column of A that a token keeps.

    The first d tokens keep the columns. A prompt with fewer tokens gets registers before it.
    """
    identity = torch.eye(dim, dtype=torch.float64)
    rest = torch.zeros(max(0, length - dim), dim, dtype=torch.float64)
    return torch.cat([identity[length:], identity[:length], rest])


def covariance_plan(rows: StateRows, length: int) -> BlockPlan:
    """The block that gives each column token its column (1/N) Σ_i x_i x_ij of A."""
    return BlockPlan().signed_pair([(rows["E"], rows["x"])], [(rows["x"] / length, rows["A"])])


def deflation(rows: StateRows, v: Form) -> list[BlockPlan]:
    """u = A v; w = (v·u) v; A <- A - w v'."""
    u, w = rows["u"], rows["w"]
    image = BlockPlan().signed_pair([(v, rows["E"])], [(rows["A"], u)])
    scaled = BlockPlan().signed_pair([(v, u)], [(v, w)]).clear(u)
    return [image, scaled, BlockPlan().signed_pair([(rows["E"], v)], [(-w, rows["A"])]).clear(w)]
