"""Weights as formulas: named rows of a token's state, and the heads and hidden units that change these rows.

A form is a matrix [k, D] that reads k numbers from a state of D rows. `rows["x"]` is the form that reads the rows
named x. Forms are scaled, added and stacked like matrices. All numbers are float64.

A block computes x + Σ heads, and then x + MLP. A head adds `Σ_j A(score_ij) source·x_j` to the target rows of token i.
The score is a sum over terms: `score_ij = Σ (query·x_i)·(key·x_j)`. Token i is the query, token j the key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from loopscale.models.layers import Block

Form = Float[Tensor, "_ D"]
Term = tuple[Tensor, Tensor]
"""One term of a score: the form read from the query, and the form read from the key."""
Move = tuple[Tensor, Tensor]
"""The form read from the key, and the rows of the query that receive the result."""


class StateRows:
    """The rows of a state by name. `StateRows(x=3, y=1)["x"]` is the form that reads the first three rows."""

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.width = sizes, sum(sizes.values())
        self._forms = dict(
            zip(sizes, torch.eye(self.width, dtype=torch.float64).split(list(sizes.values())), strict=True)
        )

    def __getitem__(self, name: str) -> Form:
        return self._forms[name]

    def part(self, name: str, first: int, size: int = 1) -> Form:
        """Rows `first` to `first + size - 1` of the rows with this name."""
        return self[name][first : first + size]

    def read_in(self, *names: str) -> Float[Tensor, "D dim_in"]:
        """The read-in that writes the coordinates of a token into the named rows, in this order."""
        return torch.cat([self[name] for name in names]).T

    def state(self, length: int, **values: Tensor | Sequence[float] | float) -> Float[Tensor, "length D"]:
        """The states of `length` tokens: the given numbers in the named rows, 0 elsewhere.

        A value is a number, or has the shape [length] or [length, rows].
        """
        states = torch.zeros(length, self.width, dtype=torch.float64)
        for name, value in values.items():
            entries = torch.as_tensor(value, dtype=torch.float64)
            entries = entries[:, None] if entries.ndim == 1 else entries
            states = states + entries.expand(length, self.sizes[name]) @ self[name]
        return states


@dataclass
class BlockPlan:
    """The heads and hidden units of a block. Every method adds to the plan and returns it."""

    heads: list[tuple[Term, Move]] = field(default_factory=list)
    units: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    """Rows of W1, entries of b1, columns of W2."""
    shift: Tensor | float = 0.0
    """b2."""

    def head(self, score: Iterable[Term], move: Iterable[Move]) -> "BlockPlan":
        """One head. Its score is the sum of the terms."""
        self.heads.append((stacked(score), stacked(move)))
        return self

    def signed_pair(
        self, score: Iterable[Term], move: Iterable[Move], mask: Iterable[Term] = ()
    ) -> "BlockPlan":
        """Two heads of relu attention that pass a signed score, by relu(s) - relu(-s). Both scores include `mask`."""
        score, move, mask = list(score), list(move), list(mask)
        for sign in (1, -1):
            self.head([*((sign * q, k) for q, k in score), *mask], [(sign * s, t) for s, t in move])
        return self

    def unit(self, reads: Form, bias: Tensor | float, writes: Form) -> "BlockPlan":
        """Hidden units relu(reads·x + bias), one per row of `reads`. Each is added along its row of `writes`."""
        biases = torch.as_tensor(bias, dtype=torch.float64).expand(len(reads))
        self.units.append((reads, biases, writes))
        return self

    def add(self, source: Form, target: Form) -> "BlockPlan":
        """The MLP adds `source` to the target rows, by relu(z) - relu(-z)."""
        return self.unit(source, 0.0, target).unit(-source, 0.0, -target)

    def clear(self, target: Form) -> "BlockPlan":
        """The MLP sets the target rows to 0."""
        return self.add(-target, target)

    def gate(self, target: Form, flag: Form, bound: float) -> "BlockPlan":
        """The MLP multiplies the target rows by a flag in {0, 1}, exactly. No entry may exceed `bound` in size."""
        lowered = bound * flag.expand(len(target), -1)
        return self.unit(target - lowered, 0.0, -target).unit(-target - lowered, 0.0, target)

    def constant(self, target: Form, value: float) -> "BlockPlan":
        """The MLP adds a number to the target rows of every token."""
        self.shift = self.shift + value * target.sum(0)
        return self

    @property
    def head_width(self) -> int:
        """The number of query, key and value rows that the largest head needs."""
        return max((max(len(q), len(s)) for (q, _), (s, _) in self.heads), default=1)

    @property
    def hidden_units(self) -> int:
        return sum(len(reads) for reads, _, _ in self.units)

    def write(self, block: Block) -> None:
        """Set the weights of a block. Weights that the plan does not use become 0."""
        for parameter in block.parameters():
            parameter.zero_()
        attention = block.attention
        inner = attention.out.in_features
        size = inner // attention.heads
        for n, ((query, key), (source, target)) in enumerate(self.heads):
            for third, form in enumerate((query, key, source)):
                start = third * inner + n * size
                attention.qkv.weight[start : start + len(form)] = form
            attention.out.weight[:, n * size : n * size + len(target)] = target.T
        if block.mlp is None:
            return
        first, last = block.mlp[0], block.mlp[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        start = 0
        for reads, biases, writes in self.units:
            units = slice(start, start + len(reads))
            first.weight[units], first.bias[units], last.weight[:, units] = reads, biases, writes.T
            start += len(reads)
        last.bias.add_(self.shift)


def stacked(pairs: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The first forms stacked, and the second forms stacked."""
    firsts, seconds = zip(*pairs, strict=True)
    return torch.cat(firsts), torch.cat(seconds)
