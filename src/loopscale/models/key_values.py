"""Keys and values of the tokens that a causal net has read, so that each further token costs one token.

Without them a net computes the whole prompt again for every new token, as in play, where the next token depends on the
last answer. Shapes: B batch, H heads, L tokens so far, N new tokens, K width of a head.
"""

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.models.base import Answers, Tokens

MOST_BYTES = 2**29
"""Memory for keys and values. A net that needs more for the whole prompt computes every prefix again."""

Values = Float[Tensor, "B H L K"]


class KeyValues:
    """The keys and values of every call of attention, in the order of the calls.

    A pass reads some tokens and ends with `end_pass`. Every pass of a net has the same calls, so the calls of a pass
    are found by their number. Loops call one attention several times, each time with other keys and values.
    """

    def __init__(self) -> None:
        self.length = 0
        """Tokens of the ended passes, with registers."""
        self._calls = list[_Room]()
        self._call = 0

    def extended(self, k: Float[Tensor, "B H N K"], v: Float[Tensor, "B H N K"]) -> tuple[Values, Values]:
        """The keys and values of all tokens, from those of the new tokens. Without gradients."""
        if self._call == len(self._calls):
            self._calls.append(_Room(k))
        self._call += 1
        return self._calls[self._call - 1].extended(k, v)

    def end_pass(self) -> None:
        """The next call of attention is the first call of the next pass."""
        self.length = self._calls[0].length if self._calls else 0
        self._call = 0

    def select(self, rows: Int[Tensor, " B"]) -> None:
        """Go on with these prompts of the last pass, in this order. A prompt may occur several times."""
        for call in self._calls:
            call.select(rows)

    @property
    def bytes_per_token(self) -> int:
        """Memory of the keys and values of one token of every prompt."""
        return sum(call.bytes_per_token for call in self._calls)


class _Room:
    """The keys and values of one call. The room doubles when it is full, so that a token is copied once or twice."""

    def __init__(self, like: Float[Tensor, "B H N K"]) -> None:
        self.length = 0
        self._both = like.new_empty(2, *like.shape[:2], 0, like.shape[3])

    @property
    def bytes_per_token(self) -> int:
        both = self._both
        return both.element_size() * both[:, :, :, :1].numel()

    def select(self, rows: Int[Tensor, " B"]) -> None:
        self._both = self._both.index_select(1, rows.to(self._both.device))

    def extended(self, k: Float[Tensor, "B H N K"], v: Float[Tensor, "B H N K"]) -> tuple[Values, Values]:
        before, self.length = self.length, self.length + k.shape[2]
        if self.length > self._both.shape[3]:
            batch, heads, _, width = k.shape
            larger = k.new_empty(2, batch, heads, max(self.length, 2 * self._both.shape[3]), width)
            larger[:, :, :, :before] = self._both[:, :, :, :before]
            self._both = larger
        new = self._both[:, :, :, before : self.length]
        new[0], new[1] = k, v
        return self._both[0, :, :, : self.length], self._both[1, :, :, : self.length]


@runtime_checkable
class Continuing(Protocol):
    """A net that can read a prompt in parts."""

    def answers(self, batch: Batch, steps: int, first: int) -> Answers: ...

    def further(self, tokens: Tokens, at: Tensor, steps: int, past: KeyValues) -> Answers: ...


class Reader:
    """Answers prompts after the last of some steps. Prompts that go on from those of the last call are read from there.

    Prompts of a vocabulary may also go on in another order, or several from one, as in a beam. Any other prompts are
    read from their start, so a caller may change earlier tokens, or the number of prompts.
    """

    def __init__(self, net: Continuing, steps: int) -> None:
        self._net, self._steps = net, steps
        self._past: KeyValues | None = None
        self._read: Tokens | None = None
        self._too_large = False

    def __call__(self, batch: Batch) -> Float[Tensor, "batch points dim_out"]:
        if self._too_large:
            return self._net.answers(batch, self._steps, self._steps)[0]
        tokens = batch.tokens[:, : batch.asked]
        first = self._shared(tokens, batch)
        if self._past is None or not first:
            self._past, first = KeyValues(), 0
        answers = self._net.further(tokens[:, first:], batch.queries - first, self._steps, self._past)
        self._read = tokens.clone()  # the caller may write the next round into the same tensor
        if self._past.bytes_per_token * batch.tokens.shape[1] > MOST_BYTES:
            self._past, self._too_large = None, True
        return answers[0]

    def _shared(self, tokens: Tokens, batch: Batch) -> int:
        """The number of tokens that are read already; 0 if these are others, or if one of them is asked again."""
        read = self._read
        if read is None or self._past is None or read.shape[1] > int(batch.queries.min()):
            return 0
        known = tokens[:, : read.shape[1]]
        if torch.equal(known, read):
            return read.shape[1]
        if read.is_floating_point() or (rows := _rows_of(known, read)) is None:
            return 0
        self._past.select(rows)
        return read.shape[1]


def _rows_of(prompts: Tokens, read: Tokens) -> Int[Tensor, " B"] | None:
    """The row of `read` that equals each prompt; None if a prompt has none."""
    places = {tuple(row): place for place, row in enumerate(read[..., 0].tolist())}
    rows = [places.get(tuple(row)) for row in prompts[..., 0].tolist()]
    return None if None in rows else torch.tensor(rows)
