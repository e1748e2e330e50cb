"""An encoder: every token sees every other one, and every layer has weights of its own; one step is one layer.

In it Bai et al. 2023 and He et al. 2025 write their theorems: y_i = Σ_j A(q_i . k_j) v_j over all tokens, A
softmax (which is the E-step of a mixture's EM) or relu over the number N of tokens. There every head is a
whole D x D matrix (`head_dim: D`); by default heads split the width, as in practice. Without positions the net
is equivariant: permuted tokens have permuted outputs.

At which tokens it is asked, and so what its loss is the mean over, the task says: every point where no answer stands in
the prompt (clustering), tokens of their own for the answers (principal components), or the last token alone where the
prompt holds pairs: a regression with `format: encoder`. There a query at every pair is impossible: all tokens see all
others, and so the y that is asked for. Who wants the loss at every x takes a decoder and `format: decoder`.
"""

from typing import Literal

from loopscale.models.layered import LayeredArchitecture


class Encoder(LayeredArchitecture, kind="encoder"):
    """For prompts that hold no answers to what is asked, since it sees all tokens: a task says whether its are such."""

    causal: Literal[False] = False  # pyright: ignore[reportIncompatibleVariableOverride]: configs are frozen
    """An encoder has no other."""
