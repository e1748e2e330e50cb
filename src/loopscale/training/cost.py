"""The cost of a trial, counted before training on the meta device: tensors with shapes and without values."""

import json
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import nullcontext
from dataclasses import astuple, dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from typing_extensions import override

from loopscale.core.cheap_imports import without_compiler
from loopscale.core.plugins import PluginError, contract_error, fault_of_plugin, owner_in_plugin
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate
from loopscale.models.base import Net
from loopscale.models.layered import LayeredArchitecture
from loopscale.models.plain import PlainModel
from loopscale.training.device import dtype
from loopscale.training.live_memory import LiveMemory
from loopscale.training.loop import Learner
from loopscale.training.objective import objective
from loopscale.training.sound_nets import require_sound_net
from loopscale.training.trial import Training, Trial

COUNTED_POINTS = 4
"""Of a recurrent net on longer prompts, only prompts of so many points and of one and two less are counted."""
COUNTED_LAYERS = 3
"""Of a deeper net of equal layers, only nets of so many layers and one less are counted."""
IRRELEVANT = {
    name: Training.model_fields[name].default
    for name in (
        "lr",
        "steps",
        "flops",
        "seconds",
        "warmup",
        "schedule",
        "decay",
        "clip",
        "curriculum",
    )
}
"""Settings of `training` that do not change the cost of a step, at their defaults. Many of them are tuned."""

MEASURED_PROMPTS = 64
"""The largest number of prompts of a measured validation or evaluation."""
PRICED_STAGES = 9
"""Stages of a curriculum whose cost is counted. Counting a stage of an LSTM takes a second."""
HEADER_BYTES = 4096
"""Bytes of a checkpoint besides its tensors. Each report in the history adds about 120."""

CALL_BYTES = 11_000
"""The start of an operation takes as long as a write of this many bytes. Fitted to 170 shapes on one thread."""
FLOP_BYTES = 0.05
"""A FLOP takes as long as a write of this many bytes. Wide nets wait for their products: at width 128 products take two
thirds of a step on a processor with 100 GFLOP/s."""
OTHER_CALLS = 150
"""Operations of a step besides the net: prompts, an optimizer in one kernel, report."""


@dataclass(frozen=True)
class Work:
    """What a pass through the net asks of a processor."""

    flops: int = 0
    """FLOPs of all matrix products."""
    calls: int = 0
    """Operations that torch starts."""
    traffic: int = 0
    """Bytes that these operations write. A view writes nothing."""

    def size(self, flop_bytes: float = FLOP_BYTES) -> float:
        """A number that the time of the pass is roughly proportional to, in bytes."""
        return self.traffic + CALL_BYTES * (self.calls + OTHER_CALLS) + flop_bytes * self.flops

    def __add__(self, other: "Work") -> "Work":
        return Work(self.flops + other.flops, self.calls + other.calls, self.traffic + other.traffic)

    def __rmul__(self, times: int) -> "Work":
        return Work(times * self.flops, times * self.calls, times * self.traffic)


@dataclass(frozen=True)
class Cost:
    """The cost of training on prompts of full size. Validation is not counted. A curriculum costs less."""

    parameters: int
    """Weights that receive a gradient."""
    flops_forward: int
    """FLOPs of one forward pass: T loops, and the read-out of ΔT loops. A multiply-add is two FLOPs."""
    flops_step: int
    """FLOPs of one step: T loops forward, ΔT loops backward with `truncate`, and the optimizer's products."""
    flops_total: int
    """FLOPs of all steps."""
    forward: Work
    """The work of one forward pass."""
    step: Work
    """The work of one step."""
    memory_bytes: int
    """Tensors at the peak of a step: weights, gradients, the optimizer's moments, the batch, tensors saved for the
    backward pass. The process itself (Python, torch) adds about 300 MiB on a CPU. An upper bound for bf16, because
    autocast is not counted."""
    checkpoint_bytes: int
    """Size of the checkpoint file."""


