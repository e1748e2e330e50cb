"""The room of a study: floors, ignorance, the best known algorithm, and the axes that cannot move the answer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from loopscale.evaluate import prompt_set
from loopscale.foresight.room import effective_rank, layers_of, room, room_remarks, study_room
from loopscale.regret import floor
from loopscale.solvers.base import Solver
from loopscale.solvers.regression import ConjugateGradient, GradientDescent
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.tasks.clustering import Clustering
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.tasks.mixture_regression import MixtureRegression
from loopscale.tasks.pca import PrincipalComponentAnalysis
from loopscale.tasks.representation_regression import RepresentationRegression
from loopscale.tasks.sparse_recovery import SparseRecovery

STUDIES = Path(__file__).parents[2] / "studies"
BASE: dict[str, Any] = {
    "question": "Does it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 3, "points": 8, "condition": 10},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 100, "batch_size": 4, "loops": 4, "window": 2},
    },
    "replicates": 2,
}


def remarks(study: Study, least: float = 0.1) -> str:
    return "\n".join(room_remarks(study, study_room(study), least))


def study(**changes: Any) -> Study:
    return Study.parse(BASE | changes)


def test_the_room_has_the_errors_of_the_floor_and_of_the_algorithms_on_the_same_prompts():
    task = LinearRegression(dim=4, points=9, noise=0.5)
    found = room(task, {3}, prompts=64)
    known = floor(task, "evaluate", 64)
    assert (found.how, found.floor_name, found.prompts) == ("bayes", "ridge", 64)
    assert found.floor.mean == pytest.approx(known.error.mean())
    assert found.ignorance.last == pytest.approx(known.ignorance[-1])
    (batch,) = prompt_set("evaluate", task, 64)
    for solver in (GradientDescent(), ConjugateGradient()):
        error = task.error(solver.predict(batch, 3), batch).double().mean(1).mean(1)
        assert found.after[1].mean <= error[0].item() + 1e-9
        assert found.after[3].mean <= error[2].item() + 1e-9
    assert known.error.mean() <= found.after[3].mean < found.after[1].mean < found.ignorance.mean


@pytest.mark.parametrize(
    "task",
    [
        LinearRegression(dim=4, points=9),
        RepresentationRegression(dim=3, points=8, width=3),
        SparseRecovery(dim=8, points=8, nonzero=2),
        PrincipalComponentAnalysis(dim=4, points=12),
        Clustering(dim=3, points=16),
        MixtureRegression(dim=2, points=7),
    ],
    ids=lambda task: task.kind,
)
def test_an_algorithm_goes_from_the_fixed_guess_towards_the_floor_step_by_step(task: Task):
    found = room(task, {2, 6}, prompts=32)
    errors = [found.after[k].mean for k in (1, 2, 6)]
    assert errors == sorted(errors, reverse=True)
    assert found.floor.mean <= errors[-1] + 1e-12
    assert errors[0] <= found.ignorance.mean
    assert found.algorithm in Solver.choices()
    assert 1 <= found.enough <= 6


def test_the_effective_rank_counts_directions():
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(1000, 3, 4, generator=rng)
    assert effective_rank(rows) == pytest.approx(4, rel=0.01)
    assert effective_rank(rows * torch.tensor([1.0, 0, 0, 0])) == pytest.approx(1)


def test_layers_in_the_loop_count_as_steps():
    model = {"kind": "looped", "width": 8, "heads": 2, "layers": 3}
    layout = study(fixed=BASE["fixed"] | {"model": model}).layout
    assert [layers_of(trial) for trial in layout.trials.values()] == [12]
    deep = study(
        fixed=BASE["fixed"]
        | {"model": {"kind": "gpt2", "layers": 5, "width": 8, "heads": 2}, "training": {"steps": 100}}
    )
    assert [layers_of(trial) for trial in deep.layout.trials.values()] == [5]


def test_reduced_figure_3_says_that_loops_cannot_move_the_answer():
    loaded = Study.load(STUDIES / "algoformer/reduced/figure3.yaml")
    text = remarks(loaded)
    assert "training.loops (4 .. 12) moves only nets that fall short of the best known algorithm" in text
    assert "by <1 %, less than 10 %" in text
    (only,) = study_room(loaded).tasks
    assert only.room.rank == pytest.approx(1.02, abs=0.02)
    assert len(only.cells) == 9


def test_figure_3_of_the_paper_moves_its_answer_by_less_than_a_tenth():
    loaded = Study.load(STUDIES / "algoformer/figure3.yaml")
    loops, window = study_room(loaded).axes
    assert loops.effect is not None
    assert 0.05 < loops.effect < 0.1
    assert loops.effect_error == 0, "all cells have the same task, and so the same prompts"
    assert window.effect is None, "no algorithm has a supervised window"
    assert "training.loops (10 .. 30) moves only nets that fall short of the best known algorithm" in remarks(
        loaded
    )
    assert "training.loops" not in remarks(loaded, least=0.05)


@pytest.mark.parametrize("name", ["algoformer/reduced/figure4", "algoformer/figure4"])
def test_layers_move_nothing_in_figure_4(name: str):
    loaded = Study.load(STUDIES / f"{name}.yaml")
    assert "model.layers" in remarks(loaded)
    assert "model.heads" not in remarks(loaded), "no algorithm has heads, so nothing is known"


def test_two_levels_need_few_steps_and_more_levels_make_loops_pay():
    loaded = Study.load(STUDIES / "scaling/reduced/conditioning.yaml")
    assert "training.loops (2 .. 10) moves only nets that fall short of the best known algorithm" in remarks(
        loaded
    )
    assert "conjugate_gradient needs 2 steps" in remarks(loaded)
    assert "task.condition (1 .. 256) cannot move error_last" in remarks(loaded)
    task = {"kind": "linear_regression", "dim": 8, "points": 40, "condition": 1000}
    two, eight = (
        remarks(study(scientific={"training.loops": [4, 8]}, fixed=BASE["fixed"] | {"task": task | levels}))
        for levels in ({}, {"spectrum_levels": 8})
    )
    assert "a spectrum with more levels (task.spectrum_levels, task.dim) needs more steps" in two
    assert eight == ""


def test_an_axis_of_the_task_moves_the_answer():
    made = study(scientific={"task.noise": [0.1, 1.0]})
    (axis,) = study_room(made).axes
    assert axis.effect is not None
    assert axis.effect > 0.3
    assert not axis.depth
    assert remarks(made) == ""


def test_a_small_sample_of_two_tasks_says_nothing_of_a_small_effect():
    """The errors of 0.5 and 0.51 differ by 2 % and more by the luck of the prompts."""
    made = study(scientific={"task.noise": [0.5, 0.51]})
    (axis,) = study_room(made).axes
    assert axis.effect is not None
    assert axis.effect_error > 0.01
    assert axis.too_small(axis.effect + 3 * axis.effect_error)
    assert not axis.too_small(axis.effect + axis.effect_error)


def test_nets_of_several_kinds_are_told_apart_by_no_algorithm():
    made = study(scientific={"model": [{"kind": "looped"}, {"kind": "gpt2", "layers": 1}]})
    (axis,) = study_room(made).axes
    assert axis.effect is None
    assert remarks(made) == ""


def test_a_task_whose_fixed_guess_is_nearly_the_best_has_no_room():
    task = {"kind": "linear_regression", "dim": 4, "points": 6, "noise": 20.0}
    assert "the task leaves nothing to learn" in remarks(study(fixed=BASE["fixed"] | {"task": task}))


def test_large_tasks_have_smaller_samples():
    small, large = LinearRegression(dim=2, points=4), LinearRegression(dim=5, points=120)
    assert room(small, {2}).prompts == 512
    assert room(large, {30}).prompts == 32
    assert np.isfinite(room(large, {30}).after[30].mean)


@pytest.mark.slow
def test_many_tasks_need_rooms_at_the_ends_only_and_give_the_same_remarks(monkeypatch: pytest.MonkeyPatch):
    task = {"kind": "mixture_regression", "dim": 3, "target": "components", "format": "encoder"}
    scientific = {"task.snr": [0.1, 0.2, 0.5, 2, 5, 10, 20], "task.points": [4, 8, 12, 16, 20]}
    fixed = BASE["fixed"] | {"task": task, "model": {"kind": "encoder", "layers": 3, "width": 8, "heads": 2}}
    fixed["training"] = {"steps": 100, "batch_size": 4}
    made = study(fixed=fixed, scientific=scientific)
    every = study_room(made)
    monkeypatch.setattr("loopscale.foresight.room.MANY_TASKS", 10)
    few = study_room(made)
    assert len(every.tasks) == every.of == few.of == 35
    assert len(few.tasks) < 25
    assert few.tight == every.tight > 0
    assert list(room_remarks(made, few)) == list(room_remarks(made, every))


def test_an_axis_that_may_not_move_the_answer_needs_the_rooms_of_all_tasks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("loopscale.foresight.room.MANY_TASKS", 4)
    made = study(scientific={"task.noise": [0.5, 0.505, 0.51, 0.515, 0.52]})
    rooms = study_room(made)
    assert len(rooms.tasks) == rooms.of == 5
    assert rooms.tasks[0].room.prompts > 32


def test_no_room_is_computed_for_prompts_on_which_algorithms_take_minutes():
    for task, model in (
        ({"kind": "linear_regression", "dim": 2, "points": 3000}, {"kind": "gpt2", "layers": 1}),
        ({"kind": "network_regression", "dim": 2, "points": 500}, {"kind": "gpt2", "layers": 4}),
    ):
        fixed = {"task": task, "model": {"width": 4, "heads": 1} | model, "training": {"steps": 2}}
        rooms = study_room(study(fixed=fixed))
        assert (rooms.tasks, rooms.of, rooms.too_long) == ((), 1, 1)
        assert "the room of the task is not known" in remarks(study(fixed=fixed))
    both = study(scientific={"task.points": [8, 3000]})
    assert [each.label for each in study_room(both).tasks] == ["points=8"]
