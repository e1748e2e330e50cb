"""The contract of every task. A new file in `loopscale/tasks` is tested here without further steps."""

import pytest
import torch
from pydantic import ValidationError

from loopscale.contracts.members import gradable, small_task, under_test
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task

FORMATS = ("decoder", "encoder")


def _named(task: Task) -> str:
    return f"{task.kind} {getattr(task, 'format', '')}".strip()


def _formats(choice: type[Task]) -> list[Task]:
    """The task with its defaults, in each of its formats."""
    return (
        [choice.model_validate({"format": name}) for name in FORMATS]
        if "format" in choice.model_fields
        else [choice.model_validate({})]
    )


EVERY = pytest.mark.parametrize(
    "task", [task for choice in under_test(Task).values() for task in _formats(choice)], ids=_named
)
GRADED = pytest.mark.parametrize(
    "task",
    [task for choice in under_test(Task).values() for task in _formats(choice) if gradable(task)],
    ids=_named,
)
"""Tasks with sizes that a curriculum reduces."""
SQUARED = pytest.mark.parametrize(
    "task",
    [choice.model_validate({}) for choice in under_test(Task).values() if choice.raw_error is Task.raw_error],
    ids=lambda t: t.kind,
)
"""Tasks with the squared error. Tests of a task cover its own error."""
LEAK_PROMPTS = 64
"""Prompts in which a target is searched."""
LEAST_CHANCE = 1e-9
"""Equal values in every prompt are no chance if their probability is lower."""
MOST_EXAMINED = 200
"""Equal values of a query that are examined one by one."""
NOISY = [
    (kind, noise)
    for kind, choice in under_test(Task).items()
    for noise in (0.0, 2.0)
    if "noise" in choice.model_fields
]


def size_of(task: Task) -> tuple[int, int]:
    """`dim` and `points`, which a curriculum reduces."""
    settings = task.model_dump()
    return settings["dim"], settings["points"]


def leaked_target(task: Task, batch: Batch) -> str:
    """The first target that a prompt contains before its query, in words; empty if there is none.

    A value in common with other prompts, such as 0 or a sign, may equal a target by chance. An earlier answer of the
    same prompt may equal a target too. These values are a leak if they are at one place in every prompt, and chance is
    impossible.
    """
    width, answers = task.prompt.dim_out, getattr(batch.problem, "ys", batch.targets)
    answers = answers.reshape(*answers.shape[:2], -1)
    windows = batch.tokens.unfold(-1, width, 1)  # [batch, length, places, dim_out]
    for point, query in enumerate(batch.queries.tolist()):
        seen, target = windows[:, : query + 1], batch.targets[:, point]
        equal = (seen == target[:, None, None]).all(-1)
        if not equal.any():
            continue
        chance = torch.stack(
            [
                (seen == target.roll(shift, 0)[:, None, None]).all(-1).double().mean(0)
                for shift in (1, 2, 3, 5)
            ]
        ).mean(0)
        for token, place in (equal.all(0) & (chance ** len(seen) < LEAST_CHANCE)).nonzero()[:1].tolist():
            return f"query {point}: coordinate {place} of token {token} is the target in every prompt"
        for prompt, token, place in equal.nonzero()[:MOST_EXAMINED].tolist():
            others = torch.arange(len(windows)) != prompt
            common = bool((windows[others] == target[prompt]).all(-1).any())
            earlier = (answers[prompt, : task.seen[point]] == target[prompt]).all(-1)
            if not common and not bool(earlier.any()):
                return f"query {point}: coordinate {place} of token {token} is the target of prompt {prompt}"
    return ""


def assert_next_tokens(batch: Batch) -> None:
    """Every target with a weight is the next token of its prompt, and stands behind the query."""
    assert batch.weights is not None
    following = batch.tokens[:, 1:, 0]
    asked = batch.weights[:, :-1] > 0
    assert torch.equal(batch.queries, torch.arange(batch.tokens.shape[1]))
    assert torch.equal(batch.targets[:, :-1][asked], following[asked])


@EVERY
def test_the_generator_determines_the_prompts(task: Task):
    torch.manual_seed(5)
    once = task.sample(4, stream(0))
    torch.manual_seed(6)
    again, other = task.sample(4, stream(0)), task.sample(4, stream(1))
    for name in ("tokens", "targets"):
        torch.testing.assert_close(getattr(once, name), getattr(again, name), rtol=0, atol=0)
        assert not torch.equal(getattr(once, name), getattr(other, name))


