"""An encoder: every token sees all tokens, and every layer has its own weights. One step is one layer.

The theorems of @bai2023 and @he2024 use encoders: y_i = Σ_j A(q_i . k_j) v_j over all tokens. A is
softmax (the E-step of a mixture's EM) or relu over the number N of tokens. In the theorems every head is a full D x D
matrix (`head_dim: D`). By default heads split the width, as in practice. Without positions the net is equivariant:
permuted tokens give permuted outputs.

The task chooses the queries, and so the tokens of the loss. Clustering asks at every point, because the prompt
contains no answer. Principal components have separate query tokens. A regression with `format: encoder` asks at the
last token only. A query at every pair is impossible, because all tokens would see the answer y. For a loss at every
x, use a decoder and `format: decoder`.
"""

from typing import Literal

from loopscale.models.layered import LayeredArchitecture


class Encoder(LayeredArchitecture, kind="encoder"):
    """For tasks whose prompts contain no answers, because an encoder sees all tokens."""

    causal: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]: configs are frozen
    """Always false for an encoder."""
