from types import SimpleNamespace

import pytest
from torch.utils.flop_counter import FlopCounterMode

from loopscale.contracts.costs import *  # noqa: F403
from loopscale.contracts.costs import allocated
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation
from loopscale.models.base import Model
from loopscale.tasks.representation_regression import _mean_square
from loopscale.training import checkpoint, cost
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.loop import Learner, train
from loopscale.training.trial import Trial


def block(width: int, length: int, batch: int, at: int | None = None) -> int:
    """FLOPs of one block, forward, with outputs at `at` positions: k and v of all tokens; q, out, an MLP with 4
    widths, scores and values of the outputs."""
    at = length if at is None else at
    keys_values = 2 * width * 2 * width * length
    outputs = 2 * width * (width + width + 8 * width) * at + 2 * 2 * length * at * width
    return batch * (keys_values + outputs)


def ends(width: int, length: int, queries: int, batch: int, dim_in: int = 3) -> tuple[int, int]:
    """FLOPs of read-in and read-out."""
    return 2 * batch * length * dim_in * width, 2 * batch * queries * width


QUERIES, LENGTH = 5, 9
"""Five points are ten tokens. The last token is the last answer, which no query sees."""


@pytest.mark.parametrize("truncate", [True, False])
def test_flops_of_a_looped_net_equal_the_count_by_hand(make, truncate: bool):
    loops, window, width, batch = 7, 3, 8, 8
    trial = make("looped", loops=loops, window=window, truncate=truncate)
    whole, last = block(width, LENGTH, batch), block(width, LENGTH, batch, QUERIES)
    read_in, read_out = ends(width, LENGTH, QUERIES, batch)
    forward = read_in + (loops - 1) * whole + last + window * read_out
    # Tokens need no gradient, so the read-in counts only once.
    trained = window if truncate else loops
    backward = 2 * ((trained - 1) * whole + last) + window * 2 * read_out + read_in
    counted = cost.cost(trial)
    assert counted.flops_forward == forward
    assert counted.flops_step == forward + backward
    assert counted.flops_total == 12 * counted.flops_step


def test_flops_of_gpt2_equal_the_count_by_hand(make):
    blocks = 2 * block(8, LENGTH, 8) + block(8, LENGTH, 8, QUERIES)
    read_in, read_out = ends(8, LENGTH, QUERIES, 8)
    counted = cost.cost(make("gpt2", layers=3))
    assert counted.flops_forward == read_in + blocks + read_out
    assert counted.flops_step == 2 * read_in + 3 * blocks + 3 * read_out


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", Model.choices())
@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("loops", "window"), [(6, 3), (4, 4), (1, 1)])
def test_costs_extrapolated_from_few_loops_equal_the_full_count(
    make, kind, truncate, loops: int, window: int
):
    trial = make(kind, loops=loops, window=window, truncate=truncate)
    batch = trial.task.sample(8, stream(0)).to("meta")
    whole = cost.count(trial, cost._on_meta(trial), batch)
    counted = cost.cost(trial)
    assert (counted.forward, counted.step) == (whole.forward, whole.step)
    assert (counted.flops_forward, counted.flops_step) == (whole.forward.flops, whole.step.flops)
    other = counted.memory_bytes - whole.saved
    assert other > 0
    assert (
        other
        == cost.cost(make(kind, loops=1, window=1)).memory_bytes
        - cost.count(make(kind, loops=1, window=1), cost._on_meta(trial), batch).saved
    )


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("gpt2", {"layers": 9}), ("encoder", {"layers": 6}), ("encoder", {"layers": 6, "attention": "relu"})],
)
def test_costs_extrapolated_from_few_layers_equal_the_full_count(make, kind: str, settings: dict):
    cost._known.cache_clear()
    trial = make(kind, **settings)
    net, batch = cost._on_meta(trial), trial.task.sample(8, stream(0)).to("meta")
    counted, names = cost._by_loops(trial)
    assert cost._known.cache_info().currsize == 2, "two shallow nets are counted, and not the deep net"
    assert counted == cost.count(trial, net, batch)
    assert names == {name for name, weight in net.named_parameters() if weight.grad is not None}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["linear_regression", "mixture_regression", "representation_regression"])
