"""The interface of a construction: a formula for the weights with which a net runs an algorithm."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.algoformer import Algoformer, AlgoformerNet
from loopscale.models.architecture import Architecture, Kind
from loopscale.models.base import Net
from loopscale.models.gpt2 import Gpt2
from loopscale.models.layered import LayeredNet
from loopscale.models.layers import Block, ReadIn, Stack
from loopscale.tasks.regression import interleave
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.statement import Statement


class Construction(Statement, package="loopscale.theory.constructions", allow_inf_nan=False):
    """The weights of one theorem.

    The docstring of each member states the algorithm, the tokens that the net reads, and the accuracy.
    """

    facts = ("source", "algorithm", "solves", "every_query")
    algorithm: ClassVar[str]
    """The algorithm. One step of the net (a loop, or a layer without loop) is one step of this algorithm."""
    solves: ClassVar[type | None] = None
    """The type of `Batch.problem` that the construction answers: pairs, or histories of play (`Player`). `None` if the
    construction reads the tokens of no task."""
    every_query: ClassVar[bool] = False
    """True if the net predicts at every x. False if it predicts at the last x only, from all pairs before it."""
    least_pairs: ClassVar[int] = 0
    """The smallest number of pairs before a query. Where a query has fewer pairs, a baseline predicts 0."""

    @property
    def limit(self) -> Limit | None:
        """The limit in which the net runs the algorithm. `None` if the net runs the algorithm exactly."""
        return None

    @classmethod
    @override
    def claimed(cls) -> str:
        """The claim with the default settings."""
        limit = cls().limit
        return f"~ {limit.power}" if limit else "="

    @classmethod
    @override
    def subject(cls) -> str:
        return cls.algorithm.replace("_", " ")

    @abstractmethod
    def stated(self, prompt: Prompt) -> Stated:
        """The accuracy and the size that the source states, for prompts of this geometry."""

    @abstractmethod
    def example(self, rng: torch.Generator) -> Example:
        """Random problems that fit this construction, with the iterates of a plain implementation of the algorithm."""

    @abstractmethod
    def design(self, prompt: Prompt) -> "Design":
        """The weights for prompts of this geometry.

        Raises
        ------
        ValueError
            If the prompt does not fit the construction.
        """

    def tokens_before(self, problem: Any, query: int, /) -> Float[Tensor, "batch tokens dim_in"]:
        """The tokens of all pairs before a query, and of the query. Float64. By default x_1, y_1, x_2, ..., x_query.

        Raises
        ------
        ValueError
            If the settings do not fit the problems.
        """
        pairs = slice(query + 1)
        return interleave(problem.xs[:, pairs].double(), problem.ys[:, pairs].double())[:, :-1]

    def at_query(
        self, outputs: Float[Tensor, "steps batch tokens dim_out"]
    ) -> Float[Tensor, "steps batch dim_out"]:
        """The answer to the query, from the outputs of a net at all tokens. By default the output at the last token."""
        return outputs[:, :, -1]

    def net(self, prompt: Prompt) -> Net:
        """The net with its weights, float64 and with gradients switched off. Raises ValueError as `design` does."""
        return self.design(prompt).net(prompt.length)

    def model(self, prompt: Prompt) -> Architecture:
        """The architecture of the net. A trial with this architecture can continue training from the construction."""
        return self.design(prompt).model(prompt.length)

    def require(self, holds: bool, condition: str) -> None:
        """Raises ValueError with the condition unless it holds."""
        if not holds:
            raise ValueError(f"construction {self.kind} requires {condition}")


@dataclass
class Design:
    """The weights of a net: state rows, read-in, read-out, positions, and a plan for each block.

    Without blocks in the loop the net is a plain stack (`gpt2`), which is read out after every layer.
    """

    rows: StateRows
    read_in: Float[Tensor, "D dim_in"]
    read_out: Float[Tensor, "dim_out D"]
    positions: Float[Tensor, "tokens D"]
    """The initial state of every token without its read-in. The registers come first."""
    before: Sequence[BlockPlan] = ()
    """Blocks before the loop."""
    loop: Sequence[BlockPlan] = ()
    after: Sequence[BlockPlan] = ()
    """Blocks after the loop."""
    attention: Kind | Sequence[Kind] = "softmax"
    """The kind of attention: one for all blocks, or one for each block in the order before, loop, after."""
    causal: bool = False
    normaliser: Literal["none", "length", "position"] = "none"
    """The divisor in relu and linear attention."""
    plans: list[BlockPlan] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = [*self.before, *self.loop, *self.after]

    def model(self, length: int) -> Algoformer | Gpt2:
        """The architecture, with as many heads and hidden units in every block as the largest block needs.

        Tokens with positions beyond the `length` tokens of the prompt are registers.
        """
        kinds: tuple[Kind, ...] = (
            (self.attention,) if isinstance(self.attention, str) else tuple(self.attention)
        )
        shared = {
            "width": self.rows.width,
            "heads": max(1, *(len(plan.heads) for plan in self.plans)),
            "head_dim": max(plan.head_width for plan in self.plans),
            "mlp_width": max(plan.hidden_units for plan in self.plans),
            "activation": "relu",
            "attention": kinds[0] if len(set(kinds)) == 1 else kinds,
            "normaliser": None if set(kinds) == {"softmax"} else self.normaliser,
            "causal": self.causal,
            "registers": len(self.positions) - length,
            "score_scale": 1.0,
            "norm": "none",
        }
        if not self.loop:
            return Gpt2.model_validate(shared | {"layers": len(self.plans)})
        layers = {"pre": len(self.before), "loop": len(self.loop), "post": len(self.after)}
        plain_loop = {"injection": "none", "repeat_positions": False, "repeat_norm": False}
        return Algoformer.model_validate(
            shared | plain_loop | {f"{part}_layers": count for part, count in layers.items()}
        )

    @torch.no_grad()
    def net(self, length: int) -> Net:
        """The net for prompts of `length` tokens, float64 and with gradients switched off."""
        prompt = Prompt(length, self.read_in.shape[1], self.read_out.shape[0])
        net = (
            self.model(length).build(prompt, torch.Generator().manual_seed(0)).double().requires_grad_(False)
        )
        assert isinstance(net, AlgoformerNet | LayeredNet)
        assert isinstance(net.read_in, ReadIn)
        for layer, weight in ((net.read_in, self.read_in), (net.read_out, self.read_out)):
            layer.weight.copy_(weight)
            layer.bias.zero_()
        positions = [part.positions for part in net.modules() if isinstance(part, Stack)]
        first, *others = [parameter for parameter in positions if parameter is not None]
        first.copy_(self.positions)
        for parameter in others:
            parameter.zero_()
        for block, plan in zip(blocks(net), self.plans, strict=True):
            plan.write(block)
        return net


def blocks(net: nn.Module) -> list[Block]:
    """The blocks of a net, in the order in which a prompt passes through them."""
    return [part for part in net.modules() if isinstance(part, Block)]


@torch.no_grad()
def without_idle_heads(net: Net) -> Net:
    """The net without heads that write nothing. Every block of an architecture has the heads of the largest block."""
    for block in blocks(net):
        attention = block.attention
        used = attention.out.weight.unflatten(1, (attention.heads, -1)).any(2).any(0)
        used[0] = True
        rows = used.repeat_interleave(attention.out.in_features // attention.heads)
        qkv, out = attention.qkv, attention.out
        qkv.weight = nn.Parameter(qkv.weight[rows.repeat(3)], requires_grad=False)
        out.weight = nn.Parameter(out.weight[:, rows], requires_grad=False)
        if qkv.bias is not None:
            qkv.bias = nn.Parameter(qkv.bias[rows.repeat(3)], requires_grad=False)
        attention.heads, qkv.out_features, out.in_features = (
            int(used.sum()),
            3 * int(rows.sum()),
            int(rows.sum()),
        )
    return net


@torch.no_grad()
def without_idle_units(net: Net) -> Net:
    """The net without hidden units that write nothing. Every block has as many units as the largest block needs."""
    for block in blocks(net):
        if block.mlp is None:
            continue
        first, last = block.mlp[0], block.mlp[2]
        assert isinstance(first, nn.Linear)
        assert isinstance(last, nn.Linear)
        used = last.weight.any(0)
        used[0] = True
        for layer, weight in ((first, first.weight[used]), (last, last.weight[:, used])):
            layer.weight = nn.Parameter(weight, requires_grad=False)
        if first.bias is not None:
            first.bias = nn.Parameter(first.bias[used], requires_grad=False)
        first.out_features = last.in_features = int(used.sum())
    return net
