"""Records of a study whose plugin is gone, broken or changed: every reading verb answers from recorded numbers."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loopscale as package
from loopscale.core import plugins
from loopscale.studies.spec import Study
from tests.core.test_plugins import MODEL, TASK

STUDY = """\
question: Does a plugin matter to a reader?
plugins: [./my_model.py, ./my_tasks.py]
fixed:
  task: {kind: outside_regression, dim: 2, points: 4}
  model: {kind: outside_lstm, width: 8}
  training: {steps: 4, batch_size: 4, eval_every: 2}
scientific: {training.loops: [1, 2]}
nuisance: {training.lr: {real: [1.0e-3, 1.0e-2], scale: log}}
search: {kind: random, trials: 2}
replicates: 3
evaluate: {prompts: 16}
baselines: [least_squares]
claims:
  - {text: More is better., first: {training.loops: 2}, second: {training.loops: 1}}
"""


@pytest.fixture
def study(elsewhere: Path, recording: Callable[..., Any]) -> Path:
    """A recorded study with two plugins; the process has forgotten the plugins."""
    (elsewhere / "my_model.py").write_text(MODEL)
    (elsewhere / "my_tasks.py").write_text(TASK)
    file = elsewhere / "mine.yaml"
    file.write_text(STUDY.replace("training.loops", "model.gates"))
    with recording(elsewhere / "records", Study.load(file)) as written:
        written.parent()
        for cell in written.study.cells():
            for seed in (1, 2, 3):
                error = 0.3 + 0.1 * cell.values["model.gates"] + 0.01 * seed
                written.trial(cell, "replicate", seed, seed, {"training.lr": 5e-3}, error)
    forget()
    return file


def forget() -> None:
    for plugin in list(plugins.loaded.values()):
        plugins._unload(plugin)


def gone(study: Path) -> None:
    (study.parent / "my_model.py").unlink()


def broken(study: Path) -> None:
    (study.parent / "my_model.py").write_text(MODEL + "1 / 0\n")


def changed(study: Path) -> None:
    (study.parent / "my_model.py").write_text(MODEL.replace("gates: int = 3", "gates: int = 4"))


def recorded_numbers(answer: dict[str, Any]) -> list[Any]:
    """Errors and verdicts. The regret is left out, because these records hold no floor."""
    cells = [(cell["cell"], cell["error"]) for cell in answer.get("cells", ())]
    return [*cells, *((claim["claim"], claim["verdict"]) for claim in answer["claims"])]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (gone, "my_model.py with the hash "),
        (broken, "ZeroDivisionError"),
        (changed, "the plugin has changed, and its hash is "),
    ],
)
def test_reading_verbs_answer_with_one_notice(
    study: Path, loopscale: Callable[..., Any], change: Callable[[Path], None], says: str
):
    before = {}
    for verb in ("best", "report"):
        answer = loopscale(verb, study, "--store", "records", "--json")
        assert (answer.code, answer.err) == (0, ""), answer.err
        before[verb] = recorded_numbers(answer.json)
    forget()
    change(study)
    shutil.rmtree(study.parent / "records" / "mirror", ignore_errors=True)
    for verb in ("best", "report"):
        answer = loopscale(verb, study, "--store", "records", "--json")
        assert answer.code == 0
        (notice,) = answer.err.splitlines()
        assert notice.startswith(
            "note: only recorded numbers are shown: a part of mine belongs to the plugin "
        )
        assert says in notice
        assert recorded_numbers(answer.json) == before[verb]
        forget()
    counted = loopscale("query", "SELECT count(*) AS n FROM trials", "--store", "records", "--json")
    assert (counted.json, counted.err) == ([{"n": 6}], "")
    listed = loopscale("list", "--store", "records", "--json")
    assert (listed.code, listed.err) == (0, "")
    assert len(package.results(study, "records").best()) == 2


def said_by_plan(loopscale: Callable[..., Any], study: Path) -> list[str]:
    answer = loopscale("plan", study, "--rate", "1e9", "--workers", "1", "--store", "records", "--json")
    assert answer.code == 0, answer.err
    return [warning for warning in answer.json["warnings"] if "since the last run" in warning]


@pytest.mark.slow
def test_a_plan_says_how_many_trials_a_changed_plugin_trains_again(
    study: Path, loopscale: Callable[..., Any]
):
    (study.parent / "my_model.py").write_text(MODEL + "# a comment\n")
    assert said_by_plan(loopscale, study) == []
    changed(study)
    trials = 2 * (2 + 3)
    assert said_by_plan(loopscale, study) == [
        f"my_model.py has changed since the last run: {trials} trials train again"
    ]
