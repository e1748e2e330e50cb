"""The contract of every solver, on every task that the solver accepts. New solvers are tested without a list."""

from dataclasses import replace

import pytest
import torch

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task

SMALL = [
    choice(**settings).easier(dim=4, points=12)
    for choice in Task.choices().values()
    for settings in ({}, {"format": "encoder"})
    if settings.keys() <= choice.model_fields.keys()
]
SOLVERS = [choice() for choice in Solver.choices().values()]
PAIRS = [
    (solver, task)
    for solver in SOLVERS
    for task in SMALL
    if solver.accepts(task.sample(1, stream(0)).problem)
]


def _for_each(pairs: list[tuple[Solver, Task]]) -> pytest.MarkDecorator:
    ids = [f"{solver.kind}-{task.kind}{'-whole' * task.whole}" for solver, task in pairs]
    return pytest.mark.parametrize(("solver", "task"), pairs, ids=ids)


EVERY_PAIR = _for_each(PAIRS)
VISIBLE = ("xs", "ys", "representation", "starts")
"""Fields of a problem that the prompt contains or determines, or that do not affect the targets."""
FROM_THE_FIRST = _for_each(
    [(solver, task) for solver, task in PAIRS if not task.whole and task.seen[0] == 0 and not solver.oracle]
)
ON_PREFIXES = _for_each([(solver, task) for solver, task in PAIRS if not task.whole])
"""Pairs in which a query may depend only on earlier tokens, because the prompt contains the answers."""
LEADERS = [(solver, task) for solver, task in PAIRS if solver.room_below(task) is not None]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.kind)
def test_there_is_a_task_for_every_solver(solver: Solver):
    assert any(solver.accepts(task.sample(1, stream(0)).problem) for task in SMALL)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.kind)
def test_no_solver_accepts_an_unknown_problem(solver: Solver):
    assert not solver.accepts(object())


@EVERY_PAIR
def test_predictions_are_float64_for_every_step_and_query(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    guesses = solver.predict(batch, 5)
    assert guesses.shape == (5, *batch.targets.shape)
    assert guesses.dtype == torch.float64


@EVERY_PAIR
def test_predictions_are_finite_after_1500_steps(solver: Solver, task: Task):
    assert solver.predict(task.sample(3, stream(0)), 1500).isfinite().all()


@EVERY_PAIR
def test_more_steps_do_not_change_the_first_steps(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    torch.testing.assert_close(solver.predict(batch, 9)[:4], solver.predict(batch, 4), rtol=0, atol=0)


@FROM_THE_FIRST
def test_prediction_before_the_first_pair_is_zero(solver: Solver, task: Task):
    first = solver.predict(task.sample(3, stream(0)), 4)[:, :, 0]
    assert (first == 0).all() or solver.guesses_from_prior


@EVERY_PAIR
def test_predictions_do_not_depend_on_the_targets(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    blind = replace(batch, targets=torch.full_like(batch.targets, torch.nan))
    torch.testing.assert_close(solver.predict(blind, 4), solver.predict(batch, 4), rtol=0, atol=0)


@ON_PREFIXES
@pytest.mark.parametrize("point", [1, 5, 11])
def test_a_prediction_depends_only_on_earlier_pairs_and_its_own_input(solver: Solver, task: Task, point: int):
    batch = task.sample(3, stream(0))
    before, after = solver.predict(batch, 4), solver.predict(_changed_from(batch, point), 4)
    same = torch.tensor(task.seen) <= point
    torch.testing.assert_close(before[:, :, same], after[:, :, same], rtol=1e-9, atol=1e-9)
    if point < 11:
        assert (before[:, :, ~same] != after[:, :, ~same]).any(), "the change must affect later predictions"


@EVERY_PAIR
def test_a_prediction_does_not_depend_on_the_batch(solver: Solver, task: Task):
    batch = task.sample(6, stream(0))
    alone = replace(
        batch,
        tokens=batch.tokens[2:3],
        targets=batch.targets[2:3],
        problem=_map_tensors(batch.problem, lambda _, value: value[2:3]),
    )
    torch.testing.assert_close(
        solver.predict(alone, 4), solver.predict(batch, 4)[:, 2:3], rtol=1e-7, atol=1e-9
    )


@EVERY_PAIR
def test_a_solver_that_reads_hidden_variables_is_an_oracle(solver: Solver, task: Task):
    batch = task.sample(6, stream(0))
    hidden = _map_tensors(
        batch.problem, lambda name, value: value if name in VISIBLE else value.roll(1, dims=0)
    )
    reads_hidden = (solver.predict(batch, 4) != solver.predict(replace(batch, problem=hidden), 4)).any()
    assert reads_hidden == solver.oracle


@EVERY_PAIR
def test_survives_a_round_trip_through_yaml(solver: Solver, task: Task):
    assert Solver.model_validate(solver.model_dump(mode="json")) == solver


def _changed_from(batch: Batch, point: int) -> Batch:
    """The same prompts with random values for every y from `point` on and for every later input.

    Fields without one row per point, such as the hidden variables of an oracle, stay.
    """

    rows = getattr(batch.problem, "ys", batch.targets).shape[1]

    def change(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.shape[1] != rows:
            return value
        changed = value.clone()
        first = point if name == "ys" else point + 1
        changed[:, first:] = 7 * torch.randn(changed[:, first:].shape, generator=stream("other", name))
        return changed

    problem = _map_tensors(batch.problem, change)
    return replace(batch, targets=torch.full_like(batch.targets, torch.nan), problem=problem)


def _map_tensors(problem, change):
    tensors = {name: value for name, value in vars(problem).items() if isinstance(value, torch.Tensor)}
    return replace(problem, **{name: change(name, value) for name, value in tensors.items()})


@_for_each(LEADERS)
def test_no_other_solver_beats_a_bayes_predictor_by_more_than_its_bound(solver: Solver, task: Task):
    batch = task.sample(600, stream("leaders"))
    best, room = task.raw_error(solver.predict(batch, 20), batch)[-1], solver.room_below(task)
    assert room is not None
    others = [
        other for other, same in PAIRS if same is task and other.kind not in (solver.kind, "construction")
    ]
    # An oracle knows more than a Bayes predictor that is no oracle, and is not compared with it.
    rivals = [other for other in others if solver.oracle or not other.oracle]
    assert rivals
    for other in rivals:
        ahead = (best - task.raw_error(other.predict(batch, 20), batch)[-1]).mean(-1)
        assert ahead.mean() <= room + 4 * ahead.std() / len(ahead) ** 0.5 + 1e-9, other.kind
