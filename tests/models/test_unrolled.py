"""LISTA, LISTA-CP and LISTA-VM: they equal ISTA with the weights of ISTA. Which prompts they can read."""

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.models.unrolled import UnrolledNet
from loopscale.notation.mistakes import Mistakes
from loopscale.solvers.regression import LeastSquares
from loopscale.solvers.sparse import Correlations, Ista
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.tasks.sparse_recovery import SparseRecovery
from loopscale.theory.constructions.lista import Lista, lista_iterates
from loopscale.training.loop import train
from loopscale.training.trial import Trial

TASK = SparseRecovery(dim=6, points=6, nonzero=2, matrices="fixed")
UNROLLED = ["lista", "lista_cp"]
"""The nets with weights of their own for every number of pairs."""
ALL = [*UNROLLED, "lista_vm"]


def with_weights_of_ista(kind: str, layers: int, penalty: float) -> UnrolledNet:
    """A net with the weights of ISTA in every layer, for every number of pairs."""
    net = Model.model_validate({"kind": kind, "layers": layers}).build(TASK.prompt, stream(0)).double()
    assert isinstance(net, UnrolledNet)
    problem = TASK.sample(1, stream(0)).problem
    pairs = Correlations(problem.xs, problem.ys)
    step, gram, xs = pairs.step[0, 1:, 0], pairs.gram[0, 1:], problem.xs[0].double()
    over_pairs = step / torch.arange(1, len(step) + 1)
    rows = torch.cat([over_pairs[n - 1] * xs[:n] for n in range(1, len(step) + 1)])
    states = {name: value.clone() for name, value in net.state_dict().items()}
    for name, value in states.items():
        if name.startswith("thresholds"):
            value.copy_((step * penalty).expm1().log())
        elif name.startswith("recurrent"):
            value.copy_(torch.eye(6) - step[:, None, None] * gram)
        else:
            value.copy_(rows)
    net.load_state_dict(states)
    return net


@pytest.mark.parametrize("kind", UNROLLED)
def test_with_the_weights_of_ista_the_net_equals_ista_at_every_query(kind: str):
    batch = TASK.sample(5, stream("ista")).to("cpu", torch.float64)
    net = with_weights_of_ista(kind, 5, penalty=0.05)
    torch.testing.assert_close(
        net.predict(batch, 5), Ista(penalty=0.05).predict(batch, 5), atol=1e-9, rtol=1e-7
    )


@pytest.mark.parametrize("kind", UNROLLED)
def test_states_are_the_iterates(kind: str):
    batch = TASK.sample(5, stream("ista")).to("cpu", torch.float64)
    net = with_weights_of_ista(kind, 4, penalty=0.05)
    states = net.states(batch.tokens, 4)[:, :, batch.queries]
    torch.testing.assert_close((states * batch.problem.xs).sum(-1, keepdim=True), net.predict(batch, 4))
    assert (states[:, :, 3:] == 0).any(), "a soft threshold leaves zeros"
    assert not states[:, :, 0].any()


def test_lista_does_not_read_the_matrix_and_lista_cp_does():
    batch = TASK.sample(3, stream("read"))
    changed = batch.tokens.clone()
    changed[:, 2, :6] += 1  # the second x
    for kind, reads in (("lista", False), ("lista_cp", True)):
        net = Model.model_validate({"kind": kind}).build(TASK.prompt, stream(0))
        same = torch.equal(net(batch.tokens, 8)[:, :, 4:], net(changed, 8)[:, :, 4:])
        assert same is not reads


@pytest.mark.parametrize("kind", UNROLLED)
def test_there_is_one_row_of_weights_for_each_seen_pair(kind: str):
    net = Model.model_validate({"kind": kind, "layers": 1}).build(TASK.prompt, stream(0))
    assert sum(weight.numel() for weight in net.parameters()) == 5 * 6 // 2 * 6 + 5


