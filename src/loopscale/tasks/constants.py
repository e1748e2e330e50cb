"""Constants of a task as tensors. A constant is made once per device, because a copy to a GPU at every step waits."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor


@lru_cache(maxsize=64)
def constant(values: tuple[float, ...], device: torch.device) -> Float[Tensor, " values"]:
    """The numbers as a tensor on `device`. The caller must not change the tensor."""
    return torch.tensor(values, device=device)
