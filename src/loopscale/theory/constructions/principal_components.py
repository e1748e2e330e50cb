"""Principal components by the power method with deflation, and all of them at once (theorem 7 of How Transformers
Perform PCA).

The net reads points x_1 .. x_N, a token each, and computes unit eigenvectors of A = (1/N) Σ x_i x_i', the largest
eigenvalue's first, each up to the sign that its random start gives it.

Corrected: V of the covariance layer writes into rows of its own; every component takes its own iterations, so
2τ + 4k + 1 layers are not enough for k > 1; 1/|u| is a function of the number |u|², with knots, since heads without
biases are homogeneous of degree 1 and cannot be near it; the eigenvalue deflated is v'Av.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gates import alike, newton
from loopscale.theory.constructions.piecewise import Piecewise, geometric
from loopscale.theory.constructions.plan import Form, Plan, Rows, Term

SEEN = ((6, 12, 24, 48), (4, 8, 16, 32), (2, 4, 8, 12), (2, 3, 4, 5), (1.25, 1.45, 1.7, 1.9))
"""By polish: pieces, for every factor e between the eigenvalues, at which what a norm is off by shows."""


class PowerMethod(Construction):
    """What both have: 1/|u| by knots in |u|², and Newton's steps for the norm when all iterations are done."""

    source: ClassVar[str] = "How Transformers Perform PCA and Sparse Recovery 2025, theorem 7"
    pieces: PositiveInt = 64
    """M, of the function t^-1/2: one head each."""
    polish: int = Field(2, ge=0, le=4)
    """q, layers that square what a norm is off by."""
    eigenvalues: tuple[PositiveFloat, PositiveFloat] = (0.05, 5.0)
    """The least that is looked for, and one that none of A's exceeds: the knots are between their squares."""
    start_seed: NonNegativeInt = 0
    """Of the vectors that the iterations start from."""

    def starts(self, dim: int, components: int) -> Float[Tensor, "components dim"]:
        """Unit vectors, uniform on the sphere, as lemma 8 has them."""
        rng = torch.Generator().manual_seed(self.start_seed)
        return normalize(torch.randn(components, dim, generator=rng, dtype=torch.float64), dim=1)

    def pieces_limit(self, polish: int) -> Limit:
        """What a norm, so often polished, is off by: squared by every polish."""
        low, high = self.eigenvalues
        seen = tuple(float(math.ceil(each * math.log(high / low))) for each in SEEN[polish])
        return Limit("pieces", 2.0 ** (polish + 1), seen)

    @property
    def inverse_root(self) -> Piecewise:
        low, high = self.eigenvalues
        self.require(low < high, f"eigenvalues from one to a larger one, not {low:g} to {high:g}")
        found = Piecewise.through(torch.rsqrt, geometric(low**2, high**2, self.pieces), -1)
        between = geometric(low**2, high**2, 16 * self.pieces)
        norm = (found(between) * between.sqrt()).max().item()
        enough = f"pieces enough for norms of at most 1.4 before they are polished, not {self.pieces}"
        self.require(self.polish == 0 or norm <= 1.4, enough)  # beyond √3 a step of Newton's turns v round
        return found

    def positions(self, rows: Rows, dim: int, length: int) -> Tensor:
        """The tokens' columns, and at the prompt's first the vectors to start from."""
        code = columns(dim, length)
        first = (torch.arange(len(code)) == len(code) - length).double()
        start = self.starts(dim, rows.sizes["v"] // dim).flatten()
        return rows.state(len(code), one=1.0, E=code, first=first, v=first[:, None] * start)

    def iterated(self, rows: Rows, v: Form, iterations: int) -> list[Plan]:
        """So often u = A v and v = u / |u|, at the one token whose v is not 0; then v <- v (3 - |v|²) / 2."""
        u, here = rows["u"], (rows["first"], rows["one"])
        image = Plan().pair([(v, rows["E"])], [(rows["A"], u)]).clear(v)
        scaled = self.inverse_root.heads(Plan(), (u, u), (u, v), here).clear(u)
        polished = newton(Plan(), (v, v), v, 0.5, (rows["first"], rows["first"]))
        return [image, scaled] * iterations + [polished] * self.polish


class PrincipalComponents(PowerMethod, kind="principal_components"):
    """Components one after the other: the first token's output is v_1, .., v_k, in the last of the net's layers.

    k is the prompt's dim_out by its dim_in. There are 1 + k (2 `iterations` + `polish`) + 3 (k - 1) layers. A
    component's direction is that of the power method for any number of pieces; what the knots make is off is its norm.
    """

    algorithm = "power_method"
    iterations: PositiveInt = 20
    """τ, for each component."""

    @property
    @override
    def limit(self) -> Limit:
        return self.pieces_limit(self.polish)

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, components = points(rng, self.eigenvalues, dim=4), 3
        layers = 1 + components * (2 * self.iterations + self.polish) + 3 * (components - 1)
        expected = x.new_full((layers, *x.shape[:2], 4 * components), torch.nan)
        expected[-1, :, 0] = powers(x, self.starts(4, components), self.iterations).flatten(1)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, components = prompt.dim_in, prompt.dim_out // prompt.dim_in
        self.require(
            prompt.dim_out % dim == 0 and 1 <= components <= dim,
            "targets of k times as many coordinates as a token has, k at most that many",
        )
        rows = Rows(x=dim, A=dim, E=dim, u=dim, w=dim, v=components * dim, one=1, first=1)
        plans = [covariance(rows, prompt.length)]
        for n, v in enumerate(rows["v"].split(dim), 1):
            plans += self.iterated(rows, v, self.iterations)
            plans += deflated(rows, v) if n < components else []
        positions = self.positions(rows, dim, prompt.length)
        return Design(
            rows, rows["x"].T, rows["v"], positions, plans,
            attention="relu", registers=len(positions) - prompt.length,
        )  # fmt: skip


class ParallelComponents(PowerMethod, kind="parallel_components"):
    """All components in every loop: token l <= k puts out v_l, where k is `components`.

    A loop, of three layers, is v_l <- A v_l - Σ_(m<l) v_m v_m'A v_l, at length 1, so that τ of them are a net of
    1 + 3τ + `polish` layers however many components there are. Knots put single steps off, but not what they tend to
    while 2e λ_1 < λ_k for norms off by e.
    """

    algorithm = "ordered_simultaneous_iteration"
    components: PositiveInt = 2
    """k."""

    @property
    @override
    def limit(self) -> Limit:
        """One vector's direction is exact, as in turn; several are put off by the norms before they are polished."""
        return self.pieces_limit(self.polish if self.components == 1 else 0)

    @override
    def example(self, rng: torch.Generator) -> Example:
        count, dim, steps = self.components, self.components + 2, 8
        x = points(rng, self.eigenvalues, dim, prompts=32)
        expected = x.new_full((steps, *x.shape), torch.nan)
        expected[:, :, :count] = simultaneous(x, self.starts(dim, count), steps)
        return Example(x, expected)

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, count = prompt.dim_in, self.components
        self.require(prompt.dim_out == dim, "targets of as many coordinates as a token has")
        self.require(count <= min(dim, prompt.length), "at most as many components as coordinates and tokens")
        rows = Rows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, start=1)
        code = columns(dim, prompt.length)
        start = code[:, :count] @ self.starts(dim, count)
        holds = code[:, :count].sum(1)
        v, here = rows["v"], (rows["start"], rows["one"])
        polished = newton(Plan(), (v, v), v, 0.5, here, self._hears(rows, torch.eye(count)))
        return Design(
            rows, rows["x"].T, rows["v"], rows.state(len(code), one=1.0, E=code, v=start, start=holds),
            [covariance(rows, prompt.length)], self._cell(rows), [polished] * self.polish,
            attention="relu", registers=len(code) - prompt.length,
        )  # fmt: skip

    def _hears(self, rows: Rows, who: Float[Tensor, "components components"]) -> list[Term]:
        """A gate by which a token that holds a vector hears those that this says, and nobody else."""
        identity = rows.part("E", 0, self.components)
        bound = 4 * (1 + self.eigenvalues[1]) ** 2  # more than knots and products of the vectors come to
        return alike(rows["one"], bound, (who.double() @ identity, identity))

    def _cell(self, rows: Rows) -> list[Plan]:
        u, v, itself = rows["u"], rows["v"], torch.eye(self.components)
        earlier = self._hears(rows, torch.ones_like(itself).triu(1))
        image = Plan().pair([(v, rows["E"])], [(rows["A"], u)])
        apart = Plan().pair([(u, v)], [(-v, u)], earlier).clear(v)
        here, own = (rows["start"], rows["one"]), self._hears(rows, itself)
        return [image, apart, self.inverse_root.heads(Plan(), (u, u), (u, v), here, own).clear(u)]