@EVERY
def test_prompts_have_the_declared_shape(task: Task):
    batch = task.sample(4, stream(0))
    assert batch.tokens.shape == (4, task.prompt.length, task.prompt.dim_in)
    assert 0 <= batch.queries.min() <= batch.queries.max() < task.prompt.length
    if task.prompt.vocabulary is None:
        assert batch.targets.shape == (4, len(batch.queries), task.prompt.dim_out)
        assert batch.tokens.dtype == batch.targets.dtype == torch.float32
        assert batch.weights is None
        assert len(task.seen) == len(batch.queries)
    else:
        assert batch.targets.shape == (4, len(batch.queries))
        assert batch.tokens.dtype == batch.targets.dtype == torch.int64
        for numbers in (batch.tokens, batch.targets):
            assert 0 <= numbers.min() <= numbers.max() < task.prompt.vocabulary == task.prompt.dim_out
        assert batch.weights is not None
        assert batch.weights.shape == batch.targets.shape
        assert batch.weights.sum() == pytest.approx(4), "the weights of a prompt are 1 on average"
        assert len(task.seen) == 1
    assert sorted(set(task.seen)) == list(task.seen)


@EVERY
def test_prompts_differ_from_one_another(task: Task):
    tokens = task.sample(8, stream(0)).tokens.flatten(1)
    assert len(tokens.unique(dim=0)) == 8


@EVERY
def test_predicting_zero_costs_one_at_every_query(task: Task):
    batch = task.sample(4096, stream(0))
    cost = task.error(task.blank(batch), batch)
    sem = cost.std(0) / 4096**0.5
    assert ((cost.mean(0) - 1).abs() <= 5 * sem + 1e-6).all(), (
        f"predicting 0 costs {cost.mean():.3g} on average"
    )
    assert (sem < 0.1).all(), "too few prompts for this test"
    assert cost.mean().item() == pytest.approx(1, abs=5 * cost.mean(1).std().item() / 64 + 0.004)


@EVERY
def test_error_is_raw_error_over_the_raw_error_of_predicting_zero(task: Task):
    batch = task.sample(4, stream(0))
    guess = torch.stack([task.blank(batch) + 3, torch.randn(task.blank(batch).shape)])
    scale = torch.as_tensor(task.variances).to(guess)
    torch.testing.assert_close(task.error(guess, batch) * scale, task.raw_error(guess, batch))


@EVERY
def test_the_loss_has_a_gradient_at_every_query(task: Task):
    batch = task.sample(4, stream(0))
    guess = torch.randn(2, *task.blank(batch).shape, generator=stream("guess")).requires_grad_()
    loss = task.loss(guess, batch)
    assert loss.shape == (2, 4, len(task.seen))
    (slope,) = torch.autograd.grad(loss.sum(), guess)
    assert slope.isfinite().all()
    weighted = torch.ones(4, len(batch.queries)) if batch.weights is None else batch.weights
    torch.testing.assert_close((slope != 0).any(-1), (weighted != 0).expand(2, -1, -1))


@EVERY
def test_measures_have_one_finite_number_per_prompt_and_step(task: Task):
    batch = task.sample(4, stream(0))
    measures = task.measures(torch.randn(3, *task.blank(batch).shape, generator=stream("guess")), batch)
    assert {name: values.shape for name, values in measures.items()} == dict.fromkeys(measures, (3, 4))
    assert all(values.isfinite().all() for values in measures.values())


@pytest.mark.parametrize(
    "task", [task for choice in under_test(Task).values() for task in _formats(choice) if task.outcome_names]
)
def test_outcomes_have_their_names_and_one_number_per_game(task: Task):
    def answer(batch: Batch) -> torch.Tensor:
        return torch.zeros(len(batch.tokens), len(batch.queries), task.prompt.dim_out)

    outcomes, again = task.outcomes(answer), task.outcomes(answer)
    assert tuple(outcomes) == task.outcome_names
    (games,) = {len(values) for values in outcomes.values()}
    assert games
    for name, values in outcomes.items():
        assert values.shape in ((games,), (games, len(task.seen)))
        assert values.isfinite().all()
        torch.testing.assert_close(values, again[name], rtol=0, atol=0)


@SQUARED
def test_the_raw_error_is_the_squared_distance_to_the_target(task: Task):
    batch = task.sample(4, stream(0))
    guess = batch.targets[None] + 3
    torch.testing.assert_close(task.raw_error(guess, batch), torch.full_like(guess[..., 0], 9))
    scaled = (9 / torch.as_tensor(task.variances)).expand_as(guess[..., 0]).to(guess)
    torch.testing.assert_close(task.error(guess, batch), scaled)


@pytest.mark.parametrize(("kind", "noise"), NOISY)
def test_noise_only_adds_its_variance(kind: str, noise: float):
    quiet, noisy = (Task.model_validate({"kind": kind, "noise": value}) for value in (0.0, noise))
    assert noisy.noise_variance == noise**2
    assert noisy.variance - quiet.variance == pytest.approx(noise**2)
    with_noise, without = (choice.sample(4096, stream(0)).targets[:, 0].double() for choice in (noisy, quiet))
    # Only at the first query, because an autoregression feeds the noise back into later values.
    assert (with_noise - without).square().mean().item() == pytest.approx(noise**2, rel=0.12, abs=1e-12)