@pytest.mark.parametrize("kind", UNROLLED)
def test_thresholds_start_at_their_setting(kind: str):
    net = Model.model_validate({"kind": kind, "threshold": 0.3}).build(TASK.prompt, stream(0))
    before = next(value for name, value in net.named_parameters() if "thresholds" in name)
    assert torch.nn.functional.softplus(before).tolist() == pytest.approx([0.3] * 5)
    assert before[0].item() == pytest.approx(math.log(math.expm1(0.3)))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "prompt",
    [
        Prompt(10, 3, 3, "interleaved"),
        Prompt(10, 3, 5, "interleaved"),
        Prompt(3, 4, 1, "interleaved"),
        Prompt(1, 5, 1, "beside"),
        Prompt(9, 2, 1, "beside"),
        Prompt(10, 4, 1),
    ],
)
def test_prompts_without_pairs_are_refused_in_one_line(kind: str, prompt: Prompt):
    with pytest.raises(ValueError, match=f"model {kind} reads pairs .* write a regression task") as refused:
        Model.model_validate({"kind": kind}).build(prompt, stream(0))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "task",
    [
        {"kind": "clustering"},
        {"kind": "pca"},
        {"kind": "mixture_regression", "target": "components", "components": 1},
    ],
    ids=lambda task: task["kind"],
)
def test_a_task_without_pairs_is_refused_even_if_the_sizes_fit(kind: str, task: dict[str, Any]):
    prompt = Task.model_validate(task).prompt
    assert prompt.dim_in > prompt.dim_out
    message = f"model {kind} reads pairs .* have no pairs; write a regression task, or another model"
    with pytest.raises(ValidationError, match=message):
        Trial.model_validate({"task": task, "model": {"kind": kind}})


@pytest.mark.parametrize("kind", ALL)
def test_a_study_whose_prompts_have_a_single_pair_is_refused_before_it_runs(kind: str):
    with pytest.raises(ValidationError, match=f"model {kind} reads pairs"):
        Trial.model_validate({"task": TASK.model_dump() | {"points": 1}, "model": {"kind": kind}})
    fixed = {"task": {"kind": "sparse_recovery", "points": 1}, "model": {"kind": kind}}
    with pytest.raises(Mistakes) as refused:
        Study.parse({"question": "Can it read one pair?", "fixed": fixed}, "pairs")
    assert len(str(refused.value).splitlines()) == 1
    assert f"model {kind} reads pairs" in str(refused.value)


@pytest.mark.parametrize("kind", UNROLLED)
def test_a_prompt_with_too_many_pairs_is_an_error(kind: str):
    net = Model.model_validate({"kind": kind}).build(TASK.prompt, stream(0))
    with pytest.raises(
        ValueError, match="14 tokens is too long: this net has weights for 5 pairs before a query"
    ):
        net(torch.randn(2, 14, 7), 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNROLLED)
def test_lista_beats_linear_maps_on_one_matrix_and_learns_nothing_on_random_matrices(kind: str):
    """Queries are random. For queries from the matrix itself, a linear map of y does as well, without β."""
    training = {"steps": 800, "lr": 5e-3, "schedule": "cosine", "eval_every": 800}
    size = {"dim": 8, "points": 7, "nonzero": 2, "format": "encoder"}
    tasks = {
        "fixed": SparseRecovery(**size, matrices="fixed", query="drawn"),
        "drawn": SparseRecovery(**size),
    }
    errors = {}
    for matrices, task in tasks.items():
        settings = {"task": task, "model": {"kind": kind, "layers": 4}, "training": training}
        *_, last = train(Trial.model_validate(settings))
        errors[matrices] = last.metrics["error_last"]
    batch = tasks["fixed"].sample(4000, stream("ista"))
    solvers = [LeastSquares(), *(Ista(penalty=penalty) for penalty in (0.001, 0.01, 0.1))]
    solver_errors = [
        tasks["fixed"].error(solver.predict(batch, 4), batch)[-1].mean().item() for solver in solvers
    ]
    assert errors["fixed"] < 0.8 * min(solver_errors)
    assert errors["drawn"] > 0.9


