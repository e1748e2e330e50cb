"""The sets of prompts that no training sees. Records name these sets without torch."""

from typing import Literal

Purpose = Literal["validate", "evaluate"]
"""validate: for choices during a study. evaluate: for the results of a study."""
VALIDATION_PROMPTS = 512
"""The number of prompts of a validation."""
EVALUATION_PROMPTS = 1024
"""The number of prompts of an evaluation, unless the study names another."""
