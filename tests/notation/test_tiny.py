"""The tiny form of a study: the same cells and questions in short trainings."""

from pathlib import Path
from typing import Any

import pytest

from loopscale.notation.tiny import PROMPTS, REPLICATES
from loopscale.studies.spec import Study

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = sorted(FOLDER.rglob("*.yaml"))
TREE: dict[str, Any] = {
    "question": "Does it fall?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {
            "loops": 2,
            "window": 2,
            "warmup": 100,
            "curriculum": {"dim": 1, "points": 2, "every": 50},
            "checkpoint_every": 500,
        },
    },
    "scientific": {"training.steps": [1000, 4000, 2000]},
    "nuisance": {"training.lr": {"choice": [1e-3, 1e-2]}, "training.batch_size": {"choice": [32, 64]}},
    "search": {"kind": "tpe", "trials": 8, "seeds": 2},
    "scheduler": {"kind": "asha", "first_rung": 200},
    "replicates": 5,
    "until": "decided",
    "budget": {"core_hours": 8},
    "claims": [{"text": "a", "first": {"training.steps": 4000}, "second": {"training.steps": 1000}}],
    "laws": [{"along": "training.steps"}, {"along": "prompts"}],
}


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(
    "path", STUDIES, ids=lambda path: path.relative_to(FOLDER).with_suffix("").as_posix()
)
def test_a_shipped_study_has_a_tiny_form_with_its_cells_and_questions(path: Path):
    study = Study.load(path)
    tiny = study.tiny
    assert tiny.name == study.name
    assert len(tiny.cells()) == len(study.cells())
    assert [claim.text for claim in tiny.claims] == [claim.text for claim in study.claims]
    assert len(tiny.laws) == len(study.laws)
    trials = tiny.layout.trials.values()
    assert max(trial.training.steps for trial in trials) <= 24
    assert {trial.model for trial in trials} == {trial.model for trial in study.layout.trials.values()}
    assert (tiny.replicates, tiny.evaluate.prompts) == (REPLICATES, PROMPTS)


def test_lengths_become_short_and_keep_their_order():
    tiny = Study.parse(TREE).tiny
    assert tiny.scientific["training.steps"] == (4, 12, 8)
    assert dict(tiny.claims[0].first) == {"training.steps": 12}
    assert dict(tiny.claims[0].second) == {"training.steps": 4}
    trainings = [trial.training for trial in tiny.layout.trials.values()]
    assert {training.warmup for training in trainings} == {0}
    assert {training.eval_every for training in trainings} == {2}
    sizes = {corner.training.batch_size for corners in tiny.layout.corners.values() for corner in corners}
    assert sizes == {4, 6}


def test_limits_pruning_looks_and_curricula_are_left_out():
    tiny = Study.parse(TREE).tiny
    assert not tiny.until
    assert not tiny.scheduler.prunes
    assert tiny.budget.core_hours is None
    assert all(trial.training.curriculum is None for trial in tiny.layout.trials.values())
    assert tiny.planned == 3 * (2 + 2)


def test_a_budget_of_training_becomes_steps():
    fixed = TREE["fixed"] | {"training": {"loops": 2, "window": 2}}
    cells = {"training.flops": [1e9, 4e9]}
    sides = {"first": {"training.flops": 4e9}, "second": {"training.flops": 1e9}}
    study = Study.parse(
        {
            **TREE,
            "fixed": fixed,
            "scientific": cells,
            "nuisance": {},
            "search": {"kind": "tpe"},
            "scheduler": {"kind": "none"},
            "claims": [{"text": "a", **sides}],
            "laws": [{"along": "training.flops"}],
        }
    )
    tiny = study.tiny
    assert [trial.training.steps for trial in tiny.layout.trials.values()] == [4, 8]
    assert tiny.laws[0].along == "training.steps"
    assert tiny.claims[0].sides[0].settings == {"training.steps": 8}
    assert not tiny.has_budgets


def test_the_file_of_a_study_may_name_plugins_beside_it(tmp_path: Path):
    (tmp_path / "own.py").write_text(
        "from loopscale.tasks.linear_regression import LinearRegression\n\n\n"
        'class Own(LinearRegression, kind="own_for_tiny"):\n    pass\n'
    )
    file = tmp_path / "mine.yaml"
    file.write_text(
        "question: a?\nplugins: [./own.py]\nfixed:\n  task: {kind: own_for_tiny, dim: 2, points: 4}\n"
        "  model: {kind: looped, width: 8, heads: 2}\nscientific: {training.loops: [10, 11]}\n"
    )
    assert [trial.task.kind for trial in Study.load(file).tiny.layout.trials.values()] == ["own_for_tiny"] * 2


def test_a_study_names_the_words_of_its_command(tmp_path: Path):
    assert Study.parse(TREE, "mine").words == ("mine",)
    assert Study.load("quickstart").words == ("quickstart",)
    changed = Study.load("quickstart", {"replicates": "2", "training.steps": "600"}).tiny
    assert changed.words == ("quickstart", "--set=replicates=2", "--set=training.steps=600", "--tiny")
    file = tmp_path / "own.yaml"
    file.write_text((FOLDER / "quickstart.yaml").read_text())
    assert Study.load(file).words == (str(file),)