@dataclass(frozen=True)
class Count:
    """The work of the forward pass and of the whole step, and bytes saved for the backward pass.

    With `recompute` the bytes are those of all tensors at the peak of the step, except weights and gradients.
    """

    forward: Work
    step: Work
    saved: int

    def __add__(self, other: "Count") -> "Count":
        return Count(self.forward + other.forward, self.step + other.step, self.saved + other.saved)

    def __sub__(self, other: "Count") -> "Count":
        return self + -1 * other

    def __rmul__(self, times: int) -> "Count":
        return Count(times * self.forward, times * self.step, times * self.saved)

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*astuple(self.forward), *astuple(self.step), self.saved)


def cost(trial: Trial) -> Cost:
    """The exact FLOPs of all matrix products (other operations are not counted) and an estimate of memory."""
    options = trial.training
    net = _on_meta(trial)
    batch = _prompts(trial)
    count, names = _of_step(trial)
    trained = {name: weight for name, weight in net.named_parameters() if name in names}
    weights, gradients = _bytes(net.parameters()), _bytes(trained.values())
    rules = options.optimizer.assignment(net)
    moments = sum(
        options.optimizer.moments(rules[name]) * _bytes([weight]) for name, weight in trained.items()
    )
    saved = round(count.saved * trial.model.kept_factor)
    return Cost(
        parameters=sum(weight.numel() for weight in trained.values()),
        flops_forward=count.forward.flops,
        flops_step=count.step.flops,
        flops_total=count.step.flops * options.steps,
        forward=count.forward,
        step=count.step,
        memory_bytes=weights + gradients + moments + _bytes([batch.tokens, batch.targets]) + saved,
        checkpoint_bytes=weights + moments + HEADER_BYTES + 120 * -(-options.steps // options.eval_every),
    )


@dataclass(frozen=True)
class StepCosts:
    """The cost of a training's steps, in FLOPs or seconds. Steps cost more along a curriculum, and else the same."""

    starts: tuple[int, ...]
    """Steps before each stage of the curriculum, from 0."""
    costs: tuple[float, ...]
    """The cost of one step in each stage."""

    def after(self, steps: Any) -> NDArray[np.float64]:
        """The cost of the first `steps` steps; `steps` has any shape."""
        ends = np.append(self.starts[1:], np.inf)
        inside = np.clip(np.asarray(steps, dtype=np.float64)[..., None], self.starts, ends) - self.starts
        return np.asarray(inside @ np.array(self.costs))

    def times(self, factor: float) -> "StepCosts":
        """The costs in another unit."""
        return StepCosts(self.starts, tuple(factor * cost for cost in self.costs))

    def affordable(self, budget: float) -> int:
        """The largest number of steps that cost at most `budget`."""
        at_starts = self.after(self.starts)
        stage = int(np.searchsorted(at_starts, budget, side="right")) - 1
        return self.starts[stage] + int((budget - at_starts[stage]) / self.costs[stage] * (1 + 1e-12))


def step_costs(trial: Trial, price: Callable[[Trial], float]) -> StepCosts:
    """The cost of a trial's steps, if `price` is the cost of one step on full prompts.

    Only the pairs of a stage count. Coordinates that are zero cost as much as others. Of a long curriculum only
    `PRICED_STAGES` have their price, and the prices of the others lie on lines between them.
    """
    curriculum = trial.training.curriculum
    if curriculum is None:
        return StepCosts((0,), (price(trial),))
    task = trial.task.model_dump()
    points = range(curriculum.points, task["points"], curriculum.points_by)
    stages = [*(trial.task.easier(task["dim"], number) for number in points), trial.task]
    priced = np.unique(np.linspace(0, len(stages) - 1, PRICED_STAGES).round().astype(int)).tolist()
    prices = [price(trial.model_copy(update={"task": stages[number]})) for number in priced]
    starts = tuple(curriculum.every * number for number in range(len(stages)))
    return StepCosts(starts, tuple(np.interp(range(len(stages)), priced, prices).tolist()))


def step_flops(trial: Trial) -> StepCosts:
    """The FLOPs of a trial's steps. Trials of equal shape are counted once."""
    return step_costs(trial, _step_flops)


def training_flops(trial: Trial) -> float:
    """FLOPs of all steps of a trial, with the smaller prompts of its curriculum."""
    return float(step_flops(trial).after(trial.training.steps))


def alike(trial: Trial) -> Trial:
    """The trial with steps of the same price, shared by all trials that differ in settings without an effect on it."""
    optimizer = trial.training.optimizer.priced()
    training = trial.training.model_copy(update=IRRELEVANT | {"optimizer": optimizer})
    return trial.model_copy(update={"seed": 0, "model": trial.model.priced(), "training": training})


def _step_flops(trial: Trial) -> float:
    return _counted_step(alike(trial).model_dump_json())


@cache
def _counted_step(trial: str) -> float:
    return float(_of_step(Trial.model_validate_json(trial))[0].step.flops)


def count(trial: Trial, net: Net, batch: Batch) -> Count:
    """The cost of one training step of `net`, counted operation by operation on the meta device."""
    if trial.model.plugin:
        _require_shape(trial, net, batch)
        require_sound_net(trial, sum(weight.numel() for weight in net.parameters()))
    saved, live = _SavedTensors(net), LiveMemory()
    recompute = trial.training.recompute
    with without_compiler(), _Tally() as tally, live if recompute else nullcontext():
        with saved_tensors_hooks(saved.see, lambda tensor: tensor):
            loss = objective(net, trial, batch)
        forward = tally.work
        loss.backward()
    gradients = _bytes(weight.grad for weight in net.parameters() if weight.grad is not None)
    return Count(forward, tally.work, live.peak - gradients if recompute else saved.bytes)


def _require_shape(trial: Trial, net: Net, batch: Batch) -> None:
    """Raises PluginError if the net cannot predict, or if its predictions have the wrong shape."""
    steps = trial.steps_per_prompt
    try:
        with without_compiler():
            answers = net.answers(batch, steps)
    except Exception as problem:
        if isinstance(problem, PluginError) or fault_of_plugin(problem):
            raise
        owner = owner_in_plugin(type(net), type(trial.model))
        method = "forward" if isinstance(net, owner) else "build"
        what = f"does not fit its caller ({type(problem).__name__}: {problem})"
        if method == "build":
            what = f"makes a net that cannot predict ({type(problem).__name__}: {problem})"
            method = "module" if isinstance(trial.model, PlainModel) else method
        raise contract_error(owner, method, what) from problem
    sizes = len(batch.targets), len(batch.queries), trial.task.prompt.dim_out
    shape, needed = getattr(answers, "shape", None), (steps, *sizes)
    if shape != needed:
        found = type(answers).__name__ if shape is None else f"the shape {tuple(shape)}"
        what = f"gives {found} at the queries, not {needed} for [steps, batch, queries, dim_out]"
        owner = owner_in_plugin(type(net), type(trial.model))
        raise contract_error(owner, "forward" if isinstance(net, owner) else "build", what)


def _of_step(trial: Trial) -> tuple[Count, set[str]]:
    """The result of `count` with the update of the weights, and the names of the weights that receive a gradient."""
    counted, trained = _by_loops(trial)
    return counted + Count(Work(), _update(trial, trained), 0), trained


def _update(trial: Trial, trained: set[str]) -> Work:
    """The work of the optimizer, besides one kernel for all weights, which is part of OTHER_CALLS."""
    optimizer, net = trial.training.optimizer, _on_meta(trial)
    rules = optimizer.assignment(net)
    weights = [(rules[name], weight) for name, weight in net.named_parameters() if name in trained]
    return Work(
        flops=sum(optimizer.update_flops(rule, weight.shape) for rule, weight in weights),
        calls=sum(optimizer.update_calls(rule) for rule, _ in weights),
    )


def _by_loops(trial: Trial) -> tuple[Count, set[str]]:
    """The result of `count` and the names of the weights that receive a gradient.

    Only steps of two or three loops are counted, because counting 30 loops takes seconds and a plan asks for hundreds
    of trials. All further loops cost the same as the last counted loop. A test compares the result with `count`.
    """
    options, trained = trial.training, set[str]()
    before, window = options.loops - options.window, options.window

    def small(before: int, window: int) -> Count:
        few = options.model_copy(update={"loops": before + window, "window": window} | IRRELEVANT)
        counted, names = _count_once(trial.model_copy(update={"training": few, "seed": 0}))
        trained.update(names)
        return counted

    if options.recompute:  # the peak of memory is not linear in the loops
        return small(before, window), trained
    if isinstance(trial.model, LayeredArchitecture) and (counted := _by_layers(trial, trial.model)):
        return counted
    if trial.model.recurrent and (by_points := _by_points(trial)):
        return by_points
    if trial.model.depth is not None:
        return small(0, 1), trained
    start = min(before, 1)
    total = base = small(start, 1)
    if window > 1:
        total += (window - 1) * (small(start, 2) - base)
    if before > 1:
        total += (before - 1) * (small(2, 1) - base)
    return total, trained


def _by_points(trial: Trial) -> tuple[Count, set[str]] | None:
    """As `_by_loops`, for a recurrent net on long prompts. All further points cost as the last counted point.

    None for short prompts, and for tasks whose tokens or costs are no straight line by their points.
    """
    settings = trial.task.model_dump()
    points, dim = settings.get("points", 0), settings.get("active") or settings.get("dim")
    if points <= COUNTED_POINTS or dim is None:
        return None
    few = [trial.task.easier(dim, COUNTED_POINTS - less) for less in (2, 1, 0)]
    one = trial.training.model_copy(update={"batch_size": 1})
    shapes = [
        np.array([*batch.tokens.shape, *batch.targets.shape])
        for task in (*few, trial.task)
        for batch in [_prompts(trial.model_copy(update={"task": task, "training": one}))]
    ]
    if any((shapes[2] + (points - COUNTED_POINTS) * (shapes[2] - shapes[1])) != shapes[3]):
        return None
    alike = {"training": trial.training.model_copy(update=IRRELEVANT), "seed": 0}
    counted = [_count_once(trial.model_copy(update={"task": task} | alike)) for task in few]
    first, second, third = (count for count, _ in counted)
    if third - second != second - first:
        return None
    return third + (points - COUNTED_POINTS) * (third - second), set(counted[-1][1])


def _by_layers(trial: Trial, model: LayeredArchitecture) -> tuple[Count, set[str]] | None:
    """As `_by_loops`, for a deep net of equal layers; None for other nets. All further layers cost as the third."""
    if model.layers <= COUNTED_LAYERS or len(model.kinds) > 1:
        return None
    options, counts = trial.training.model_copy(update=IRRELEVANT), list[Count]()
    for layers in (COUNTED_LAYERS - 1, COUNTED_LAYERS):
        few = model.model_copy(update={"layers": layers})
        shallow = trial.model_copy(update={"model": few, "training": options, "seed": 0})
        counted, names = _count_once(shallow)
        if names != {name for name, _ in _on_meta(shallow).named_parameters()}:
            return None  # which weights get no gradient may depend on the layer
        counts.append(counted)
    total = counts[-1] + (model.layers - COUNTED_LAYERS) * (counts[-1] - counts[0])
    return total, {name for name, _ in _on_meta(trial).named_parameters()}


def _count_once(trial: Trial) -> tuple[Count, frozenset[str]]:
    """As `_by_loops`, for few loops, and counted once for all trials that share this result. One count takes 0.1 s.

    The cost is linear in the batch size from 2 on: two sizes are counted, other sizes lie on the line through them. A
    batch of one prompt is counted by itself, because torch copies less for it. A test compares with `count`.
    """
    size = trial.training.batch_size
    other = {
        "batch_size": 1,
        "optimizer": Training.model_fields["optimizer"].default,
    }  # updates are counted apart
    shape = trial.model_copy(
        update={"model": trial.model.priced(), "training": trial.training.model_copy(update=other)}
    )
    known, names = _known(without_numbers(shape))
    if size not in known:
        counted = [(other, count) for other, count in known.items() if other > 1][:2]
        if size > 1 and len(counted) == 2 and (between := _on_line(size, *counted)):
            return between, frozenset(names)
        net = _on_meta(trial)
        known[size] = count(trial, net, _prompts(trial))
        names.update(name for name, weight in net.named_parameters() if weight.grad is not None)
    return known[size], frozenset(names)


def without_numbers(shape: Trial) -> str:
    """The settings without the real numbers of the task, which change values and no sizes."""
    settings = shape.model_dump(mode="json")
    sizes = {name: value for name, value in settings["task"].items() if not isinstance(value, float)}
    return json.dumps(settings | {"task": sizes})


@cache
def _known(shape: str) -> tuple[dict[int, Count], set[str]]:
    """The counts of a shape by batch size, and the names of the weights that receive a gradient. Callers fill both."""
    return {}, set()


def _on_line(size: int, first: tuple[int, Count], second: tuple[int, Count]) -> Count | None:
    """The count at `size` on the straight line through two counts; `None` if the result is no whole number."""
    (base_size, base), (other_size, other) = first, second
    run = other_size - base_size
    slopes = [part // run for part in (other - base).numbers]
    if any(part % run for part in (other - base).numbers):
        return None
    slope = Count(Work(*slopes[:3]), Work(*slopes[3:6]), slopes[6])
    return base + (size - base_size) * slope


def _prompts(trial: Trial) -> Batch:
    precision = dtype(trial.training.precision)
    return trial.task.typical_batch(trial.training.batch_size).to("meta", precision)


@dataclass(frozen=True)
class Seconds:
    """The time of a trial's parts on this machine."""

    step: float
    """One step of training."""
    validation: float
    """The forward pass of one validation, for one prompt."""
    evaluation: float
    """One loop of the evaluation, for one prompt."""


def measure(trial: Trial, evaluation: Evaluation, steps: int = 3, device: str = "cpu") -> Seconds:
    """Train a few steps, validate and evaluate on this machine, and throw the weights away.

    Uses torch's current number of threads.
    """
    prompts, last = min(MEASURED_PROMPTS, trial.training.batch_size), trial.steps_per_prompt
    loops = min(evaluation.loops, last)
    short = evaluation.model_copy(update={"prompts": prompts, "loops": loops})
    with without_compiler():
        learner = Learner(trial, device)
        step = step_seconds(learner, steps)
        batch = trial.task.sample(prompts, stream(0)).to(device, learner.dtype)
        with torch.no_grad():
            validation = _timed_again(device, lambda: learner.net.answers(batch, last, last).sum().item())
        task = evaluation.posed(trial.task)
        evaluated = _timed_again(device, lambda: evaluate(learner.net, task, short, device))
    return Seconds(step, validation / prompts, evaluated / prompts / loops)


def step_seconds(learner: Learner, steps: int = 3) -> float:
    """The median of some training steps, after one step of warm-up."""

    def take(step: int) -> None:
        learner.learn(step).item()  # .item() waits for the device

    take(1)
    return sorted(_timed(learner.device, partial(take, step)) for step in range(2, steps + 2))[steps // 2]


def _timed_again(device: str, action: Callable[[], Any]) -> float:
    """Seconds of the second call. The first call of a small net took up to three times as long."""
    action()
    return _timed(device, action)


def _timed(device: str, action: Callable[[], Any]) -> float:
    """Seconds of the action: processor time of a single thread, which other work on the machine disturbs least.

    Elapsed time with more threads, or on a GPU.
    """
    single = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if single else time.perf_counter
    start = clock()
    action()
    return clock() - start


def _on_meta(trial: Trial) -> Net:
    with torch.device("meta"):
        net = trial.model.build(trial.task.prompt, stream(0))
    if not isinstance(net, Net):  # pyright: ignore[reportUnnecessaryIsInstance]: of a plugin
        what = f"returns {type(net).__name__}, which is no loopscale.models.base.Net"
        raise contract_error(type(trial.model), "build", what)
    net.to(dtype(trial.training.precision))
    if trial.training.recompute:
        net.recompute()
    return net


class _Tally(TorchDispatchMode):
    """Adds up the work of all operations on the meta device. Constants that a task computes once are not counted."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.calls = self.traffic = 0

    @property
    def work(self) -> Work:
        return Work(self.flops, self.calls, self.traffic)

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = _on_shapes(func, args, kwargs)
        outputs = result if isinstance(result, tuple | list) else (result,)
        tensors = [output for output in outputs if isinstance(output, Tensor) and output.is_meta]
        if tensors:
            self.calls += 1
            if not func.is_view and func is not torch.ops.aten._unsafe_view.default:
                self.traffic += _bytes(tensors)
            if formula := flop_registry.get(func._overloadpacket):
                self.flops += formula(*args, **kwargs, out_val=result)
        return result


def _on_shapes(operation: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operation on the meta device, whose shapes torch computes once in this process.

    Torch computes the shapes of a result in Python, in up to a millisecond. Layers and loops repeat few operations on
    few shapes.
    """
    if not isinstance(operation, OpOverload) or operation.is_view or operation._schema.is_mutable:
        return operation(*args, **kwargs)
    inputs = list[Tensor]()
    key = (operation, _description((args, kwargs), inputs))
    if layout := _LAYOUTS.get(key):
        return layout.empty()
    result = operation(*args, **kwargs)
    if key not in _LAYOUTS:
        _LAYOUTS[key] = _Layout.of(inputs, result)
    return result


def _description(value: Any, inputs: list[Tensor]) -> Hashable:
    """The settings of an operation and the shapes of its tensors, which are also appended to `inputs`."""
    if isinstance(value, Tensor):
        inputs.append(value)
        return value.shape, value.stride(), value.dtype, value.device
    if isinstance(value, list | tuple):
        return tuple([_description(each, inputs) for each in value])
    if isinstance(value, dict):
        return tuple([(name, _description(each, inputs)) for name, each in value.items()])
    return type(value), value  # 1, 1.0 and True are equal


@dataclass(frozen=True)
class _Layout:
    """Sizes, strides and types of the new tensors that an operation on the meta device returns."""

    tensors: tuple[tuple[torch.Size, tuple[int, ...], torch.dtype], ...]
    container: type | None
    """Tuple or list, unless the operation returns one tensor."""

    @classmethod
    def of(cls, inputs: list[Tensor], result: Any) -> "_Layout | None":
        """None if a tensor has values, or if a result is no tensor or shares its memory."""
        container = type(result) if type(result) in (tuple, list) else None
        outputs = result if container else (result,)
        if not inputs or not all(type(each) is Tensor for each in outputs):
            return None
        if not all(each.is_meta and not each.is_complex() for each in (*inputs, *outputs)):
            return None
        shared = {each.untyped_storage()._cdata for each in inputs}
        own = {each.untyped_storage()._cdata for each in outputs} - shared
        layout = cls(tuple((each.shape, each.stride(), each.dtype) for each in outputs), container)
        sizes = [each.untyped_storage().nbytes() for each in outputs]
        if len(own) < len(outputs) or sizes != [each.untyped_storage().nbytes() for each in layout._made()]:
            return None
        return layout

    def empty(self) -> Any:
        """The result again."""
        return self.container(self._made()) if self.container else self._made()[0]

    def _made(self) -> list[Tensor]:
        return [
            torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            for shape, stride, dtype in self.tensors
        ]


_LAYOUTS = dict[Hashable, _Layout | None]()


class _SavedTensors:
    """Counts the bytes that autograd saves for the backward pass: each storage once, without the net's weights."""

    def __init__(self, net: nn.Module) -> None:
        self.storages = {weight.untyped_storage()._cdata for weight in net.parameters()}
        self.bytes = 0

    def see(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in self.storages:
            self.storages.add(storage._cdata)
            self.bytes += storage.nbytes()
        return tensor


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