@pytest.mark.parametrize("kind", ALL)
def test_both_formats_of_pairs_give_the_same_output(kind: str):
    beside = TASK.model_copy(update={"format": "encoder"})
    nets = [
        Model.model_validate({"kind": kind, "layers": 3}).build(task.prompt, stream(0))
        for task in (TASK, beside)
    ]
    interleaved, paired = (task.sample(4, stream("pairs")) for task in (TASK, beside))
    expected = nets[0].predict(interleaved, 3)
    prediction = nets[1].predict(paired, 3)
    assert prediction.shape[2] == 1
    torch.testing.assert_close(prediction[:, :, 0], expected[:, :, -1])
    torch.testing.assert_close(
        nets[1].states(paired.tokens, 3), nets[0].states(interleaved.tokens, 3)[:, :, ::2]
    )
    assert nets[1].predict(beside.easier(3, 4).sample(2, stream(0)), 3).shape == (3, 2, 1, 1)


def settings_of_vm(layers: int) -> tuple[list[tuple[tuple[float, ...], ...]], list[float]]:
    """M and θ of every layer. M is neither symmetric nor a multiple of the identity."""
    rng = stream("multipliers")
    matrices = 0.2 * torch.eye(6) + 0.03 * torch.randn(layers, 6, 6, generator=rng)
    return [tuple(map(tuple, matrix)) for matrix in matrices.tolist()], [0.1 * 0.8**k for k in range(layers)]


def vm_with(layers: int) -> UnrolledNet:
    """LISTA-VM with these settings, in double precision."""
    matrices, thresholds = settings_of_vm(layers)
    net = Model.model_validate({"kind": "lista_vm", "layers": layers}).build(TASK.prompt, stream(0)).double()
    assert isinstance(net, UnrolledNet)
    states = {name: value.clone() for name, value in net.state_dict().items()}
    states["multipliers.weight"] = torch.tensor(matrices).double()
    for layer, threshold in enumerate(thresholds):
        states[f"thresholds.{layer}.before"] = torch.tensor([threshold]).double().expm1().log()
    net.load_state_dict(states)
    return net


@pytest.mark.parametrize("points", [4, 6, 9])
def test_lista_vm_equals_the_construction_of_theorem_12_on_new_matrices_of_every_length(points: int):
    """Also on prompts that are longer than the prompts for which the net was built."""
    task = SparseRecovery(dim=6, points=points, nonzero=2)
    batch = task.sample(5, stream("vm")).to("cpu", torch.float64)
    matrices, thresholds = settings_of_vm(4)
    construction = Lista(layers=4, matrices=tuple(matrices), thresholds=tuple(thresholds))
    weights = vm_with(4).states(batch.tokens, 4)[-1, :, batch.queries]
    net = construction.net(Prompt(2 * points - 1, 7, 1))
    guesses = net(batch.tokens[:, : 2 * points - 1], 7)[-1, :, 0::2]
    torch.testing.assert_close((weights * batch.problem.xs).sum(-1, keepdim=True), guesses)
    assert (weights[:, 2:] == 0).any(), "a soft threshold leaves zeros"


def test_lista_vm_starts_near_ista_with_its_rate():
    settings = {"kind": "lista_vm", "layers": 3, "rate": 0.3, "threshold": 0.02, "start": 1e-9}
    net = Model.model_validate(settings).build(TASK.prompt, stream(0)).double()
    batch = SparseRecovery(dim=6, points=6, nonzero=2).sample(5, stream("start")).to("cpu", torch.float64)
    expected = lista_iterates(
        batch.problem.xs, batch.problem.ys, 3 * [0.3 * torch.eye(6).double()], 3 * [0.02]
    )
    torch.testing.assert_close(
        net.states(batch.tokens, 3)[:, :, batch.queries], expected, atol=1e-6, rtol=1e-6
    )


@pytest.mark.slow
def test_lista_vm_learns_on_random_matrices():
    """It is better than ISTA with the best of several penalties after as many steps."""
    task = SparseRecovery(dim=16, points=13, nonzero=2, format="encoder")
    training = {"steps": 600, "lr": 1e-2, "schedule": "cosine", "eval_every": 600}
    settings = {"task": task, "model": {"kind": "lista_vm", "layers": 4}, "training": training}
    *_, last = train(Trial.model_validate(settings))
    batch = task.sample(2000, stream("ista"))
    errors = [
        task.error(Ista(penalty=penalty).predict(batch, 4), batch)[-1].mean().item()
        for penalty in (0.001, 0.01, 0.1)
    ]
    assert last.metrics["error_last"] < 0.8 * min(errors)
