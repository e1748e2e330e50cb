"""The prompts that a net sees in training."""

from loopscale.questions.axes.base import LawAxis


class Prompts(LawAxis, kind="prompts"):
    """The prompts seen in training: steps x batch size."""

    title = "prompts seen in training (count)"
    logarithmic = True
    is_training = True
    factors = ("training.steps", "training.batch_size")
    varied = ("training.steps", "training.flops", "training.seconds", "training.batch_size")
