"""The settings that every transformer here shares, and those that every looped one does."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from typing_extensions import override

from loopscale.models.base import Model

Kind = Literal["softmax", "relu", "linear"]
"""What becomes of a score: softmax over the keys; relu, or the score itself, over a normaliser."""


class Architecture(Model):
    """What the blocks of a transformer are made of; the defaults are those of GPT-2.

    With `norm: none`, `activation: relu`, `score_scale: 1` and heads as wide as the state, a block is eq. 1
    of AlgoFormer, in which constructions are written: x + Σ_h V_h x A_h, then x + W2 relu(W1 x + b1) + b2.
    """

    width: PositiveInt = 64
    """D, coordinates of the state of a token."""
    heads: PositiveInt = 4
    """Attention heads of every layer, side by side; their results add up."""
    head_dim: PositiveInt | None = None
    """Coordinates of a head's queries, keys and values; `None` for width / heads, which must then divide."""
    mlp_width: NonNegativeInt | None = None
    """Hidden units of the MLP; `None` for 4 times the width, 0 for blocks of attention alone."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Of the MLP. gelu is exact; GPT-2's, with a tanh, differs by less than 0.0005 and is slower."""
    attention: Kind | tuple[Kind, ...] = "softmax"
    """Of every layer, or of one after the other through the whole net, from the first again where there are more."""
    normaliser: Literal["none", "length", "position"] | None = None
    """What relu and linear attention divide by: 1, the number N of tokens, or i at token i, its keys.
    `None` is `position` in a decoder, `length` in an encoder. Softmax has its own."""
    causal: bool = True
    """Whether a token sees none after it, as in a decoder; else all, as in an encoder."""
    registers: NonNegativeInt = 0
    """Tokens before the prompt, which hold nothing but their positions: room to work in, as in Darcet et al. 2023."""
    score_scale: PositiveFloat | None = None
    """What scores are multiplied by; `None` for 1 / sqrt(head_dim)."""
    norm: Literal["pre", "none"] = "pre"
    """LayerNorm before attention, before the MLP and at the end, or nowhere."""
    positions: Literal["learned", "none"] = "learned"
    """learned: a vector for every place in the prompt, added to the token. none: a causal mask alone tells order."""
    biases: bool = True
    """Of the blocks. Read-in and read-out always have theirs."""

    @property
    @override
    def looks_ahead(self) -> bool:
        return not self.causal

    @property
    def head_width(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What `attention` names."""
        return (self.attention,) if isinstance(self.attention, str) else self.attention

    def kinds_of(self, layers: int, before: int = 0) -> list[Kind]:
        """The attention of so many layers of the net, `before` of it having gone before them."""
        return [self.kinds[n % len(self.kinds)] for n in range(before, before + layers)]

    @property
    def hidden(self) -> int:
        """Hidden units of the MLP; 0 where there is none."""
        return 4 * self.width if self.mlp_width is None else self.mlp_width

    @property
    def scale(self) -> float:
        return self.score_scale or self.head_width**-0.5

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Architecture":
        if self.head_dim is None and self.width % self.heads:
            valid = ", ".join(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
            raise ValueError(
                f"{self.heads} heads do not divide width {self.width}; {valid} do, or set head_dim"
            )
        return self

    @model_validator(mode="after")
    def _normaliser_fits_attention(self) -> "Architecture":
        if not self.kinds:
            raise ValueError("attention names no kind for any layer; write softmax, relu or linear")
        if set(self.kinds) == {"softmax"} and self.normaliser is not None:
            raise ValueError(
                f"normaliser {self.normaliser!r} is for relu and linear attention; leave it out, softmax has its own"
            )
        if self.normaliser == "position" and not self.causal:
            raise ValueError(
                "normaliser 'position' counts the keys in sight of a decoder; for an encoder write none or length"
            )
        return self

    @model_validator(mode="after")
    def _registers_are_told_apart(self) -> "Architecture":
        if self.registers and self.positions == "none":
            raise ValueError(
                "registers hold their positions alone; write positions: learned, or registers: 0"
            )
        return self


class LoopedArchitecture(Architecture):
    """How a loop is closed. The defaults are those of Yang et al.'s code; others did worse there."""

    injection: Literal["add", "none"] = "add"
    """add: the state starts at zero, and every loop sees state + prompt. none: it starts at the prompt."""
    repeat_positions: bool = True
    """Whether positions are added in every loop; else in the first alone, or only by the layers before it."""
    repeat_norm: bool = True
    """Whether the final LayerNorm is part of the loop, or applied only on the way out of it."""

    @property
    def layers_before(self) -> int:
        """Layers before the loop, which see positions of their own."""
        return 0

    @property
    @override
    def truncatable(self) -> bool:
        """Not where something enters before the first loop and never again."""
        placed = self.repeat_positions or self.positions == "none" or self.layers_before > 0
        return self.injection == "add" and placed
