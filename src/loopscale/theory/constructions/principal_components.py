"""Principal components by the power method with deflation, and all of them at once (theorem 7 of How Transformers
Perform PCA).

The net reads points x_1 .. x_N, a token each, and computes unit eigenvectors of A = (1/N) Σ x_i x_i', the largest
eigenvalue's first, each up to the sign that its random start gives it.

Corrected: V of the covariance layer writes into rows of its own; every component takes its own iterations, so
2τ + 4k + 1 layers are not enough for k > 1; 1/|u| is a function of the number |u|², with knots, since heads without
biases are homogeneous of degree 1 and cannot be near it; the eigenvalue deflated is v'Av.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.gates import alike, newton
from loopscale.theory.constructions.piecewise import Piecewise, geometric
from loopscale.theory.constructions.plan import Form, Plan, Rows


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
        return torch.nn.functional.normalize(
            torch.randn(components, dim, generator=rng, dtype=torch.float64), dim=1
        )

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
    def order(self) -> int | None:
        return 2 ** (self.polish + 1)

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, components = prompt.dim_in, prompt.dim_out // prompt.dim_in
        self.require(
            prompt.dim_out % dim == 0 and 1 <= components <= dim,
            "targets of k times as many coordinates as a token has, k at most that many",
        )
        rows = Rows(x=dim, A=dim, E=dim, u=dim, w=dim, v=components * dim, one=1, first=1)
        vectors = rows["v"].split(dim)
        plans = [covariance(rows, prompt.length)]
        for n, v in enumerate(vectors):
            plans += self.iterated(rows, v, self.iterations) + (
                deflated(rows, v) if n + 1 < components else []
            )
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
    def order(self) -> int | None:
        return 2

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, count = prompt.dim_in, self.components
        self.require(prompt.dim_out == dim, "targets of as many coordinates as a token has")
        self.require(count <= min(dim, prompt.length), "at most as many components as coordinates and tokens")
        rows = Rows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, start=1)
        code = columns(dim, prompt.length)
        start = code[:, :count] @ self.starts(dim, count)
        holds = code[:, :count].sum(1)
        polished = newton(
            Plan(), (rows["v"], rows["v"]), rows["v"], 0.5, (rows["start"], rows["one"]), self._own(rows)
        )
        return Design(
            rows, rows["x"].T, rows["v"], rows.state(len(code), one=1.0, E=code, v=start, start=holds),
            [covariance(rows, prompt.length)], self._cell(rows), [polished] * self.polish,
            attention="relu", registers=len(code) - prompt.length,
        )  # fmt: skip

    @property
    def _bound(self) -> float:
        """More than knots and products of the vectors come to."""
        return 4 * (1 + self.eigenvalues[1]) ** 2

    def _own(self, rows: Rows) -> list:
        """Keeps a token that holds a vector to itself."""
        identity = rows.part("E", 0, self.components)
        return alike(rows["one"], self._bound, (identity, identity))

    def _cell(self, rows: Rows) -> list[Plan]:
        u, v, one = rows["u"], rows["v"], rows["one"]
        identity = rows.part("E", 0, self.components)
        after = torch.ones(self.components, self.components, dtype=torch.float64).triu(1) @ identity
        earlier = alike(one, self._bound, (after, identity))
        image = Plan().pair([(v, rows["E"])], [(rows["A"], u)])
        apart = Plan().pair([(u, v)], [(-v, u)], earlier).clear(v)
        scaled = self.inverse_root.heads(Plan(), (u, u), (u, v), (rows["start"], one), self._own(rows))
        return [image, apart, scaled.clear(u)]


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
