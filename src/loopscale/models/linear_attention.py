"""One layer of linear self-attention (Zhang, Frei, Bartlett 2023, section 3.2): f(E) = E + W^PV E (E'W^KQ E) / ρ.

E has the prompt's tokens as its columns, as they are; a guess is the last coordinates of a token after the layer, those
of y. ρ is the number of pairs before the query, N. By assumption 3.3 of that paper training starts at W^PV = σ on y
alone and W^KQ = σ ΘΘ' on x alone, |ΘΘ'|_F = 1: from there gradient flow reaches the global optimum of linear
regression (theorem 4.1), whose risk is the bound `lsa_risk`; for mixtures it is theorem 4.2 of Jin et al. 2024.

Of W^PV only the rows of y reach a guess: they are the weights, the others stay 0, as under the paper's flow. For an
encoder's prompts: in a decoder's, no token holds a pair.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net


class LinearAttention(Model, kind="linear_attention"):
    scale: PositiveFloat = 0.1
    """σ, of the weights that training starts from; the theorem asks for a small one."""

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
            held = "none" if prompt.pairs is None else "x and y in tokens of their own"
            raise ValueError(
                f"model {self.kind} reads a pair a token, an x and the y that is asked for, and these prompts hold "
                f"{held}; write a task that poses a regression, with format: encoder, or another model"
            )

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return LinearAttentionNet(self, prompt, rng)


class LinearAttentionNet(Net):
    def __init__(self, settings: LinearAttention, prompt: Prompt, rng: torch.Generator) -> None:
        super().__init__()
        self.depth, self.dim_out = 1, prompt.dim_out
        self.pv = nn.Parameter(torch.zeros(prompt.dim_out, prompt.dim_in))
        """The rows of W^PV that write to y."""
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
    def forward(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int, first: int = 1, truncate: bool = False
    ) -> Float[Tensor, "supervised batch length dim_out"]:
        self.check(steps, first)
        return self._layer(tokens)[None]

    @override
    def states(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int
    ) -> Float[Tensor, "steps batch length width"]:
        """f(E)."""
        self.check(steps, 1)
        return torch.cat([tokens[..., : -self.dim_out], self._layer(tokens)], dim=-1)[None]

    def _layer(self, tokens: Float[Tensor, "batch length dim_in"]) -> Float[Tensor, "batch length dim_out"]:
        """The coordinates of y in f(E)."""
        pairs = max(tokens.shape[1] - 1, 1)
        # W^PV E E' first: a matrix a prompt, whatever its length.
        moment = (tokens @ self.pv.mT).mT @ tokens / pairs
        return tokens[..., -self.dim_out :] + tokens @ self.kq.mT @ moment.mT
