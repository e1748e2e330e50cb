"""A trial: everything that one training run depends on, and nothing it does not."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from loopscale.core.config import Config
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net
from loopscale.tasks.base import Task
from loopscale.theory.constructions.base import Construction

UNHASHED = ("eval_every", "checkpoint_every")
"""When to look, not what is trained: two trials that differ in these settings of `training` are one."""

LOOPED_ONLY = ("loops", "window", "truncate")
"""Settings of `training` that do not apply to a net of fixed depth."""


LATER: dict[str, dict[str, Any]] = {
    "task": {"format": "decoder", "query": "row"},
    "model": {"causal": True, "registers": 0},
    "training": {"start": None, "decay": None, "decay_every": 1},
}
"""Settings that older trials have not got, with what was so for them: they keep their identity."""


class Curriculum(Config):
    """Few coordinates and few pairs first, more and more of them (Garg et al. 2022, section A.2)."""

    dim: PositiveInt
    """Coordinates at work at first; grows by `dim_by` up to the task's own."""
    points: PositiveInt
    """Pairs in the prompt at first; grows by `points_by` up to the task's own."""
    every: PositiveInt
    """Steps between increments: 2,000 in Garg et al., 5,000 in Yang et al."""
    dim_by: PositiveInt = 1
    """Coordinates more at every increment."""
    points_by: PositiveInt = 2
    """Pairs more at every increment."""


class Training(Config):
    """How a net is trained: eq. 6 of AlgoFormer by Adam on fresh prompts."""

    steps: PositiveInt = 1000
    """Steps of Adam, each on a batch of its own."""
    batch_size: PositiveInt = 64
    """Prompts of a step."""
    lr: PositiveFloat = 1e-3
    """Adam's learning rate once the warm-up is over."""
    loops: PositiveInt = 10
    """T: how often the net loops in training."""
    window: PositiveInt = 10
    """ΔT: the loss counts the last so many loops, T-ΔT+1 .. T."""
    truncate: bool = True
    """Whether the loops before the window run without gradient, as in Yang et al."""
    schedule: Literal["constant", "cosine"] = "constant"
    """The learning rate after the warm-up: constant, or falling to zero along a half cosine."""
    decay: float | None = Field(default=None, gt=0, le=1)
    """What the rate is multiplied by after every `decay_every` steps past the warm-up; `None` for 1. He et al. 2025
    write 0.995 for their 300 iterations.
    """
    decay_every: PositiveInt = 1
    """Steps between two such factors."""
    warmup: NonNegativeInt = 0
    """Steps over which the learning rate rises linearly from zero."""
    clip: PositiveFloat | None = None
    """The largest norm of the gradient; `None` for no clipping."""
    curriculum: Curriculum | None = None
    """Easier prompts first, where the task has `dim` and `points`; `None` for the task itself from the first step."""
    start: Construction | None = None
    """The construction whose weights are trained on, by its `kind`; `None` for weights drawn anew. The model has to
    be its net: what to write, the mistake says."""
    precision: Literal["float32", "bf16", "float64"] = "float32"
    """Of the net. bf16 is autocast: weights, loss and read-out stay in float32."""
    eval_every: PositiveInt = 100
    """Steps between reports of the validation error."""
    checkpoint_every: PositiveInt | None = None
    """Steps between checkpoints; `None` for one at every report. Rounded up to the next report."""

    @model_validator(mode="after")
    def _window_within_loops(self) -> "Training":
        if self.window > self.loops:
            raise ValueError(
                f"window {self.window} is more than the {self.loops} loops, of which it counts the last; "
                f"write a window of {self.loops} or less, or {self.window} loops or more"
            )
        if self.warmup > self.steps:
            raise ValueError(
                f"warmup {self.warmup} does not fit into {self.steps} steps; write {self.steps} or less"
            )
        return self


