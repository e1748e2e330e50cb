"""The cost of a training."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from loopscale.questions.axes.base import LawAxis

if TYPE_CHECKING:
    from loopscale.tasks.base import Task
    from loopscale.training.trial import Trial


class Flops(LawAxis, kind="flops"):
    """The FLOPs of a training, by any number of the model and of the training."""

    title = "training cost (FLOPs)"
    logarithmic = True
    measured = True
    varied = ("model.", "training.")
    not_held_out = "the FLOPs of a cell may follow from its tuning"

    @property
    @override
    def is_training(self) -> bool:
        return True

    @override
    def planned(self, trial: "Trial", task: "Task", value: Callable[[str], object]) -> Sequence[float]:
        from loopscale.training.cost import training_flops  # reports need no torch

        return [training_flops(trial)]
