"""One layer of linear self-attention [@zhang2023, section 3.2]: f(E) = E + W^PV E (E'W^KQ E) / ρ.

The columns of E are the prompt's tokens. A prediction is the y coordinates of a token after the layer. ρ = N is the
number of pairs before the query.

Training starts as in assumption 3.3: W^PV = σ on y only and W^KQ = σ ΘΘ' on x only, with |ΘΘ'|_F = 1. From this start
gradient flow reaches the global optimum of linear regression (theorem 4.1). Its risk is the bound `lsa_risk`. The
theorem for mixtures is theorem 4.2 of @jin2024.

Only the rows of W^PV that write y affect a prediction. These rows are the weights. The other rows stay 0, as under
the paper's gradient flow. The net needs an encoder's prompts, because no token of a decoder's prompt contains a pair.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net, Outputs, States, Tokens


class LinearAttention(Model, kind="linear_attention"):
    scale: PositiveFloat = 0.1
    """σ, the scale of the weights before training. The theorem needs a small σ."""

    @property
    @override
    def depth(self) -> int:
        return 1

    @property
    @override
    def looks_ahead(self) -> bool:
        return True

    @override
    def require(self, prompt: Prompt) -> None:
        if not prompt.beside:
            content = "no pairs" if prompt.pairs is None else "x and y in separate tokens"
            raise ValueError(
                f"model {self.kind} reads one pair (x, y) per token, but these prompts have {content}; "
                f"write a regression task with format: encoder, or another model"
            )

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return LinearAttentionNet(self, prompt, rng)


class LinearAttentionNet(Net):
    def __init__(self, settings: LinearAttention, prompt: Prompt, rng: torch.Generator) -> None:
        super().__init__()
        self.depth, self.dim_out = 1, prompt.dim_out
        self.pv = nn.Parameter(torch.zeros(prompt.dim_out, prompt.dim_in))
        """The rows of W^PV that write y."""
        self.kq = nn.Parameter(torch.zeros(prompt.dim_in, prompt.dim_in))
        if self.kq.device.type == "meta":
            return
        inputs = prompt.dim_in - prompt.dim_out
        theta = torch.randn(inputs, inputs, generator=rng)
        square = theta @ theta.mT
        with torch.no_grad():
            self.pv[:, inputs:] = settings.scale * torch.eye(prompt.dim_out)
            self.kq[:inputs, :inputs] = settings.scale * square / square.norm()

    @override
    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        self.check(steps, first)
        return self._layer(tokens)[None]

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        """f(E), one token per row."""
        self.check(steps, 1)
        return torch.cat([tokens[..., : -self.dim_out], self._layer(tokens)], dim=-1)[None]

    def _layer(self, tokens: Tokens) -> Float[Tensor, "batch length dim_out"]:
        """The y coordinates of f(E)."""
        pairs = max(tokens.shape[1] - 1, 1)
        # W^PV E E' first, because its size does not depend on the length of the prompt.
        moment = (tokens @ self.pv.mT).mT @ tokens / pairs
        return tokens[..., -self.dim_out :] + tokens @ self.kq.mT @ moment.mT
