"""Measures of clusterings. Labels have no names: two points only have the same label or different labels.

Cross entropy and misclassification take the best naming of the clusters, found by one assignment problem per prompt.
The adjusted Rand index [@hubert1985] and normalised mutual information (divided by the arithmetic mean of
the entropies, as in scikit-learn) need no naming.
"""

from functools import cache
from itertools import combinations, permutations

import scipy  # scipy loads its submodules at the first use
import torch
from jaxtyping import Float, Int
from torch import Tensor

ENUMERATED = 5
"""Up to this number of clusters all namings (120) are tried at once."""

BY_SUBSETS = 10
"""Up to this number of clusters a GPU finds the best naming from those of all subsets (1,024) of the clusters. For more
clusters the host solves the prompts one by one, and a training step waits for the GPU. The host is faster on a CPU: for
320 prompts and 8 clusters 0.8 ms, and the subsets 2.6 ms."""


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
        namings = _namings(size, cost.device)
        total = cost[..., torch.arange(size, device=cost.device), namings].sum(-1)
        return namings[total.argmin(-1)]
    flat = cost.reshape(-1, size, size).double()
    on_the_host = flat.device.type == "cpu" or size > BY_SUBSETS
    best = _on_the_host(flat) if on_the_host else by_subsets(flat)
    return best.reshape(cost.shape[:-1])


@cache
def _namings(size: int, device: torch.device) -> Int[Tensor, "namings K"]:
    """All namings. The tensor is kept, because a copy to a GPU at every step would make the host wait."""
    return torch.tensor(list(permutations(range(size))), device=device)


def by_subsets(cost: Float[Tensor, "batch K K"]) -> Int[Tensor, "batch K"]:
    """The exact assignment with the lowest cost, without a value that the host must know.

    The first n clusters take n of the labels. Their lowest cost for each set of n labels follows from the sets of
    n - 1 labels [@held1962].
    """
    tables, choices = _subsets(cost.shape[-1], cost.device), list[Tensor]()
    lowest = cost.new_zeros(len(cost), 1)
    for cluster, (labels, without) in enumerate(tables):
        lowest, choice = (lowest[:, without] + cost[:, cluster][:, labels]).min(-1)
        choices.append(choice)
    subset, named = torch.zeros_like(choices[-1]), list[Tensor]()
    for choice, (labels, without) in zip(reversed(choices), reversed(tables), strict=True):
        last = choice.gather(1, subset)
        named.append(labels[subset, last])
        subset = without[subset, last]
    return torch.cat(named[::-1], dim=1)


@cache
def _subsets(
    size: int, device: torch.device
) -> list[tuple[Int[Tensor, "subsets n"], Int[Tensor, "subsets n"]]]:
    """For n = 1 .. `size`: the labels of every set of n labels, and the number of the set without each label."""
    tables = list[tuple[Tensor, Tensor]]()
    numbers: dict[tuple[int, ...], int] = {(): 0}
    for n in range(1, size + 1):
        subsets = list(combinations(range(size), n))
        without = [[numbers[subset[:k] + subset[k + 1 :]] for k in range(n)] for subset in subsets]
        tables.append((torch.tensor(subsets, device=device), torch.tensor(without, device=device)))
        numbers = {subset: number for number, subset in enumerate(subsets)}
    return tables


def _on_the_host(cost: Float[Tensor, "batch K K"]) -> Int[Tensor, "batch K"]:
    matrices = cost.cpu().numpy()
    best = [scipy.optimize.linear_sum_assignment(matrix)[1].tolist() for matrix in matrices]
    return torch.tensor(best, device=cost.device)


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
