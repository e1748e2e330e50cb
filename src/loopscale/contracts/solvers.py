"""The contract of every solver, on every task that the solver accepts. New solvers are tested without a list."""

from dataclasses import replace

import pytest
import torch

from loopscale.contracts.members import small_task, under_test
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task

SMALL = [
    small_task(choice.model_validate(settings), dim=4, points=12)
    for choice in Task.choices().values()
    for settings in ({}, {"format": "encoder"})
    if settings.keys() <= choice.model_fields.keys()
]
SOLVERS = [choice.model_validate({}) for choice in under_test(Solver).values()]
ACCEPTED = [
    (solver, task)
    for solver in (choice.model_validate({}) for choice in Solver.choices().values())
    for task in SMALL
    if solver.accepts(task.sample(1, stream(0)).problem)
]
PAIRS = [
    (solver, task)
    for solver, task in ACCEPTED
    if solver.kind in under_test(Solver) or task.kind in under_test(Task)
]
"""Every pair of a solver and a task of which at least one is under test."""


def _for_each(pairs: list[tuple[Solver, Task]], slow: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """One test for each pair. Pairs with a solver in `slow` are slow tests."""
    cases = [
        pytest.param(
            solver,
            task,
            id=f"{solver.kind}-{task.kind}{'-whole' * task.whole}",
            marks=[pytest.mark.slow] * (solver.kind in slow),
        )
        for solver, task in pairs
    ]
    return pytest.mark.parametrize(("solver", "task"), cases)


EVERY_PAIR = _for_each(PAIRS)
VISIBLE = ("xs", "ys", "representation", "starts", "states", "plays", "actions", "rows")
"""Fields of a problem that the prompt contains or determines, or that do not affect the targets."""
FROM_THE_FIRST = _for_each(
    [(solver, task) for solver, task in PAIRS if not task.whole and task.seen[0] == 0 and not solver.oracle]
)
ON_PREFIXES = _for_each(
    [(solver, task) for solver, task in PAIRS if not task.whole and task.prompt.vocabulary is None]
)
"""Pairs in which a query may depend only on earlier tokens, because the prompt contains the answers."""


def _room(solver: Solver, task: Task) -> float | None:
    """The declared room below a solver. It is 0 for the Bayes predictor that the task names."""
    rule = task.floor_rule
    if rule and rule.how == "bayes" and rule.solver and Solver.model_validate(rule.solver) == solver:
        return 0.0
    return solver.room_below(task)


LEADERS = [(solver, task) for solver, task in PAIRS if _room(solver, task) is not None]
SLOW_LEADERS = ("mixture_oracle", "ridge")
"""Leaders whose rivals take many seconds, because they iterate over every prefix of a prompt."""


_references: dict[tuple[int, int], torch.Tensor] = {}


def _predicted(solver: Solver, task: Task) -> torch.Tensor:
    """Predictions of 4 steps on 3 prompts. Several tests of a pair share them."""
    pair = id(solver), id(task)  # `PAIRS` keeps both, and a solver of a plugin may have no hash
    if pair not in _references:
        _references[pair] = solver.predict(task.sample(3, stream(0)), 4)
    return _references[pair]


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
    assert guesses.shape == (5, *task.blank(batch).shape)
    assert guesses.dtype == torch.float64


@EVERY_PAIR
@pytest.mark.parametrize("steps", [150, pytest.param(1500, marks=pytest.mark.slow)])
def test_predictions_are_finite_after_many_steps(solver: Solver, task: Task, steps: int):
    assert solver.predict(task.sample(3, stream(0)), steps).isfinite().all()


@EVERY_PAIR
def test_more_steps_do_not_change_the_first_steps(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    torch.testing.assert_close(solver.predict(batch, 9)[:4], _predicted(solver, task), rtol=0, atol=0)


@FROM_THE_FIRST
def test_prediction_before_the_first_pair_is_zero(solver: Solver, task: Task):
    first = _predicted(solver, task)[:, :, 0]
    assert (first == 0).all() or solver.guesses_from_prior


@EVERY_PAIR
def test_predictions_do_not_depend_on_the_targets(solver: Solver, task: Task):
    batch = task.sample(3, stream(0))
    unknown = torch.nan if batch.targets.is_floating_point() else 0
    blind = replace(batch, targets=torch.full_like(batch.targets, unknown))
    torch.testing.assert_close(solver.predict(blind, 4), _predicted(solver, task), rtol=0, atol=0)


@ON_PREFIXES
@pytest.mark.parametrize("point", [1, 5, 11])
def test_a_prediction_depends_only_on_earlier_pairs_and_its_own_input(solver: Solver, task: Task, point: int):
    batch = task.sample(3, stream(0))
    before, after = _predicted(solver, task), solver.predict(_changed_from(batch, point), 4)
    same = torch.tensor(task.seen) <= point
    torch.testing.assert_close(before[:, :, same], after[:, :, same], rtol=1e-9, atol=1e-9)
    if point < 11:
        affected = bool((before[:, :, ~same] != after[:, :, ~same]).any())
        assert affected == solver.uses_pairs, "a change affects later predictions if the solver uses pairs"


@EVERY_PAIR
def test_a_prediction_does_not_depend_on_the_batch(solver: Solver, task: Task):
    batch = task.sample(6, stream(0))
    alone = replace(
        batch,
        tokens=batch.tokens[2:3],
        targets=batch.targets[2:3],
        problem=_map_tensors(batch.problem, lambda _, value: value[2:3]),
        weights=None if batch.weights is None else batch.weights[2:3],
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


@_for_each(LEADERS, slow=SLOW_LEADERS)
def test_no_other_solver_beats_a_bayes_predictor_by_more_than_its_bound(solver: Solver, task: Task):
    batch = task.sample(600, stream("leaders"))
    best, room = task.raw_error(solver.predict(batch, 20), batch)[-1], _room(solver, task)
    assert room is not None
    others = [
        other for other, same in ACCEPTED if same is task and other.kind not in (solver.kind, "construction")
    ]
    # An oracle knows more than a Bayes predictor that is no oracle, and is not compared with it.
    rivals = [other for other in others if solver.oracle or not other.oracle]
    assert rivals
    for other in rivals:
        ahead = (best - task.raw_error(other.predict(batch, 20), batch)[-1]).mean(-1)
        assert ahead.mean() <= room + 4 * ahead.std() / len(ahead) ** 0.5 + 1e-9, other.kind
