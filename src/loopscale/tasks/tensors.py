"""Tensors that several tasks draw from: constants on a device, and random orthogonal matrices.

A constant is made once per device, because a copy to a GPU at every step waits.
"""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Float[Tensor, " values"]:
    """The numbers as a tensor on `device`. The caller must not change the tensor."""
    return torch.tensor(values, device=device)


def bases(batch_size: int, dim: int, rng: torch.Generator) -> Float[Tensor, "batch dim dim"]:
    """Uniform (Haar) orthogonal matrices. The signs undo the sign convention of the QR factorisation."""
    q, r = torch.linalg.qr(torch.randn(batch_size, dim, dim, generator=rng))
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
