"""The prompts that a net sees in training."""

from typing_extensions import override

from loopscale.questions.axes.base import LawAxis


class Prompts(LawAxis, kind="prompts"):
    """The prompts seen in training: steps x batch size."""

    title = "prompts seen in training (count)"
    logarithmic = True
    factors = ("training.steps", "training.batch_size")
    varied = ("training.steps", "training.flops", "training.seconds", "training.batch_size")

    @property
    @override
    def is_training(self) -> bool:
        return True
