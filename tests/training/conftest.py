from collections.abc import Callable
from typing import Any

import pytest

from loopscale.models.base import Model
from loopscale.training.trial import Trial

Make = Callable[..., Trial]


@pytest.fixture
def make() -> Make:
    """Makes trials that take seconds: `make("gpt2", lr=1e-2)`. Settings belong to the model or to training."""

    def make(
        kind: str = "algoformer", task: dict[str, Any] | None = None, seed: int = 0, **settings: Any
    ) -> Trial:
        fields = Model.choices()[kind].model_fields
        looped = {"loops": 4, "window": 2}
        small = {name: value for name, value in {"width": 8, "heads": 2}.items() if name in fields}
        model = {"kind": kind} | small
        model |= {name: value for name, value in settings.items() if name in fields}
        line = {"kind": "linear_regression", "dim": 2, "points": 5}
        whole = {"format": "encoder"} if Model.model_validate(model).looks_ahead else {}
        return Trial.model_validate(
            {
                "task": line | whole | (task or {}),
                "model": model,
                "training": looped
                | {"steps": 12, "batch_size": 8, "eval_every": 4, "lr": 3e-3}
                | {name: value for name, value in settings.items() if name not in fields},
                "seed": seed,
            }
        )

    return make