def test_costs_of_a_recurrent_net_extrapolated_from_few_points_equal_the_full_count(kind: str):
    task = {"kind": kind, "dim": 3, "points": 11} | ({"active": 2} if kind == "linear_regression" else {})
    training = {"steps": 10, "batch_size": 8, "eval_every": 5}
    trial = Trial.model_validate(
        {"task": task, "model": {"kind": "lstm", "layers": 3, "width": 8}, "training": training}
    )
    net, batch = cost._on_meta(trial), trial.task.sample(8, stream(0)).to("meta")
    assert cost._by_points(trial) == (
        cost.count(trial, net, batch),
        {name for name, weight in net.named_parameters() if weight.grad is not None},
    )
    assert cost._by_loops(trial) == cost._by_points(trial)


@pytest.mark.parametrize(("name", "values"), [("noise", (0.5, 0.7)), ("condition", (4.0, 9.0))])
def test_real_numbers_of_a_task_do_not_change_the_cost(make, name: str, values: tuple[float, float]):
    """Such trials share one count."""
    plain = {"kind": "linear_regression", "dim": 3, "points": 5}
    trials = [make("gpt2", layers=2, task=plain | {name: value}) for value in values]
    cost._known.cache_clear()
    assert cost._by_loops(trials[0]) == cost._by_loops(trials[1])
    assert cost._known.cache_info().currsize == 1
    for trial in trials:
        batch = trial.task.sample(8, stream(0)).to("meta")
        assert cost._by_loops(trial)[0] == cost.count(trial, cost._on_meta(trial), batch)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", Model.choices())
def test_costs_interpolated_from_two_batch_sizes_equal_the_full_count(make, kind: str):
    cost._known.cache_clear()
    for size in (3, 8, 5, 1, 64):
        trial = make(kind, loops=1, window=1, batch_size=size)
        batch = trial.task.sample(size, stream(0)).to("meta")
        whole = cost.count(trial, cost._on_meta(trial), batch)
        assert cost._by_loops(trial)[0] == whole


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("kind", Model.choices())
def test_results_of_known_shapes_count_as_the_results_that_torch_computes(make, kind: str, monkeypatch):
    trial = make(kind)
    batch = trial.task.sample(8, stream(0)).to("meta")
    known = [cost.count(trial, cost._on_meta(trial), batch) for _ in range(2)]
    monkeypatch.setattr(cost, "_on_shapes", lambda operation, args, kwargs: operation(*args, **kwargs))
    assert known == [cost.count(trial, cost._on_meta(trial), batch)] * 2


@pytest.mark.parametrize("kind", Model.choices())
def test_parameters_counts_the_weights_with_a_gradient(make, kind: str):
    learner = Learner(make(kind))
    learner.learn(1)
    trained = sum(weight.numel() for weight in learner.net.parameters() if weight.grad is not None)
    assert cost.cost(make(kind)).parameters == trained


def test_the_predicted_size_of_a_checkpoint_is_within_5_percent(make, tmp_path):
    trial = make(width=64)
    history = []
    for progress in train(trial):
        history.append((progress.step, progress.metrics))
    checkpoint.save(
        open_checkpoint_store(tmp_path), "a", checkpoint.Checkpoint(progress.state(), tuple(history), 1.0)
    )
    assert (tmp_path / "a.safetensors").stat().st_size == pytest.approx(
        cost.cost(trial).checkpoint_bytes, rel=0.05
    )


