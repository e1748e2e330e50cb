"""Settings shared by all transformers, and settings shared by all looped transformers."""

from typing import Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model

Kind = Literal["softmax", "relu", "linear"]
"""Attention weights: softmax over the keys; relu of the score, or the score itself, over a normaliser."""


class Architecture(Model):
    """Settings of transformer blocks. The defaults are those of GPT-2.

    Constructions use the block of eq. 1 of @gao2024: x + Σ_h V_h x A_h, then x + W2 relu(W1 x + b1) + b2. This is
    `norm: none`, `activation: relu`, `score_scale: 1` and heads as wide as the state.
    """

    width: PositiveInt = 64
    """D, coordinates of the state of a token."""
    heads: PositiveInt = 4
    """Parallel attention heads per layer. Their outputs are added."""
    head_dim: PositiveInt | None = None
    """Coordinates of a head's queries, keys, values; `None` for width / heads, which must be a whole number."""
    mlp_width: NonNegativeInt | None = None
    """Hidden units of the MLP; `None` for 4 times the width, 0 for blocks without MLP."""
    activation: Literal["gelu", "relu"] = "gelu"
    """Activation of the MLP. gelu is exact. GPT-2's tanh approximation differs by less than 0.0005 and is slower."""
    attention: Kind | tuple[Kind, ...] = "softmax"
    """Attention of all layers, or a list with one entry per layer of the whole net. A short list repeats."""
    normaliser: Literal["none", "length", "position"] | None = None
    """Divisor of relu and linear attention. none: 1. length: the number N of tokens. position: i at token i, the
    number of its keys. `None` for position in a decoder and length in an encoder. Softmax normalises itself."""
    causal: bool = True
    """Whether a token sees only itself and earlier tokens, as in a decoder. Otherwise all tokens, as in an encoder."""
    registers: NonNegativeInt = 0
    """Additional empty tokens before the prompt, as working memory [@darcet2023]. They only have positions."""
    score_scale: PositiveFloat | None = None
    """Factor on the scores; `None` for 1 / sqrt(head_dim)."""
    norm: Literal["pre", "none"] = "pre"
    """pre: LayerNorm before attention, before the MLP and at the end. none: no LayerNorm."""
    positions: Literal["learned", "none"] = "learned"
    """learned: a learned vector per position, added to the token. none: only a causal mask gives an order."""
    biases: bool = True
    """Whether blocks have biases. Read-in and read-out always have biases."""
    tied: bool = False
    """Whether the read-out has the weights of the embedding, for tokens of a vocabulary, as in GPT-2."""
    init: Literal["normal", "scaled"] = "normal"
    """Standard deviation of the initial weights of positions and blocks. normal: `init_std`. scaled: `init_gain` /
    sqrt(inputs of the layer), so that widths compare; positions count as a layer with `width` inputs. With both, output
    layers of a block are divided by sqrt(2 layers), as in GPT-2."""
    init_std: PositiveFloat = 0.02
    """Standard deviation if `init` is normal: that of GPT-2 [@radford2019]."""
    init_gain: PositiveFloat = 0.55
    """Standard deviation times sqrt(inputs) if `init` is scaled. 0.55 gives GPT-2's 0.02 at GPT-2's width of 768."""

    @property
    @override
    def recomputable(self) -> bool:
        return True

    @override
    def require(self, prompt: Prompt) -> None:
        if self.tied and prompt.vocabulary is None:
            raise ValueError(
                "tied is for tokens of a vocabulary, and these tokens are numbers; write tied: false"
            )

    @override
    def priced(self) -> "Architecture":
        names = ("init", "init_std", "init_gain")
        return self.model_copy(update={name: Architecture.model_fields[name].default for name in names})

    def std(self, inputs: int) -> float:
        """Standard deviation of the initial weights of a layer with so many inputs."""
        return self.init_std if self.init == "normal" else self.init_gain * inputs**-0.5

    @property
    @override
    def looks_ahead(self) -> bool:
        return not self.causal

    @property
    @override
    def reads_in_parts(self) -> bool:
        """True if no token sees later tokens, or their number."""
        return self.causal and self.normaliser != "length"

    @property
    def head_width(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """`attention` as a tuple."""
        return (self.attention,) if isinstance(self.attention, str) else self.attention

    def kinds_of(self, layers: int, before: int = 0) -> list[Kind]:
        """Attention of `layers` layers, which follow the first `before` layers of the net."""
        return [self.kinds[n % len(self.kinds)] for n in range(before, before + layers)]

    @property
    def hidden(self) -> int:
        """Hidden units of the MLP; 0 without MLP."""
        return 4 * self.width if self.mlp_width is None else self.mlp_width

    @property
    def scale(self) -> float:
        return self.score_scale or self.head_width**-0.5

    @model_validator(mode="after")
    def _heads_divide_width(self) -> "Architecture":
        if self.head_dim is None and self.width % self.heads:
            valid = ", ".join(str(n) for n in range(1, self.width + 1) if self.width % n == 0)
            raise ValueError(
                f"{self.heads} heads do not divide width {self.width}; write one of {valid}, or set head_dim"
            )
        return self

    @model_validator(mode="after")
    def _normaliser_fits_attention(self) -> "Architecture":
        if not self.kinds:
            raise ValueError("attention is an empty list; write softmax, relu or linear")
        if set(self.kinds) == {"softmax"} and self.normaliser is not None:
            raise ValueError(
                f"normaliser {self.normaliser!r} is for relu and linear attention; leave it out for softmax"
            )
        if self.normaliser == "position" and not self.causal:
            raise ValueError("normaliser 'position' needs a decoder; for an encoder write none or length")
        return self

    @model_validator(mode="after")
    def _initial_weights_follow_one_rule(self) -> "Architecture":
        idle, used = ("init_gain", "init_std") if self.init == "normal" else ("init_std", "init_gain")
        if getattr(self, idle) != Architecture.model_fields[idle].default:
            raise ValueError(
                f"{idle} {getattr(self, idle):g} has no effect with init: {self.init}; write {used}, or another init"
            )
        return self

    @model_validator(mode="after")
    def _registers_have_positions(self) -> "Architecture":
        if self.registers and self.positions == "none":
            raise ValueError(
                "registers are distinguished by positions only; write positions: learned, or registers: 0"
            )
        return self


class LoopedArchitecture(Architecture):
    """Settings of a loop. The defaults are those of the code of @yang2023, where other settings gave larger errors."""

    injection: Literal["add", "none"] = "add"
    """add: the state starts at zero, and every loop reads state + prompt. none: the state starts at the prompt."""
    repeat_positions: bool = True
    """Whether every loop adds positions. Otherwise only the first loop or the layers before the loop add them."""
    repeat_norm: bool = True
    """Whether every loop applies the final LayerNorm. Otherwise only the output of the loop is normalised."""

    @property
    def layers_before(self) -> int:
        """Number of layers before the loop. These layers have their own positions."""
        return 0

    @property
    def layers_within(self) -> int:
        """Number of layers in the loop, which run in every loop."""
        return 1

    @property
    @override
    def truncatable(self) -> bool:
        """False if the prompt or its positions enter before the first loop only."""
        positions = self.repeat_positions or self.positions == "none" or self.layers_before > 0
        return self.injection == "add" and positions
