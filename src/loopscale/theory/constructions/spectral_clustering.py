"""Two clusters by the sign of the first principal component.

The net reads points, a token each, whose clusters are on either side of 0, and puts out -1 or 1 at every one: the sign
of x_i·v, where v is the first eigenvector of (1/N) Σ x_i x_i'. Which cluster is 1 is v's start to say.
"""

from pydantic import PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.principal_components import PowerMethod, covariance


class SpectralClustering(PowerMethod, kind="spectral_clustering"):
    """The sign, but for rounding, wherever |x_i·v| is `margin` or more, and x_i·v / `margin` nearer to 0.

    There are 2 + 2 `iterations` + `polish` layers, and the last puts out the signs.
    """

    source = "He et al. 2025, spectral clustering of two-component Gaussian mixtures by transformers"
    algorithm = "spectral_clustering"
    iterations: PositiveInt = 20
    """Of the power method."""
    margin: PositiveFloat = 1e-3
    """Of |x_i·v|, from which on a label is whole."""

    @property
    @override
    def order(self) -> int | None:
        return None

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1, "targets of one coordinate")
        dim = prompt.dim_in
        rows = Rows(x=dim, A=dim, E=dim, u=dim, v=dim, one=1, first=1, projection=1, label=1)
        one, label, over = rows["one"], rows["label"], rows["projection"] / self.margin
        signs = Plan().pair([(rows["x"], rows["v"])], [(one, rows["projection"])])
        signs.unit(over + one, 0.0, label).unit(over - one, 0.0, -label).constant(label, -1.0)
        plans = [covariance(rows, prompt.length), *self.iterated(rows, rows["v"], self.iterations), signs]
        positions = self.positions(rows, dim, prompt.length)
        return Design(
            rows, rows["x"].T, label, positions, plans,
            attention="relu", registers=len(positions) - prompt.length,
        )  # fmt: skip