class Trial(Config):
    """Task, model, training and seed. A frozen value; its `key` is its identity."""

    task: Task
    """What is learned: a task's kind and its settings."""
    model: Model
    """What learns it: a model's kind and its settings."""
    training: Training = Training()
    """How: steps, learning rate, loops."""
    seed: NonNegativeInt = 0
    """Of the weights and of the prompts trained on: 0 in tuning, 1 and up for replicates."""

    @model_validator(mode="after")
    def _model_reads_the_prompts(self) -> "Trial":
        self.model.require(self.task.prompt)
        return self

    @model_validator(mode="after")
    def _gradient_reaches_every_weight(self) -> "Trial":
        training = self.training
        if self.model.truncatable or not training.truncate or training.window == training.loops:
            return self
        raise ValueError(
            f"with injection none, or positions in the first loop alone, truncate needs window = loops, not "
            f"window {training.window} of {training.loops} loops: no gradient reaches what enters before the "
            f"first; set window to {training.loops}, truncate to false, or injection to add and "
            f"repeat_positions to true"
        )

    @model_validator(mode="after")
    def _no_query_sees_its_answer(self) -> "Trial":
        if self.task.whole or not self.model.looks_ahead:
            return self
        asks = "format: encoder, " if "format" in type(self.task).model_fields else ""
        raise ValueError(
            f"model {self.model.kind} looks ahead, and would see the answers that stand in prompts of "
            f"{self.task.kind}; write causal: true, {asks}or a model that does not look ahead"
        )

    @model_validator(mode="after")
    def _starts_from_weights_of_its_own_shape(self) -> "Trial":
        start = self.training.start
        if start is None:
            return self
        if not start.every_query or start.solves is None:
            able = [kind for kind, each in Construction.choices().items() if each.every_query and each.solves]
            raise ValueError(
                f"training.start {start.kind} does not guess at every query of a prompt; write a kind that does, "
                f"{' or '.join(able)}"
            )
        if self.task.whole:
            raise ValueError(
                f"training.start {start.kind} guesses at every query, and this task asks at the end of a prompt alone; "
                f"write format: decoder"
            )
        wanted = start.model(self.task.prompt)
        if wanted != self.model:
            plain = type(wanted)().model_dump()
            told = {name: value for name, value in wanted.model_dump().items() if value != plain[name]}
            told = ", ".join(f"{name}: {json.dumps(value)}" for name, value in told.items())
            raise ValueError(
                f"training.start {start.kind} is another net than this model; write model: "
                f"{{kind: {wanted.kind}, {told}}}"
            )
        return self

    def net(self) -> Net:
        """With the weights that training starts from, on the CPU."""
        if self.training.start is None:
            return self.model.build(self.task.prompt, stream(self.seed, "weights"))
        return self.training.start.net(self.task.prompt).requires_grad_(True)

    @model_validator(mode="after")
    def _curriculum_fits_the_task(self) -> "Trial":
        self.stage(1)
        return self

    def stage(self, step: int) -> Task:
        """The task at `step`, counted from 1: the trial's own, or an easier one as the curriculum has it."""
        curriculum = self.training.curriculum
        if curriculum is None:
            return self.task
        sizes, grown = self.task.model_dump(), (step - 1) // curriculum.every
        if not {"dim", "points"} <= sizes.keys():
            raise ValueError(
                f"task {self.task.kind} has no dim and points for a curriculum; leave curriculum out"
            )
        for name in ("dim", "points"):
            if getattr(curriculum, name) > sizes[name]:
                start = getattr(curriculum, name)
                raise ValueError(
                    f"the curriculum starts with {name} {start}, the task has {sizes[name]}; "
                    f"start it with {sizes[name]} or less"
                )
        return self.task.easier(
            min(curriculum.dim + grown * curriculum.dim_by, sizes["dim"]),
            min(curriculum.points + grown * curriculum.points_by, sizes["points"]),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """What the outcome depends on: every setting that applies to this trial, defaults included."""
        tree = self.model_dump(mode="json")
        for name in UNHASHED + (LOOPED_ONLY if self.model.depth is not None else ()):
            del tree["training"][name]
        return as_before(tree)

    @property
    def key(self) -> str:
        """Its identity, 16 hexadecimal digits: the hash of its settings, however they were written down."""
        return identity(self)

    @property
    def steps_per_prompt(self) -> int:
        """How many loops or layers the trained net runs: the T of the objective."""
        return self.model.depth or self.training.loops


def as_before(tree: dict[str, Any]) -> dict[str, Any]:
    """The settings of a trial, or of a baseline, without those of `LATER` that are what was so before."""
    for part in LATER.keys() & tree.keys():
        for name, old in LATER[part].items():
            if tree[part].get(name) == old:
                del tree[part][name]
    return tree


def identity(trial: Trial, without: tuple[str, ...] = ()) -> str:
    """The hash of a trial's settings that differ from their defaults, leaving out dotted paths.

    Only what differs counts, so that a new setting with a default leaves every recorded key as it was. A
    released default must therefore never change (a golden test keeps keys).
    """
    tree = _changed(trial, trial.settings)
    for path in without:
        *parents, leaf = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.get(parent, {})
        branch.pop(leaf, None)
    text = json.dumps(tree, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _changed(config: Config, settings: dict[str, Any]) -> dict[str, Any]:
    """`settings` of a config without those that are at their defaults; `kind` always stays."""
    changed = {name: value for name, value in settings.items() if name == "kind"}
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if name not in settings or (
            not field.is_required() and value == field.get_default(call_default_factory=True)
        ):
            continue
        branch = _changed(value, settings[name]) if isinstance(value, Config) else settings[name]
        if branch != {}:
            changed[name] = branch
    return changed
