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
from loopscale.solvers.base import Solver
from loopscale.tasks.regression import Regression, interleave
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.causal import CausalDescent

PLUGIN = "construction_plugin"
"""The name and the hash of the plugin that the construction comes from, in records."""


class Constructed(Solver, kind="construction"):
    """A construction with its settings: `{kind: construction, name: newton, start: 1}`.

    A construction with full attention runs once for each query, on the pairs before the query.
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
        return isinstance(problem, self.construction.solves or ())

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem = batch.problem
        tokens = interleave(problem.xs.double(), problem.ys.double())
        if self.construction.every_query:
            return self._net(tokens)(tokens, steps)[:, :, 2 * problem.first :: 2]
        prefixes = (tokens[:, : 2 * query + 1] for query in range(problem.first, problem.xs.shape[1]))
        return torch.stack([self._net(prefix)(prefix, steps)[:, :, -1] for prefix in prefixes], dim=2)

    def _net(self, tokens: Tensor) -> Net:
        prompt = Prompt(tokens.shape[1], tokens.shape[2], 1)
        return _built(self.construction.model_dump_json(), prompt).to(tokens.device)


@lru_cache(maxsize=256)
def _built(construction: str, prompt: Prompt) -> Net:
    return Construction.model_validate_json(construction).net(prompt)
