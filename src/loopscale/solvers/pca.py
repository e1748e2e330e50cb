"""Classical methods for principal components: the leading eigenvectors of A = (1/N) Σ_i x_i x_i', the largest first.

All predictions are unit vectors. So an uninformed prediction costs more than no prediction: 2 (1 - |cos|). The methods
start from the prompt's own start vectors. A net sees these vectors if the task has `auxiliary: start`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar

import torch
from jaxtyping import Float64
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.tasks.eigenvectors import Eigenvectors, leading

Matrix = Float64[Tensor, "batch dim dim"]
Vectors = Float64[Tensor, "batch k dim"]
Iterates = Float64[Tensor, "steps batch k dim"]


class EigenvectorSolver(Solver):
    solves: ClassVar[type] = Eigenvectors

    @abstractmethod
    def answers(self, matrix: Matrix, starts: Vectors, steps: int) -> Iterates:
        """The eigenvectors of the matrix after 1, 2, ..., `steps` steps."""

    @override
    def predict(self, batch: Batch, steps: int) -> Iterates:
        problem = batch.to(batch.tokens.device, torch.float64).problem
        return self.answers(problem.covariance, problem.starts, steps)


class Iteration(EigenvectorSolver):
    """A method whose error falls step by step."""

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return (cls(),) if isinstance(problem, Eigenvectors) else ()


class PowerMethod(Iteration, kind="power_method"):
    """The power method with deflation, algorithm 1 of @he2024 in @liu2025slides.

    After step τ every component has had τ iterations, one component after the other. A <- A - λ v v' with λ = |A v|
    removes a finished component. The total is k τ products. The construction takes two layers for each product.
    """

    @override
    def answers(self, matrix: Matrix, starts: Vectors, steps: int) -> Iterates:
        deflated, vectors = matrix.expand(steps, *matrix.shape), []
        for start in starts.unbind(1):
            v = start.expand(steps, *start.shape)
            finished = []
            for step in range(steps):  # row k takes k + 1 iterations
                v = normalize(_product(deflated[step:], v), dim=-1)
                finished.append(v[0])
                v = v[1:]
            vectors.append(torch.stack(finished))
            length = _product(deflated, vectors[-1]).norm(dim=-1)[..., None, None]
            deflated = deflated - length * vectors[-1][..., :, None] * vectors[-1][..., None, :]
        return torch.stack(vectors, dim=2)


class SubspaceIteration(Iteration, kind="subspace_iteration"):
    """Orthogonal iteration: V <- the orthonormal factor of A V [@golub2013, section 7.3.2].

    All components are updated at once. The first component is that of the power method.
    """

    @override
    def answers(self, matrix: Matrix, starts: Vectors, steps: int) -> Iterates:
        return torch.stack(list(islice(self._iterates(matrix, starts), steps)))

    def _iterates(self, matrix: Matrix, starts: Vectors) -> Iterator[Vectors]:
        v = starts.mT
        while True:
            v = torch.linalg.qr(matrix @ v)[0]
            yield v.mT


class Eigendecomposition(EigenvectorSolver, kind="eigendecomposition"):
    """Principal components by eigendecomposition [@hotelling1933], the same after every step.

    The error is 0 if the task asks for the sample's eigenvectors. For the population's eigenvectors this is the plug-in
    estimate.
    """

    @override
    def answers(self, matrix: Matrix, starts: Vectors, steps: int) -> Iterates:
        return leading(matrix, starts.shape[1]).expand(steps, -1, -1, -1)


def _product(
    matrix: Float64[Tensor, "steps batch dim dim"], v: Float64[Tensor, "steps batch dim"]
) -> Float64[Tensor, "steps batch dim"]:
    """A v. `matmul` is not used, because its last bits depend on the number of matrices."""
    return (matrix * v[..., None, :]).sum(-1)
