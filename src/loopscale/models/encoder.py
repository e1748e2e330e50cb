"""An encoder: every token sees every other one, and every layer has weights of its own; one step is one layer.

In it Bai et al. 2023 and He et al. 2025 write their theorems: y_i = Σ_j A(q_i . k_j) v_j over all tokens, A
softmax (which is the E-step of a mixture's EM) or relu over the number N of tokens. There every head is a
whole D x D matrix (`head_dim: D`); by default heads split the width, as in practice. Without positions the net
is equivariant: permuted tokens have permuted outputs.
"""

from typing import Literal

from loopscale.models.layered import LayeredArchitecture


class Encoder(LayeredArchitecture, kind="encoder"):
    """For prompts that hold no answers to what is asked, since it sees all tokens: a task says whether its are such."""

    causal: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]: configs are frozen
    """An encoder has no other."""
