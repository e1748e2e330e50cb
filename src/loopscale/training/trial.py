"""A trial: all settings that one training run depends on, and no others."""

import hashlib
import json
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from loopscale.core.config import Config, is_tree
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net
from loopscale.optimizers.adam import Adam
from loopscale.optimizers.base import Optimizer, with_default_kind
from loopscale.tasks.base import Task
from loopscale.theory.constructions.base import Construction
from loopscale.training.compiler import Compile
from loopscale.training.similarity import Compared

UNHASHED = ("eval_every", "checkpoint_every", "recompute", "compile", "graph", "similar_to")
"""Settings of `training` that do not change the outcome. Trials that differ only in these are the same trial."""

LOOPED_ONLY = ("loops", "window", "truncate")
"""Settings of `training` that do not apply to a net of fixed depth."""

BUDGETS = ("flops", "seconds")
"""Settings of `training` that replace `steps`. A study derives the steps from the budget. Only the steps count for the
key, so the trial is the same as a trial with as many steps."""

LATER_DEFAULTS: dict[str, dict[str, Any]] = {
    "task": {"format": "decoder", "query": "row", "spectrum_levels": 2, "other_layers": []},
    "model": {
        "causal": True,
        "registers": 0,
        "tied": False,
        "init": "normal",
        "init_std": 0.02,
        "init_gain": 0.55,
    },
    "training": {
        "start": None,
        "decay": None,
        "data": "host",
        "pool": None,
        "optimizer": Adam().model_dump(mode="json"),
    }
    | dict.fromkeys(BUDGETS),
}
"""Settings added after the first release, with the value that reproduces older trials. At this value a setting does not
count for the key, so older trials keep their keys."""


UNNAMED = (
    "task.format",
    "task.query",
    "task.spectrum_levels",
    "model.causal",
    "model.registers",
    "model.tied",
    "training.start",
    "training.decay",
    "training.data",
    *(f"training.{name}" for name in BUDGETS),
)
"""Settings of `LATER_DEFAULTS` that a cell does not name at their value, because cells in records do not. Cells name
all later settings that vary."""

REMOVED_SETTINGS = {"decay_every": 1}
"""Settings of training of older versions, with the value that means what is left. Records and weights hold them."""

OPTIMIZERS = tuple(Optimizer.choices())
"""The kinds of optimizers of the package, for the schema of an editor."""


class Curriculum(Config):
    """A schedule from easy to full prompts: few coordinates and few pairs first [@garg2022, section A.2]."""

    dim: PositiveInt
    """Non-zero coordinates at the start. They grow by `dim_by` up to the task's own `dim`."""
    points: PositiveInt
    """Pairs in the prompt at the start. They grow by `points_by` up to the task's own `points`."""
    every: PositiveInt
    """Steps between two increments: 2,000 in @garg2022, 5,000 in @yang2023."""
    dim_by: PositiveInt = 1
    """Coordinates added by each increment."""
    points_by: PositiveInt = 2
    """Pairs added by each increment."""