def test_constants_that_a_task_computes_once_are_not_counted(make):
    trial = make("algoformer", task={"kind": "representation_regression"}, loops=2, window=1)
    _mean_square.cache_clear()
    batch = trial.task.sample(8, stream(0)).to("meta")
    counts = [cost.count(trial, cost._on_meta(trial), batch) for _ in range(2)]
    assert counts[0] == counts[1]


def test_measured_times_are_positive(make):
    measured = cost.measure(make(width=8), Evaluation(), steps=5)
    assert min(measured.step, measured.validation, measured.evaluation) > 0


def test_the_times_of_a_wider_net_are_longer_and_a_validation_takes_less_than_a_step(
    make, monkeypatch: pytest.MonkeyPatch
):
    """The clock counts FLOPs, because a real clock depends on the neighbours of the test."""

    def measured(width: int) -> cost.Seconds:
        with FlopCounterMode(display=False) as counter:
            flops = counter.get_total_flops
            clock = SimpleNamespace(process_time=flops, perf_counter=flops)
            monkeypatch.setattr(cost, "time", clock)
            return cost.measure(make(width=width), Evaluation())

    small, large = measured(8), measured(32)
    assert 4 < large.step / small.step < 16
    assert 4 < large.validation / small.validation < 16
    assert 4 < large.evaluation / small.evaluation < 16
    for each in (small, large):
        assert each.evaluation < each.validation < each.step


@pytest.mark.slow
def test_recomputation_saves_memory_as_predicted(make):
    large = {"task": {"dim": 10, "points": 30}, "loops": 8, "window": 5, "batch_size": 64, "width": 64}
    kept, recomputed = make(**large), make(**large, recompute=True)
    measured = allocated(recomputed)
    assert measured < 0.6 * allocated(kept)
    assert measured / 1.5 < cost.cost(recomputed).memory_bytes < 1.5 * measured
    assert cost.cost(kept).flops_step < cost.cost(recomputed).flops_step < 1.4 * cost.cost(kept).flops_step


CURRICULUM = {"dim": 1, "points": 2, "every": 3, "points_by": 2}


def with_curriculum(make, kind: str) -> Trial:
    task = {"kind": "linear_regression", "dim": 2, "points": 7}
    return make(kind, task=task, loops=3, window=2, steps=20, curriculum=CURRICULUM)


@pytest.mark.parametrize("kind", ["looped", "gpt2"])
def test_flops_of_a_curriculum_are_the_sum_of_the_flops_of_all_steps(make, kind: str):
    trial = with_curriculum(make, kind)
    plain = trial.training.model_copy(update={"curriculum": None})
    single = [
        cost.cost(trial.model_copy(update={"task": trial.stage(step), "training": plain})).flops_step
        for step in range(1, 21)
    ]
    assert len(set(single)) == 4
    counted = cost.step_flops(trial)
    assert counted.after(range(21)) == pytest.approx([sum(single[:steps]) for steps in range(21)])
    assert cost.training_flops(trial) == pytest.approx(sum(single))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["looped", "gpt2"])
def test_flops_of_a_long_curriculum_are_near_the_sum_over_all_stages(make, kind: str, monkeypatch):
    curriculum = {"dim": 2, "points": 2, "points_by": 1, "every": 10}
    trial = make(kind, task={"points": 26}, steps=500, curriculum=curriculum)
    near = cost.training_flops(trial)
    monkeypatch.setattr(cost, "PRICED_STAGES", 1000)
    assert near == pytest.approx(cost.training_flops(trial), rel=0.01)


@pytest.mark.parametrize("kind", ["looped", "gpt2"])
def test_affordable_steps_use_the_budget_up_to_less_than_a_step(make, kind: str):
    for trial in (with_curriculum(make, kind), make(kind)):
        counted = cost.step_flops(trial)
        for steps in (0, 1, 2, 3, 4, 9, 10, 1000, 10**7 + 1):
            exactly = float(counted.after(steps))
            assert counted.affordable(exactly) == steps
            assert counted.affordable(exactly + 0.9 * counted.costs[0]) == steps
