"""The similarity of nets in training to the iterates of solvers."""

from typing import Any

import pytest
import torch
from torch import nn

from loopscale.core.prompt import Batch
from loopscale.models.base import Net
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.theory.constructions.base import Construction
from loopscale.training.loop import train
from loopscale.training.similarity import Compared, measured, similarity_metrics
from loopscale.training.trial import Trial

TASK = {"kind": "linear_regression", "dim": 3, "points": 8}
COMPARED = [{"solver": "newton", "iterates": 12}, {"solver": {"kind": "gradient_descent", "rate": "safe"}}]


def compared(*settings: Any) -> tuple[Compared, ...]:
    return tuple(Compared.model_validate(each) for each in settings)


class Iterating(Net):
    """A net that answers with every second iterate of a solver: step k has iterate 2k."""

    def __init__(self, solver: Solver) -> None:
        super().__init__()
        self.solver, self.weight = solver, nn.Parameter(torch.zeros((), dtype=torch.float64))

    def answers(self, batch: Batch, steps: int, first: int = 1, truncate: bool = False) -> torch.Tensor:
        return self.solver.predict(batch, 2 * steps)[1::2][first - 1 :]

    def forward(self, tokens: Any, steps: int, first: int = 1, truncate: bool = False) -> Any:
        raise NotImplementedError

    def states(self, tokens: Any, steps: int) -> Any:
        raise NotImplementedError


def trial(**training: Any) -> Trial:
    looped = {"steps": 7, "eval_every": 1, "batch_size": 4, "loops": 4, "window": 4} | training
    model = {"kind": "looped", "width": 8, "heads": 2}
    return Trial.model_validate({"task": TASK, "model": model, "training": looped})


@pytest.mark.parametrize("kind", ["newton", "gradient_descent"])
def test_a_net_that_runs_a_solver_matches_its_iterates(kind: str):
    solver = Solver.model_validate({"kind": kind})
    task = Task.model_validate(TASK)
    metrics = similarity_metrics(Iterating(solver), task, 3, compared({"solver": kind, "iterates": 9}))
    assert metrics[f"similarity_{kind}"] == pytest.approx(1, abs=1e-9)
    assert [round(metrics[name]) for name in (f"match_{kind}", f"half_match_{kind}")] == [6, 4]
    assert len(metrics) == 3


def test_the_construction_of_gradient_descent_matches_one_iterate_for_each_loop():
    start = {"kind": "causal_gradient_descent", "rate": 0.05}
    task = Task.model_validate(TASK)
    net = Construction.model_validate(start).net(task.prompt)
    solver = {"kind": "gradient_descent", "rate": 0.05}
    metrics = similarity_metrics(net, task, 6, compared({"solver": solver, "iterates": 20}))
    assert round(metrics["half_match_gradient_descent"]) == 3
    assert round(metrics["match_gradient_descent"]) == 6
    assert metrics["similarity_gradient_descent"] > 0.999


def test_a_training_is_compared_at_the_reports_1_2_4_and_at_its_end():
    reports = list(train(trial(similar_to=COMPARED)))
    names = {
        f"{prefix}_{solver}"
        for prefix in ("similarity", "match", "half_match")
        for solver in ("newton", "gradient_descent")
    }
    steps = [report.step for report in reports if names <= report.metrics.keys()]
    assert steps == [1, 2, 4, 7]
    assert not any(names & report.metrics.keys() for report in reports if report.step not in steps)
    last = reports[-1].metrics
    assert 1 <= last["match_newton"] <= 12
    assert -1 <= last["similarity_newton"] <= 1
    assert names == set(trial(similar_to=COMPARED).similarity_measures)


def test_a_comparison_changes_neither_the_training_nor_the_key():
    plain, watched = trial(), trial(similar_to=COMPARED)
    assert watched.key == plain.key
    assert "similar_to" not in watched.settings["training"]
    (*_, first), (*_, second) = train(plain), train(watched)
    assert {name: second.metrics[name] for name in first.metrics} == first.metrics


def test_a_resumed_training_has_the_metrics_of_an_uninterrupted_one():
    watched = trial(similar_to=COMPARED)
    reports = train(watched)
    state = next(reports).state()
    for whole, resumed in zip(reports, train(watched, state), strict=True):
        assert (resumed.step, resumed.metrics) == (whole.step, whole.metrics)


def test_a_net_of_fixed_depth_is_compared_after_its_last_layer_alone():
    model = {"kind": "gpt2", "layers": 2, "width": 8, "heads": 2}
    training = {"steps": 1, "eval_every": 1, "batch_size": 4, "similar_to": COMPARED[:1]}
    watched = Trial.model_validate({"task": TASK, "model": model, "training": training})
    assert watched.similarity_measures == ["similarity_newton", "match_newton"]
    (report,) = train(watched)
    assert set(watched.similarity_measures) <= report.metrics.keys()
    assert "half_match_newton" not in report.metrics


def test_without_a_finite_answer_a_metric_is_left_out():
    class Overflowing(Iterating):
        def answers(self, batch: Batch, steps: int, first: int = 1, truncate: bool = False) -> torch.Tensor:
            return super().answers(batch, steps, first, truncate) * torch.inf

    net = Overflowing(Solver.model_validate({"kind": "newton"}))
    assert similarity_metrics(net, Task.model_validate(TASK), 3, compared(COMPARED[0])) == {}


@pytest.mark.parametrize(
    ("task", "similar_to", "message"),
    [
        (
            TASK,
            [{"solver": "kernel_ridge"}],
            "kernel_ridge, which does not solve linear_regression; write another",
        ),
        (TASK, [*COMPARED, COMPARED[0]], "names a kind of solver twice"),
        (
            {"kind": "clustering"},
            [{"solver": "newton"}],
            "the errors of a regression, and clustering is none",
        ),
        (TASK, [{"solver": "newton", "iterates": 0}], "greater than 0"),
    ],
)
def test_an_unsuitable_comparison_is_refused_with_a_remedy(task: Any, similar_to: Any, message: str):
    settings = {"task": task, "model": {"kind": "gpt2"}, "training": {"similar_to": similar_to}}
    with pytest.raises(ValueError, match=message):
        Trial.model_validate(settings)


def test_the_reports_of_comparisons_are_powers_of_two():
    assert [report for report in range(1, 40) if measured(report)] == [1, 2, 4, 8, 16, 32]
