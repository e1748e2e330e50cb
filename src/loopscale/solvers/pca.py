"""The classical ways to principal components: of A = (1/N) Σ x x', the leading eigenvectors, the largest first.

All answers are unit vectors, a guess that knows nothing too, which costs more than no guess: 2 (1 - |cos|). They
start from the prompt's own starts, which a net sees where the task has `auxiliary: start`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.tasks.eigenvectors import Eigenvectors, leading


class EigenvectorSolver(Solver):
    solves: ClassVar[type] = Eigenvectors

    @abstractmethod
    def answers(
        self, matrix: Float64[Tensor, "batch dim dim"], starts: Float64[Tensor, "batch k dim"], steps: int
    ) -> Float64[Tensor, "steps batch k dim"]:
        """The eigenvectors of the matrix after 1, 2 .. `steps` steps."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch k dim"]:
        problem = batch.to(batch.tokens.device, torch.float64).problem
        return self.answers(problem.covariance, problem.starts, steps)


class PowerMethod(EigenvectorSolver, kind="power_method"):
    """The power method with deflation, algorithm 1 of How Transformers Perform PCA and Sparse Recovery 2025.

    After step τ every component has had τ iterations, one component after the other: A <- A - λ v v' with λ = |A v|
    removes what τ iterations have found. So k τ products in all, each of which takes the construction two layers.
    """

    @override
    def answers(
        self, matrix: Float64[Tensor, "batch dim dim"], starts: Float64[Tensor, "batch k dim"], steps: int
    ) -> Float64[Tensor, "steps batch k dim"]:
        deflated, found = matrix.expand(steps, *matrix.shape), []
        for start in starts.unbind(1):
            v = start.expand(steps, *start.shape)
            ended = []
            for step in range(steps):  # those of fewer iterations are done
                v = normalize(_product(deflated[step:], v), dim=-1)
                ended.append(v[0])
                v = v[1:]
            found.append(torch.stack(ended))
            length = _product(deflated, found[-1]).norm(dim=-1)[..., None, None]
            deflated = deflated - length * found[-1][..., :, None] * found[-1][..., None, :]
        return torch.stack(found, dim=2)


class SubspaceIteration(EigenvectorSolver, kind="subspace_iteration"):
    """Orthogonal iteration: V <- the orthonormal factor of A V, all components at once (Golub and Van Loan 2013,
    section 7.3.2).

    Its first component is the power method's.
    """

    @override
    def answers(
        self, matrix: Float64[Tensor, "batch dim dim"], starts: Float64[Tensor, "batch k dim"], steps: int
    ) -> Float64[Tensor, "steps batch k dim"]:
        return torch.stack(list(islice(self._iterates(matrix, starts), steps)))

    def _iterates(
        self, matrix: Float64[Tensor, "batch dim dim"], starts: Float64[Tensor, "batch k dim"]
    ) -> Iterator[Float64[Tensor, "batch k dim"]]:
        v = starts.mT
        while True:
            v = torch.linalg.qr(matrix @ v)[0]
            yield v.mT


class Eigendecomposition(EigenvectorSolver, kind="eigendecomposition"):
    """Principal components themselves (Hotelling 1933), the same after every step: error 0 where the task asks
    for the sample's eigenvectors, and the plug-in estimate of the population's.
    """

    @override
    def answers(
        self, matrix: Float64[Tensor, "batch dim dim"], starts: Float64[Tensor, "batch k dim"], steps: int
    ) -> Float64[Tensor, "steps batch k dim"]:
        return leading(matrix, starts.shape[1]).expand(steps, -1, -1, -1)


def _product(
    matrix: Float64[Tensor, "steps batch dim dim"], v: Float64[Tensor, "steps batch dim"]
) -> Float64[Tensor, "steps batch dim"]:
    """A v; not by `matmul`, whose last bits depend on how many matrices there are."""
    return (matrix * v[..., None, :]).sum(-1)