def points(
    rng: torch.Generator, eigenvalues: tuple[float, float], dim: int, prompts: int = 16
) -> Float[Tensor, "prompts count dim"]:
    """Points such that (1/N) Σ x x' has eigenvalues between these two, each well below the one before."""
    (low, high), count = eigenvalues, 3 * dim
    apart = torch.arange(dim) + 0.7 * torch.rand(prompts, 1, dim, generator=rng, dtype=torch.float64)
    spectrum = high * (low / high) ** (0.05 + 0.75 * apart / dim)
    x = torch.randn(prompts, count, dim, generator=rng, dtype=torch.float64)
    left, _, right = torch.linalg.svd(x, full_matrices=False)
    return left * (count * spectrum).sqrt() @ right


def powers(
    points: Float[Tensor, "prompts count dim"], starts: Float[Tensor, "components dim"], iterations: int
) -> Float[Tensor, "prompts components dim"]:
    """What the power method finds from each of the starts, once all that was found before is deflated."""
    a, found = points.mT @ points / points.shape[1], []
    for start in starts:
        v = start[:, None].expand(len(a), -1, 1)
        for _ in range(iterations):
            v = normalize(a @ v, dim=1)
        found.append(v.mT)
        a = a - v.mT @ a @ v * v @ v.mT
    return torch.cat(found, 1)


