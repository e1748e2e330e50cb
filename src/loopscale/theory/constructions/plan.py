"""The language in which weights are written: named rows of a token's state, heads and units that move them.

A form is a matrix [k, D] that reads k numbers off a state of D rows: `rows["x"]` reads the rows named x, and
forms are scaled, added and stacked as matrices are. A block is x + Σ heads, then x + MLP; a head adds
Σ_j A(Σ_terms query·x_i . key·x_j) source·x_j to the target's rows of token i. Everything is float64.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor, nn

from loopscale.models.layers import Block

Form = Float[Tensor, "_ D"]
Term = tuple[Tensor, Tensor]
"""A part of a score, the inner product of what one form reads off the query's state and another off the key's."""
Move = tuple[Tensor, Tensor]
"""What is read off the key's state, and the rows of the query's state to which it is added."""


class Rows:
    """The rows of a state by name: `Rows(x=3, y=1)["x"]` is the form that reads the first three."""

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.width = sizes, sum(sizes.values())
        self._forms = dict(
            zip(sizes, torch.eye(self.width, dtype=torch.float64).split(list(sizes.values())), strict=True)
        )

    def __getitem__(self, name: str) -> Form:
        return self._forms[name]

    def part(self, name: str, first: int, size: int = 1) -> Form:
        """The rows first .. first + size - 1 of those with a name."""
        return self[name][first : first + size]

    def state(self, length: int, **values: Tensor | Sequence[float] | float) -> Float[Tensor, "length D"]:
        """So many tokens with these numbers in the rows named, [length] or [length, size], and 0 elsewhere."""
        whole = torch.zeros(length, self.width, dtype=torch.float64)
        for name, value in values.items():
            given = torch.as_tensor(value, dtype=torch.float64)
            given = given[:, None] if given.ndim == 1 else given
            whole = whole + given.expand(length, self.sizes[name]) @ self[name]
        return whole


@dataclass
class Plan:
    """A block's heads and hidden units."""

    heads: list[tuple[Term, Move]] = field(default_factory=list)
    units: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    shift: Tensor | float = 0.0
    """b2."""

    def head(self, score: Iterable[Term], move: Iterable[Move]) -> "Plan":
        """A head with the sum of these terms for a score."""
        terms, moves = list(score), list(move)
        self.heads.append((_stacked(terms), _stacked(moves)))
        return self

    def pair(self, score: Iterable[Term], move: Iterable[Move], mask: Iterable[Term] = ()) -> "Plan":
        """Two heads of relu attention that pass a score as it is, relu(s) - relu(-s); to both `mask` is added."""
        score, move, mask = list(score), list(move), list(mask)
        for sign in (1, -1):
            self.head([*((sign * q, k) for q, k in score), *mask], [(sign * s, t) for s, t in move])
        return self

    def unit(self, reads: Form, bias: Tensor | float, writes: Form) -> "Plan":
        """Hidden units relu(reads·x + bias), one for each row, each added to the state along its row of `writes`."""
        offset = torch.as_tensor(bias, dtype=torch.float64).expand(len(reads))
        self.units.append((reads, offset, writes))
        return self

    def add(self, source: Form, target: Form) -> "Plan":
        """The MLP adds what `source` reads to the target's rows: relu(z) - relu(-z)."""
        return self.unit(source, 0.0, target).unit(-source, 0.0, -target)

    def clear(self, target: Form) -> "Plan":
        """The MLP sets the target's rows to 0."""
        return self.add(-target, target)

    def gate(self, target: Form, flag: Form, bound: float) -> "Plan":
        """The MLP multiplies the target's rows, at most `bound` in size, by a flag that is 0 or 1: exactly."""
        far = bound * flag.expand(len(target), -1)
        return self.unit(target - far, 0.0, -target).unit(-target - far, 0.0, target)

    def constant(self, target: Form, value: float) -> "Plan":
        """The MLP adds a number to the target's rows of every token."""
        self.shift = self.shift + value * target.sum(0)
        return self

    @property
    def head_width(self) -> int:
        """Rows of queries, keys and values that its largest head needs."""
        return max((max(len(q), len(s)) for (q, _), (s, _) in self.heads), default=1)

    @property
    def hidden(self) -> int:
        return sum(len(reads) for reads, _, _ in self.units)

    def write(self, block: Block) -> None:
        """Set a block's weights; what the plan does not use of it becomes 0."""
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
        done = 0
        for reads, offset, writes in self.units:
            units = slice(done, done + len(reads))
            first.weight[units], first.bias[units], last.weight[:, units] = reads, offset, writes.T
            done += len(reads)
        last.bias.add_(self.shift)


def _stacked(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pairs of forms as one pair, one below the other."""
    firsts, seconds = zip(*pairs, strict=True)
    return torch.cat(firsts), torch.cat(seconds)
