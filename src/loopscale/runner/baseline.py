"""A classical algorithm on a task: what a study sets its trained nets beside, recorded as a run of its own."""

import hashlib
import json
from typing import Any

from loopscale.core.config import Config
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.training.trial import as_before


class Baseline(Config):
    """One solver on one task setting. It has no seed and nothing to train."""

    task: Task
    solver: Solver

    @property
    def key(self) -> str:
        """Its identity, 16 hexadecimal digits: the hash of its settings."""
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        return as_before(self.model_dump(mode="json"))
