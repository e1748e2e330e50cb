"""What clusterings are judged by, where labels mean nothing but "the same" and "another".

Cross entropy and misclassification are the least over all namings of the clusters, which one assignment problem
a prompt finds. The adjusted Rand index (Hubert and Arabie 1985) and normalised mutual information (over the
arithmetic mean of the entropies, as in scikit-learn) need no naming.
"""

from itertools import permutations

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

ENUMERATED = 5
"""Up to so many clusters all namings are tried at once, 120 of them; beyond, prompts are solved one by one."""


def cross_entropy(
    logits: Float[Tensor, "*steps batch points K"], targets: Float[Tensor, "batch points K"]
) -> Float[Tensor, "*steps batch points"]:
    """-log p(label) at every point in nats, clusters named as suits the whole prompt best.

    The naming is found without gradient: where two are equally good, either has a gradient of the minimum.
    """
    log_p = logits.log_softmax(-1)
    targets = targets.to(log_p.dtype)
    named = naming(-targets.transpose(-1, -2) @ log_p.detach())
    matched = log_p.gather(-1, named.unsqueeze(-2).expand(log_p.shape))
    return -(matched * targets).sum(-1)


def naming(cost: Float[Tensor, "*batch K K"]) -> Int[Tensor, "*batch K"]:
    """Which label each true cluster gets, of the least total cost; costs that are no numbers are the highest."""
    size = cost.shape[-1]
    if cost.device.type == "meta":  # where costs are counted, and any naming costs what another does
        return torch.arange(size, device=cost.device).expand(cost.shape[:-1])
    cost = cost.nan_to_num(nan=1e30, posinf=1e30, neginf=-1e30)
    if size <= ENUMERATED:
        every = torch.tensor(list(permutations(range(size))), device=cost.device)
        total = cost[..., torch.arange(size, device=cost.device), every].sum(-1)
        return every[total.argmin(-1)]
    flat = cost.reshape(-1, size, size).double().cpu().numpy()
    found = torch.tensor([linear_sum_assignment(each)[1].tolist() for each in flat], device=cost.device)
    return found.reshape(cost.shape[:-1])


def agreement(
    logits: Float[Tensor, "*steps batch points K"], targets: Float[Tensor, "batch points K"]
) -> dict[str, Float[Tensor, "*steps batch"]]:
    """`misclassification`, the share of points that are named otherwise; `ari`; `nmi`."""
    labels = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    counts = targets.double().transpose(-1, -2) @ labels
    right = counts.gather(-1, naming(-counts).unsqueeze(-1)).sum((-1, -2))
    points = counts.sum((-1, -2))
    return {"misclassification": 1 - right / points, "ari": _ari(counts), "nmi": _nmi(counts)}


def _ari(counts: Float[Tensor, "*batch K K"]) -> Float[Tensor, "*batch"]:
    """1 for two clusterings that are both one cluster, or both one cluster a point."""

    def pairs(n: Tensor) -> Tensor:
        return n * (n - 1) / 2

    together = pairs(counts).sum((-1, -2))
    of_truth, of_guess = pairs(counts.sum(-1)).sum(-1), pairs(counts.sum(-2)).sum(-1)
    expected = of_truth * of_guess / pairs(counts.sum((-1, -2))).clamp_min(1)
    room = (of_truth + of_guess) / 2 - expected
    return torch.where(room > 0, (together - expected) / torch.where(room > 0, room, 1), 1)


def _nmi(counts: Float[Tensor, "*batch K K"]) -> Float[Tensor, "*batch"]:
    """1 for two clusterings that are both one cluster; 0 where only one of them is."""
    shares = counts / counts.sum((-1, -2), keepdim=True)
    entropies = [torch.special.entr(shares.sum(side)).sum(-1) for side in (-1, -2)]
    mean = sum(entropies, torch.zeros(())) / 2
    mutual = sum(entropies, torch.zeros(())) - torch.special.entr(shares).sum((-1, -2))
    return torch.where(mean > 1e-12, mutual / torch.where(mean > 1e-12, mean, 1), 1)
