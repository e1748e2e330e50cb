"""What every solver must keep to, on every task that it accepts. A new one is tested by being there."""

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


def _of_each(pairs: list[tuple[Solver, Task]]) -> pytest.MarkDecorator:
    named = [f"{solver.kind}-{task.kind}{'-whole' * task.whole}" for solver, task in pairs]
    return pytest.mark.parametrize(("solver", "task"), pairs, ids=named)


EVERY = _of_each(PAIRS)
SHOWN = ("xs", "ys", "representation", "starts")
"""Of a problem, what stands in the prompt, follows from that alike in all prompts, or tells nothing of the targets."""
FROM_THE_FIRST = _of_each(
    [(solver, task) for solver, task in PAIRS if not task.whole and task.seen[0] == 0 and not solver.oracle]
)
ON_PREFIXES = _of_each([(solver, task) for solver, task in PAIRS if not task.whole])
"""Where answers stand in the prompt, so that a query may see only what comes before it."""
LEADERS = [(solver, task) for solver, task in PAIRS if solver.room_below(task) is not None]


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.kind)
def test_there_is_a_task_for_every_solver(solver: Solver):
    assert any(solver.accepts(task.sample(1, stream(0)).problem) for task in SMALL)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: s.kind)
def test_nothing_accepts_what_is_no_problem_of_its_kind(solver: Solver):
    assert not solver.accepts(object())


@EVERY
def test_guesses_are_float64_and_one_for_every_step_and_query(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    guesses = solver.predict(batch, 5)
    assert guesses.shape == (5, *batch.targets.shape)
    assert guesses.dtype == torch.float64


@EVERY
def test_guesses_are_finite_on_every_prefix_however_long_it_runs(solver: Solver, task: Task):
    assert solver.predict(task.sample(3, stream(0)), 1500).isfinite().all()


@EVERY
def test_running_longer_leaves_the_first_steps(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    torch.testing.assert_close(solver.predict(batch, 9)[:4], solver.predict(batch, 4), rtol=0, atol=0)


@FROM_THE_FIRST
def test_before_the_first_pair_it_guesses_zero(solver: Solver, task: Task):
    first = solver.predict(task.sample(3, stream(0)), 4)[:, :, 0]
    assert (first == 0).all() or solver.guesses_from_prior


@EVERY
def test_guesses_do_not_rest_on_the_targets(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    blind = replace(batch, targets=torch.full_like(batch.targets, torch.nan))
    torch.testing.assert_close(solver.predict(blind, 4), solver.predict(batch, 4), rtol=0, atol=0)


@ON_PREFIXES
@pytest.mark.parametrize("point", [1, 5, 11])
def test_a_guess_rests_on_the_pairs_before_it_and_its_own_input_alone(solver: Solver, task: Task, point: int):
    batch = task.sample(3, stream(0))
    before, after = solver.predict(batch, 4), solver.predict(_changed_from(batch, point), 4)
    same = torch.tensor(task.seen) <= point
    torch.testing.assert_close(before[:, :, same], after[:, :, same], rtol=1e-9, atol=1e-9)
    if point < 11:
        assert (before[:, :, ~same] != after[:, :, ~same]).any(), "the change must change something"


@EVERY
def test_a_prompt_is_solved_alike_alone_and_among_others(solver: Solver, task: Task):
    batch = task.sample(6, stream(0))
    alone = replace(
        batch,
        tokens=batch.tokens[2:3],
        targets=batch.targets[2:3],
        problem=_each_tensor(batch.problem, lambda _, value: value[2:3]),
    )
    torch.testing.assert_close(
        solver.predict(alone, 4), solver.predict(batch, 4)[:, 2:3], rtol=1e-7, atol=1e-9
    )


@EVERY
def test_who_is_told_what_no_prompt_shows_is_called_an_oracle(solver: Solver, task: Task):
    batch = task.sample(6, stream(0))
    hidden = _each_tensor(
        batch.problem, lambda name, value: value if name in SHOWN else value.roll(1, dims=0)
    )
    told = (solver.predict(batch, 4) != solver.predict(replace(batch, problem=hidden), 4)).any()
    assert told == solver.oracle


@EVERY
def test_survives_a_round_trip_through_yaml(solver: Solver, task: Task):
    assert Solver.model_validate(solver.model_dump(mode="json")) == solver


def _changed_from(batch: Batch, point: int) -> Batch:
    """The same prompts with every y from `point` on, and every input after it, replaced.

    What has no row for each point, as what an oracle is told, stays.
    """

    rows = getattr(batch.problem, "ys", batch.targets).shape[1]

    def change(name: str, value: torch.Tensor) -> torch.Tensor:
        if value.shape[1] != rows:
            return value
        changed = value.clone()
        first = point if name == "ys" else point + 1
        changed[:, first:] = 7 * torch.randn(changed[:, first:].shape, generator=stream("other", name))
        return changed

    problem = _each_tensor(batch.problem, change)
    return replace(batch, targets=torch.full_like(batch.targets, torch.nan), problem=problem)


def _each_tensor(problem, change):
    tensors = {name: value for name, value in vars(problem).items() if isinstance(value, torch.Tensor)}
    return replace(problem, **{name: change(name, value) for name, value in tensors.items()})


@_of_each(LEADERS)
def test_what_nobody_is_said_to_beat_is_beaten_by_no_other_solver(solver: Solver, task: Task):
    batch = task.sample(600, stream("leaders"))
    best, room = task.raw_error(solver.predict(batch, 20), batch)[-1], solver.room_below(task)
    assert room is not None
    others = [each for each, same in PAIRS if same is task and each.kind not in (solver.kind, "construction")]
    rivals = [each for each in others if solver.oracle or not each.oracle]  # who is told more is no rival
    assert rivals
    for other in rivals:
        ahead = (best - task.raw_error(other.predict(batch, 20), batch)[-1]).mean(-1)
        assert ahead.mean() <= room + 4 * ahead.std() / len(ahead) ** 0.5 + 1e-9, other.kind