@EVERY
def test_no_prompt_contains_a_target_before_its_query(task: Task):
    if task.prompt.vocabulary is not None:
        batch = task.sample(LEAK_PROMPTS, stream(0))
        assert_next_tokens(batch)
        return
    leak = leaked_target(task, task.sample(LEAK_PROMPTS, stream(0)))
    assert not leak, leak


@EVERY
def test_survives_a_round_trip_through_yaml(task: Task):
    assert Task.model_validate(task.model_dump(mode="json")) == task


@GRADED
def test_an_easier_task_keeps_the_size_of_its_tokens(task: Task):
    whole = task.sample(2, stream(0))
    _, points = size_of(task)
    for size in (1, points // 2, points):
        easier = small_task(task, dim=2, points=size)
        batch = easier.sample(2, stream(0))
        assert batch.tokens.shape[-1] == whole.tokens.shape[-1]
        if len(task.seen) == 1:
            assert easier.seen == (size - 1,)
        elif not task.whole:
            assert batch.targets.shape[1] * points == whole.targets.shape[1] * size
        assert (easier.prompt.dim_in, easier.prompt.dim_out) == (task.prompt.dim_in, task.prompt.dim_out)


@GRADED
def test_an_easier_task_of_full_size_is_the_task(task: Task):
    whole = task.easier(*size_of(task))
    torch.testing.assert_close(whole.sample(2, stream(0)).tokens, task.sample(2, stream(0)).tokens)
    assert whole.variance == pytest.approx(task.variance)


@GRADED
def test_predicting_zero_costs_one_in_an_easier_task(task: Task):
    easier = small_task(task, dim=3, points=5)
    batch = easier.sample(16384, stream(0))
    cost = easier.error(torch.zeros_like(batch.targets), batch).mean(1)
    assert cost.mean().item() == pytest.approx(1, abs=5 * cost.std().item() / 128 + 0.004)


@GRADED
def test_easier_refuses_sizes_below_one_and_above_the_task(task: Task):
    for dim, points in ((0, 5), (3, 0), (10_000, 5), (3, 10_000)):
        with pytest.raises(ValueError, match="no easier task with"):
            task.easier(dim, points)


@pytest.mark.parametrize(
    ("task", "setting"),
    [
        (choice.model_validate({}), setting)
        for choice in under_test(Task).values()
        for setting in ("dim", "points", "noise", "w_scale")
        if setting in choice.model_fields
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_invalid_values_are_refused_with_the_name_of_the_setting(task: Task, setting: str):
    for value in (-1, float("inf"), float("nan")) + ((0,) if setting != "noise" else ()):
        with pytest.raises(ValidationError, match=setting):
            Task.model_validate({"kind": task.kind, setting: value})


@EVERY
def test_a_task_names_its_floor_or_a_reference(task: Task):
    rule, problem = task.floor_rule, task.sample(1, stream(0)).problem
    if (
        rule is None and task.plugin
    ):  # an outside task may have no known floor, and then regret is not measured
        return
    assert rule is not None, (
        "a task of the package names its floor or the best known algorithm in `floor_rule`"
    )
    solver = Solver.model_validate(rule.solver) if rule.solver else None
    assert solver is None or solver.accepts(problem)
    if rule.how == "bayes":
        assert type(task).raw_error is Task.raw_error
        assert solver is None or not solver.oracle
        # A solver of the package cannot know an outside task. The contract of solvers then compares the errors.
        unknown = solver and solver.room_below(task) is None and task.plugin and not solver.plugin
        assert solver is None or unknown or solver.room_below(task) == 0
    if rule.how == "bound":
        assert solver is not None
        assert solver.room_below(task) is not None
    if rule.how == "reference":
        assert solver is not None
        assert not solver.oracle


@EVERY
def test_no_other_fixed_guess_is_better(task: Task):
    small = small_task(task, dim=4, points=8)
    batch, guess = small.sample(2000, stream("other guesses")), small.fixed_guess
    scale = batch.targets.std() if task.prompt.vocabulary is None else 1.0
    noise = torch.randn(guess.shape, generator=stream("direction")) * scale
    for other in (0.5 * guess, 1.5 * guess, guess + 0.3 * noise, guess - 0.3 * noise):
        errors = [
            small.error(each.expand(len(batch.targets), *each.shape), batch).mean(-1)
            for each in (guess, other)
        ]
        ahead = (errors[0] - errors[1]).double()
        assert ahead.mean() <= 3 * ahead.std() / len(ahead) ** 0.5
