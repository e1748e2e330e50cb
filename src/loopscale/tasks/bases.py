"""Random orthogonal matrices, for covariances and centres in random directions."""

import torch
from jaxtyping import Float
from torch import Tensor


def bases(batch_size: int, dim: int, rng: torch.Generator) -> Float[Tensor, "batch dim dim"]:
    """Uniform (Haar) orthogonal matrices. The signs undo the sign convention of the QR factorisation."""
    q, r = torch.linalg.qr(torch.randn(batch_size, dim, dim, generator=rng))
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
