"""The cost of a training."""

from loopscale.questions.axes.base import LawAxis


class Flops(LawAxis, kind="flops"):
    """The FLOPs of a training, by any number of the model and of the training."""

    title = "training cost (FLOPs)"
    logarithmic = True
    is_training = True
    measured = True
    varied = ("model.", "training.")
    not_held_out = "the FLOPs of a cell may follow from its tuning"
