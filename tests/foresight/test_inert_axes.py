"""A plan names axes of tasks and models that change nothing."""

from pathlib import Path
from typing import Any

import pytest

from loopscale.foresight import inert_axes
from loopscale.foresight.inert_axes import inert_remarks
from loopscale.foresight.plan import plan_study
from loopscale.studies.spec import Study

FIXED = {
    "task": {"kind": "linear_regression", "dim": 4, "points": 6},
    "model": {"kind": "looped", "width": 8, "heads": 2},
    "training": {"steps": 20, "batch_size": 8, "loops": 2, "window": 2, "eval_every": 10},
}
TUNED = {"training.lr": {"real": [1e-3, 1e-2], "scale": "log"}}
UNREAD = """from torch import nn
from loopscale.models import wrap


class Unread(nn.Module):
    def __init__(self, dim: int = 4, extra: int = 1, layers: int = 1):
        super().__init__()
        self.gru = nn.GRU(dim, dim, layers, batch_first=True)

    def forward(self, states):
        return states + self.gru(states)[0]


wrap(Unread)
"""


def study(scientific: dict[str, Any], nuisance: dict[str, Any] = TUNED, **fixed: Any) -> Study:
    tree = {"question": "?", "fixed": FIXED | fixed, "scientific": scientific, "nuisance": nuisance}
    return Study.parse(
        tree | {"search": {"kind": "random", "trials": 2}, "evaluate": {"prompts": 32}}, "mine"
    )


def remarks(*arguments: Any, **fixed: Any) -> list[str]:
    return list(inert_remarks(study(*arguments, **fixed)))


def test_levels_of_an_isotropic_spectrum_change_nothing():
    axis = {"task.spectrum_levels": [2, 3, 4]}
    assert remarks(axis) == [
        "task.spectrum_levels changes nothing: all its values give the same prompts; take task.spectrum_levels out of "
        "scientific"
    ]
    assert remarks(axis, task=FIXED["task"] | {"condition": 10}) == []


def test_an_axis_that_has_an_effect_in_some_cells_names_the_others():
    (told,) = remarks({"task.spectrum_levels": [2, 3], "task.condition": [1, 10]})
    assert told.startswith("task.spectrum_levels changes nothing in some cells, as in condition=1")


@pytest.mark.parametrize(
    "axis",
    [
        {"task.condition": [1, 10]},
        {"task.noise": [0, 0.5]},
        {"model.width": [8, 16]},
        {"model.injection": ["add", "none"]},
        {"training.loops": [2, 4]},
        {"task": [FIXED["task"], FIXED["task"] | {"dim": 3}]},
    ],
    ids=lambda axis: next(iter(axis)),
)
def test_an_axis_with_an_effect_has_no_remark(axis: dict[str, Any]):
    assert remarks(axis) == []


@pytest.mark.slow
def test_the_spectrum_of_rows_of_a_table_changes_nothing():
    task = {"kind": "pca", "dim": 4, "points": 8, "data": "digits"}
    (told,) = remarks(
        {"task.gap": [0.2, 0.4]},
        TUNED,
        task=task,
        model={"kind": "gpt2", "width": 8, "heads": 2, "layers": 1},
        training={"steps": 20, "batch_size": 8, "eval_every": 10},
    )
    assert told.startswith("task.gap changes nothing: all its values give the same prompts")


def test_a_setting_that_an_outside_model_never_reads_is_named(tmp_path: Path):
    (tmp_path / "unread.py").write_text(UNREAD)
    tree = {
        "question": "?",
        "plugins": [str(tmp_path / "unread.py")],
        "fixed": {
            "task": FIXED["task"],
            "model": {"kind": "unread"},
            "training": {"steps": 20, "batch_size": 8},
        },
        "scientific": {"model.layers": [1, 2]},
        "nuisance": TUNED | {"model.extra": {"choice": [1, 2]}},
    }
    of_file = Study.parse(tree, "mine")
    told = "model.extra changes nothing: all its values give the same nets; take model.extra out of nuisance"
    assert list(inert_remarks(of_file)) == [told]


@pytest.mark.slow
def test_a_plan_has_the_remark():
    (told,) = remarks(axis := {"task.spectrum_levels": [2, 3]})
    assert told in plan_study(study(axis), 1e9, 1).warnings


def test_a_large_net_is_not_built(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inert_axes, "MOST_WEIGHTS_COMPARED", 10)
    inert_axes._net.cache_clear()
    assert remarks({"model.width": [8, 16]}) == []
    inert_axes._net.cache_clear()


def test_loops_of_nets_without_loops_change_nothing():
    decoder = {"kind": "gpt2", "width": 8, "heads": 2, "layers": 2}
    assert remarks({"task.points": [4, 6]}, model=decoder) == [
        "fixed sets training.loops and training.window, and no net of the study has loops; take such settings out"
    ]
    assert remarks({"model": [decoder, FIXED["model"]]}) == []


SHIPPED = sorted(Path("studies").rglob("*.yaml"))


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("path", SHIPPED, ids=str)
def test_every_axis_of_a_shipped_study_has_an_effect(path: Path):
    assert list(inert_remarks(Study.load(path))) == []