class Training(Config):
    """How a net is trained: an optimizer on fresh prompts, with the loss of eq. 6 of @gao2024."""

    steps: PositiveInt = 1000
    """Steps of the optimizer. Every step draws a new batch."""
    flops: PositiveFloat | None = None
    """FLOPs of the whole training, in place of `steps`: every cell gets the same budget and as many steps as it pays
    for. A study derives the steps. Validation and evaluation are not counted."""
    seconds: PositiveFloat | None = None
    """Seconds of the whole training, in place of `steps`. The first run of a study measures the speed and records it,
    so the derived steps do not depend on later machines."""
    batch_size: PositiveInt = 64
    """Prompts per step."""
    pool: PositiveInt | None = None
    """Distinct prompts of the training, a multiple of `batch_size`. Its batches follow each other, and begin again
    after the last one, always in the same order. The first steps equal those of a training without pool. `None`: every
    prompt is new."""
    lr: PositiveFloat = 1e-3
    """Learning rate after the warm-up."""
    optimizer: Annotated[
        Optimizer,
        BeforeValidator(
            with_default_kind,
            json_schema_input_type=Optimizer | Literal[OPTIMIZERS],  # pyright: ignore[reportInvalidTypeForm]
        ),
    ] = Adam()
    """The rule that changes the weights, by its `kind` alone or with its settings. `lr` is the rate of every kind."""
    loops: PositiveInt = 10
    """T, the number of loops in training."""
    window: PositiveInt = 10
    """ΔT, the number of supervised loops. The loss averages over the last ΔT loops, T-ΔT+1 .. T."""
    truncate: bool = True
    """Whether the loops before the window run without gradient, as in @yang2023."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate after the warm-up: constant, or falling to zero along a half cosine."""
    decay: float | None = Field(default=None, gt=0, le=1)
    """Factor on the learning rate after every step past the warm-up; `None` for 1. @he2025em use 0.995 for their 300
    iterations."""
    warmup: NonNegativeInt = 0
    """Steps over which the learning rate rises linearly from zero."""
    clip: PositiveFloat | None = None
    """Largest norm of the gradient; `None` for no clipping."""
    curriculum: Curriculum | None = None
    """Easier prompts first, for tasks with `dim` and `points`; `None` for full prompts from the first step."""
    start: Construction | None = None
    """A construction, by its `kind`, whose weights training starts from; `None` for random weights. The model must be
    the net of the construction. The error message names the settings to write."""
    precision: Literal["float32", "tf32", "bf16", "float64"] = "float32"
    """Precision of the net. bf16 means autocast: weights, loss and read-out stay in float32. tf32 means float32 with
    products in TF32 on GPUs from Ampere on, and float32 elsewhere."""
    data: Literal["host", "device"] = "host"
    """Where prompts are drawn. host: on the CPU, the same prompts for every device. device: on the device of the
    training, other prompts, which differ between kinds of devices."""
    graph: Literal["off", "auto"] = "off"
    """Whether a step on a GPU is one CUDA graph. auto: on every GPU. A step on a CPU is the same with both."""
    recompute: bool = False
    """Whether the backward pass computes the values inside the blocks again, instead of keeping them: less memory,
    about a quarter more work, the same numbers."""
    compile: Compile = "auto"
    """Whether torch's compiler makes the code of the net. The results are equal up to rounding. `auto` compiles on a
    CPU where compiled code is faster. The trial must take more than ten times as long as the compilation. A curriculum
    changes the shapes of prompts, so it is never compiled."""
    eval_every: PositiveInt = 100
    """Steps between two reports of the validation error."""
    checkpoint_every: PositiveInt | None = None
    """Steps between two checkpoints, rounded up to the next report; `None` for a checkpoint at every report."""
    similar_to: tuple[Compared, ...] = ()
    """Solvers whose iterates the net is compared with in training, at the reports 1, 2, 4, 8, .. and the last. For
    every solver the records have the similarity of errors of @fu2023 and the best-matching iterate. A trial that is
    already trained is not compared."""

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, data: Any) -> Any:
        if not is_tree(data):
            return data
        return {name: value for name, value in data.items() if (name, value) not in REMOVED_SETTINGS.items()}

    @model_validator(mode="after")
    def _window_within_loops(self) -> "Training":
        if self.window > self.loops:
            raise ValueError(
                f"window {self.window} is more than the {self.loops} loops; "
                f"write a window of {self.loops} or less, or {self.window} loops or more"
            )
        if self.budget and "steps" not in self.model_fields_set:
            raise ValueError(f"{self.budget} is a budget, from which a study derives the steps; write steps")
        if self.pool is not None and self.pool % self.batch_size:
            nearest = max(round(self.pool / self.batch_size), 1) * self.batch_size
            raise ValueError(
                f"pool {self.pool} is no multiple of batch_size {self.batch_size}; write {nearest}, or another "
                f"batch_size"
            )
        if self.pool is not None and self.curriculum:
            raise ValueError(
                "pool needs prompts of one size, but a curriculum changes the size; leave out one of the two"
            )
        if self.warmup > self.steps:
            raise ValueError(
                f"warmup {self.warmup} does not fit into {self.steps} steps; write {self.steps} or less"
            )
        return self

    def batch_of(self, step: int) -> int:
        """The number of the batch that `step` sees. Both count from 1."""
        return step if self.pool is None else (step - 1) % (self.pool // self.batch_size) + 1

    @property
    def budget(self) -> Literal["flops", "seconds"] | None:
        """The setting from which the steps are derived; None if the steps are given."""
        return "flops" if self.flops is not None else "seconds" if self.seconds is not None else None


class Trial(Config):
    """Task, model, training and seed: an immutable value. Its `key` is its identity."""

    task: Task
    """The task to learn: its kind and settings."""
    model: Model
    """The model that learns: its kind and settings."""
    training: Training = Training()
    """How the model is trained: steps, learning rate, loops."""
    seed: NonNegativeInt = 0
    """Seed of the weights and of the training prompts: 0 in tuning, 1 and above for replicates."""

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
            f"truncate needs window = loops, not window {training.window} of {training.loops} loops, because this "
            f"model adds the prompt or its positions before the first loop only, and truncate cuts their gradient; set "
            f"window to {training.loops}, truncate to false, or injection to add and repeat_positions to true"
        )

    @model_validator(mode="after")
    def _shapes_stay_if_compiled(self) -> "Trial":
        varies = "a curriculum changes it" if self.training.curriculum else None
        varies = "sentences differ in length" if self.task.prompt.vocabulary else varies
        if varies and self.training.compile == "on":
            raise ValueError(f"training.compile on needs prompts of one shape, but {varies}; write off")
        if self.task.prompt.vocabulary and self.training.graph == "auto":
            raise ValueError(
                "training.graph auto needs prompts of one shape, but sentences differ in length; write off"
            )
        return self

    @model_validator(mode="after")
    def _optimizer_fits_into_a_graph(self) -> "Trial":
        optimizer = self.training.optimizer
        if self.training.graph == "auto" and not optimizer.capturable:
            raise ValueError(
                f"optimizer {optimizer.kind} reads its rate on the host, so a step is no CUDA graph; write graph: off"
            )
        return self

    @model_validator(mode="after")
    def _net_can_compute_again(self) -> "Trial":
        if self.training.recompute and not self.model.recomputable:
            raise ValueError(f"model {self.model.kind} cannot recompute; write recompute: false")
        return self

    @model_validator(mode="after")
    def _no_query_sees_its_answer(self) -> "Trial":
        if self.task.whole or not self.model.looks_ahead:
            return self
        remedy = "format: encoder, " if "format" in type(self.task).model_fields else ""
        raise ValueError(
            f"model {self.model.kind} looks ahead, and would see the answers in the prompts of "
            f"{self.task.kind}; write causal: true, {remedy}or a model that does not look ahead"
        )

    @model_validator(mode="after")
    def _starts_from_weights_of_its_own_shape(self) -> "Trial":
        start = self.training.start
        if start is None:
            return self
        if not start.every_query or start.solves is None:
            valid = [
                kind
                for kind, choice in Construction.choices().items()
                if choice.every_query and choice.solves
            ]
            raise ValueError(
                f"training.start {start.kind} does not answer every query of a prompt; write {' or '.join(valid)}"
            )
        if self.task.whole:
            raise ValueError(
                f"training.start {start.kind} answers every query, but this task asks only at the end of a prompt; "
                f"write format: decoder"
            )
        required = start.model(self.task.prompt)
        if required != self.model:
            defaults = type(required)().model_dump()
            settings = ", ".join(
                f"{name}: {json.dumps(value)}"
                for name, value in required.model_dump().items()
                if value != defaults[name]
            )
            raise ValueError(
                f"the net of training.start {start.kind} differs from this model; write model: "
                f"{{kind: {required.kind}, {settings}}}"
            )
        return self

    def net(self) -> Net:
        """The net with its weights before training, on the CPU."""
        if self.training.start is None:
            return self.model.build(self.task.prompt, stream(self.seed, "weights"))
        return self.training.start.net(self.task.prompt).requires_grad_(True)

    @model_validator(mode="after")
    def _solvers_to_compare_with_solve_the_task(self) -> "Trial":
        kinds = [each.solver.kind for each in self.training.similar_to]
        if len(set(kinds)) < len(kinds):
            raise ValueError("training.similar_to names a kind of solver twice; write every kind once")
        for each in self.training.similar_to:
            each.require(self.task)
        return self

    @property
    def similarity_measures(self) -> list[str]:
        """The names of the metrics that `training.similar_to` adds."""
        compared = self.training.similar_to
        of_solvers = (each.metrics_of(self.model.depth, self.steps_per_prompt) for each in compared)
        return [name for names in of_solvers for name in names.values()]

    @model_validator(mode="after")
    def _prompts_can_be_drawn(self) -> "Trial":
        if self.training.data == "device" and (self.task.tables or self.task.prompt.vocabulary):
            there = f"the rows of {', '.join(self.task.tables)}" if self.task.tables else "the sentences"
            raise ValueError(
                f"training.data device draws random prompts, but {there} are on the host; write data: host"
            )
        return self

    @model_validator(mode="after")
    def _curriculum_fits_the_task(self) -> "Trial":
        self.stage(1)
        return self

    def stage(self, step: int) -> Task:
        """The task at `step`, counted from 1. A curriculum makes the task of early steps easier."""
        curriculum = self.training.curriculum
        if curriculum is None:
            return self.task
        sizes, increments = self.task.model_dump(), (step - 1) // curriculum.every
        if not {"dim", "points"} <= sizes.keys():
            raise ValueError(
                f"task {self.task.kind} has no dim and points, which a curriculum changes; leave curriculum out"
            )
        for name in ("dim", "points"):
            start = getattr(curriculum, name)
            if start > sizes[name]:
                raise ValueError(
                    f"the curriculum starts with {name} {start}, but the task has {name} {sizes[name]}; "
                    f"start it with {sizes[name]} or less"
                )
        return self.task.easier(
            min(curriculum.dim + increments * curriculum.dim_by, sizes["dim"]),
            min(curriculum.points + increments * curriculum.points_by, sizes["points"]),
        )

    @property
    def curriculum_end(self) -> int:
        """The number of steps before the first step on the whole task; 0 without a curriculum."""
        curriculum, task = self.training.curriculum, self.task.model_dump()
        if curriculum is None:
            return 0
        dims = -(-max(0, task["dim"] - curriculum.dim) // curriculum.dim_by)
        points = -(-max(0, task["points"] - curriculum.points) // curriculum.points_by)
        return max(dims, points) * curriculum.every

    @property
    def applicable(self) -> dict[str, Any]:
        """All settings that the outcome depends on, with defaults. Settings that do not apply are left out."""
        tree = self.model_dump(mode="json")
        for name in UNHASHED + (LOOPED_ONLY if self.model.depth is not None else ()):
            del tree["training"][name]
        return tree

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as records keep them: `applicable`, without the settings of `LATER_DEFAULTS` at their value."""
        return as_before(self.applicable)

    @property
    def key(self) -> str:
        """The identity of the trial: a hash of its settings, 16 hexadecimal digits."""
        return identity(self, without=tuple(f"training.{name}" for name in BUDGETS))

    @property
    def steps_per_prompt(self) -> int:
        """Loops or layers of the trained net: T of the objective."""
        return self.model.depth or self.training.loops


def as_before(tree: dict[str, Any]) -> dict[str, Any]:
    """The settings of a trial or a baseline, without the settings that equal their value in `LATER_DEFAULTS`."""
    for part in LATER_DEFAULTS.keys() & tree.keys():
        for name, old in LATER_DEFAULTS[part].items():
            if tree[part].get(name) == old:
                del tree[part][name]
    return tree


def identity(trial: Trial, without: tuple[str, ...] = ()) -> str:
    """The hash of a trial's settings, without the dotted paths in `without`.

    Only settings that differ from their defaults count. So a new setting with a default leaves every recorded key as
    before. A released default must therefore never change (a golden test keeps keys).
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
    """`settings` of a config without the settings at their defaults; `kind` and the hash of a plugin always stay."""
    changed = {name: value for name, value in settings.items() if name == "kind"}
    if "plugin" in settings:
        changed["plugin"] = settings["plugin"].rpartition(" ")[
            2
        ]  # another name of the file is no other trial
    defaults = _defaults(type(config))
    for name in type(config).model_fields:
        value = getattr(config, name)
        if name not in settings or name in config.places or (name in defaults and value == defaults[name]):
            continue
        branch = _changed(value, settings[name]) if isinstance(value, Config) else settings[name]
        if branch != {}:
            changed[name] = branch
    return changed


@cache
def _defaults(config: type[Config]) -> dict[str, Any]:
    """The defaults of the settings that have one. Callers do not change them."""
    fields = config.model_fields.items()
    return {
        name: field.get_default(call_default_factory=True)
        for name, field in fields
        if not field.is_required()
    }
