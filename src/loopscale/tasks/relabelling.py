"""Measures of clusterings. Labels have no names: two points only have the same label or different labels.

Cross entropy and misclassification take the best naming of the clusters, found by one assignment problem per prompt.
The adjusted Rand index (Hubert and Arabie 1985) and normalised mutual information (divided by the arithmetic mean of
the entropies, as in scikit-learn) need no naming.
"""

from itertools import permutations

import scipy  # scipy loads its submodules at the first use
import torch
from jaxtyping import Float, Int
from torch import Tensor

ENUMERATED = 5
"""Up to this number of clusters all namings (120) are tried at once. Beyond, prompts are solved one by one."""


def cross_entropy(
    logits: Float[Tensor, "*steps batch points K"], targets: Float[Tensor, "batch points K"]
) -> Float[Tensor, "*steps batch points"]:
    """-log p(label) at every point in nats, with the best naming of the clusters for the whole prompt.

    The search for the naming has no gradient. If two namings are equally good, each gives a valid gradient.
    """
    log_p = logits.log_softmax(-1)
    targets = targets.to(log_p.dtype)
    named = naming(-targets.transpose(-1, -2) @ log_p.detach())
    matched = log_p.gather(-1, named.unsqueeze(-2).expand(log_p.shape))
    return -(matched * targets).sum(-1)


def naming(cost: Float[Tensor, "*batch K K"]) -> Int[Tensor, "*batch K"]:
    """The label of each true cluster in the naming with the lowest total cost. NaN counts as the highest cost."""
    size = cost.shape[-1]
    if cost.device.type == "meta":  # FLOPs are counted, and do not depend on the naming
        return torch.arange(size, device=cost.device).expand(cost.shape[:-1])
    cost = cost.nan_to_num(nan=1e30, posinf=1e30, neginf=-1e30)
    if size <= ENUMERATED:
        namings = torch.tensor(list(permutations(range(size))), device=cost.device)
        total = cost[..., torch.arange(size, device=cost.device), namings].sum(-1)
        return namings[total.argmin(-1)]
    flat = cost.reshape(-1, size, size).double().cpu().numpy()
    best = torch.tensor(
        [scipy.optimize.linear_sum_assignment(matrix)[1].tolist() for matrix in flat], device=cost.device
    )
    return best.reshape(cost.shape[:-1])


def cluster_agreement(
    logits: Float[Tensor, "*steps batch points K"], targets: Float[Tensor, "batch points K"]
) -> dict[str, Float[Tensor, "*steps batch"]]:
    """`misclassification` (share of points with another label), `ari` and `nmi`."""
    labels = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).double()
    counts = targets.double().transpose(-1, -2) @ labels
    correct = counts.gather(-1, naming(-counts).unsqueeze(-1)).sum((-1, -2))
    points = counts.sum((-1, -2))
    return {"misclassification": 1 - correct / points, "ari": _ari(counts), "nmi": _nmi(counts)}


def _ari(counts: Float[Tensor, "*batch K K"]) -> Float[Tensor, "*batch"]:
    """Adjusted Rand index; 1 if both clusterings have a single cluster, or both have one cluster per point."""

    def pairs(n: Tensor) -> Tensor:
        return n * (n - 1) / 2

    in_both = pairs(counts).sum((-1, -2))
    in_truth, in_guess = pairs(counts.sum(-1)).sum(-1), pairs(counts.sum(-2)).sum(-1)
    expected = in_truth * in_guess / pairs(counts.sum((-1, -2))).clamp_min(1)
    room = (in_truth + in_guess) / 2 - expected
    return torch.where(room > 0, (in_both - expected) / torch.where(room > 0, room, 1), 1)


def _nmi(counts: Float[Tensor, "*batch K K"]) -> Float[Tensor, "*batch"]:
    """Normalised mutual information; 1 if both clusterings have a single cluster, 0 if only one of them has."""
    shares = counts / counts.sum((-1, -2), keepdim=True)
    entropies = [torch.special.entr(shares.sum(side)).sum(-1) for side in (-1, -2)]
    mean = sum(entropies, torch.zeros(())) / 2
    mutual = sum(entropies, torch.zeros(())) - torch.special.entr(shares).sum((-1, -2))
    return torch.where(mean > 1e-12, mutual / torch.where(mean > 1e-12, mean, 1), 1)
