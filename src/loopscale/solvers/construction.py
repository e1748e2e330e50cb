"""Weights that provably run an algorithm, as a baseline beside the algorithm and trained nets.

The default is the construction of @gao2024, theorem 4.2. `loopscale show constructions` lists all
constructions with their sources.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import model_serializer, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.models.base import Net
from loopscale.solvers.bandits import as_logits
from loopscale.solvers.base import Solver
from loopscale.tasks.regression import Regression, interleave
from loopscale.theory.constructions.base import Construction, without_idle_heads, without_idle_units
from loopscale.theory.constructions.causal import CausalDescent
from loopscale.theory.constructions.players import Player

PLUGIN = "construction_plugin"
"""The name and the hash of the plugin that the construction comes from, in records."""


class Constructed(Solver, kind="construction"):
    """A construction with its settings: `{kind: construction, name: newton, start: 1}`.

    A construction with full attention runs once for each query, on the pairs before the query. So does a construction
    that plays, on the rounds before the query.
    """

    solves: ClassVar[type] = Regression
    construction: Construction = CausalDescent()
    """The construction, by its name in `loopscale show constructions`."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "construction" in data or not data:
            return data
        settings = {key: value for key, value in data.items() if key not in ("name", PLUGIN)}
        if "name" not in data:
            raise ValueError("this construction has no name; `loopscale show constructions` lists all names")
        chosen = Construction.member(data["name"])
        if not (chosen and chosen.solves) and PLUGIN not in data:
            names = [kind for kind, choice in Construction.choices().items() if choice.solves]
            problem = "reads tokens that no task has" if chosen else "is not a construction"
            raise ValueError(f"{data['name']} {problem}; write one of {', '.join(names)}")
        plugin = {"plugin": data[PLUGIN]} if PLUGIN in data else {}
        return {"construction": Construction.model_validate({"kind": data["name"]} | plugin | settings)}

    @model_serializer(mode="plain")
    def _dump(self, info: Any) -> dict[str, Any]:
        settings = {name: getattr(self.construction, name) for name in type(self.construction).model_fields}
        plugin = {PLUGIN: self.construction.plugin} if self.construction.plugin else {}
        return {"kind": self.kind, "name": self.construction.kind} | plugin | settings

    @override
    @classmethod
    def settings_beside(cls, written: Any) -> list[str]:
        name = str(written.get("name")) if isinstance(written, Mapping) else ""
        chosen = Construction.member(name) or CausalDescent
        return ["name", *chosen.model_fields]

    @override
    def takes(self, problem: Any) -> bool:
        if isinstance(self.construction, Player):
            return self.construction.takes(problem)
        return isinstance(problem, self.construction.solves or ())

    @property
    @override
    def guesses_from_prior(self) -> bool:
        """True for a construction that plays: it may prefer arms with long features before the first round."""
        return isinstance(self.construction, Player)

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem = batch.problem
        if isinstance(self.construction, Player):
            return as_logits(self._by_query(problem, *problem.plays.shape[1:], steps=steps))
        if self.construction.every_query:
            tokens = interleave(problem.xs.double(), problem.ys.double())
            return self._net(tokens)(tokens, steps)[:, :, 2 * problem.first :: 2]
        return self._by_query(problem, problem.xs.shape[1], 1, steps)

    def _by_query(
        self, problem: Any, points: int, outputs: int, steps: int
    ) -> Float[Tensor, "steps batch queries outputs"]:
        """The answers of one net for each query."""
        answers = list[Tensor]()
        for query in range(problem.first, points):
            tokens = self.construction.tokens_before(problem, query)
            if query < self.construction.least_pairs:
                answers.append(tokens.new_zeros(steps, len(tokens), outputs))
            else:
                answers.append(self.construction.at_query(self._net(tokens, outputs)(tokens, steps)))
        return torch.stack(answers, dim=2)

    def _net(self, tokens: Tensor, outputs: int = 1) -> Net:
        prompt = Prompt(tokens.shape[1], tokens.shape[2], outputs)
        return _built(self.construction.model_dump_json(), prompt).to(tokens.device)


@lru_cache(maxsize=256)
def _built(construction: str, prompt: Prompt) -> Net:
    chosen = Construction.model_validate_json(construction)
    net = chosen.net(prompt)
    # Every query asks for a net of its own, and idle parts are most of the cost of a block.
    return net if chosen.every_query else without_idle_units(without_idle_heads(net))