def simultaneous(
    points: Float[Tensor, "prompts count dim"], starts: Float[Tensor, "components dim"], steps: int
) -> Float[Tensor, "steps prompts components dim"]:
    """Every iterate of v_l <- A v_l - Σ_(m<l) v_m v_m'A v_l, at length 1, for all l at once."""
    a, v, found = points.mT @ points / points.shape[1], starts, []
    for _ in range(steps):
        v = normalize(v @ a - (v @ a @ v.mT).tril(-1) @ v, dim=2)
        found.append(v)
    return torch.stack(found)


def columns(dim: int, length: int) -> Float[Tensor, "tokens dim"]:
    """Which column of A a token keeps, as a one-hot: the first tokens, and registers before them where they are few."""
    identity = torch.eye(dim, dtype=torch.float64)
    rest = torch.zeros(max(0, length - dim), dim, dtype=torch.float64)
    return torch.cat([identity[length:], identity[:length], rest])


def covariance(rows: Rows, length: int) -> Plan:
    """A's columns, (1/N) Σ x x_j, of every token's x."""
    return Plan().pair([(rows["E"], rows["x"])], [(rows["x"] / length, rows["A"])])


def deflated(rows: Rows, v: Form) -> list[Plan]:
    """u = A v; w = (v·u) v; A <- A - w v'."""
    u, w = rows["u"], rows["w"]
    image = Plan().pair([(v, rows["E"])], [(rows["A"], u)])
    scaled = Plan().pair([(v, u)], [(v, w)]).clear(u)
    return [image, scaled, Plan().pair([(rows["E"], v)], [(-w, rows["A"])]).clear(w)]
