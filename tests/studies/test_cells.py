"""Cells are crossed, filtered, merged with the fixed settings, and named."""

import json
from typing import Any

import pytest

from loopscale.notation.mistakes import Mistakes
from loopscale.optimizers.adam import Adam
from loopscale.optimizers.muon import Muon
from loopscale.studies.spec import Study
from tests.tuned_settings import without_tuned

BASE: dict[str, Any] = {
    "question": "Does it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 3, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 90, "loops": 4, "window": 2},
    },
}
LR = {"training.lr": {"real": [1e-4, 1e-2], "scale": "log"}}
MODELS = [{"kind": "gpt2", "layers": 5}, {"kind": "looped"}, {"kind": "algoformer", "pre_layers": 2}]


def study(**changes: Any) -> Study:
    return Study.parse(without_tuned(BASE | changes))


def labels(made: Study) -> list[str]:
    return [cell.label for cell in made.cells()]


def test_without_axes_there_is_one_cell():
    [cell] = study().cells()
    assert (cell.label, cell.values) == ("looped", {})
    assert study().at(cell, {}, 3).seed == 3


def test_cells_are_crossed_and_filtered():
    axes = {"model.width": [8, 16], "training.loops": [1, 2, 4]}
    made = study(
        scientific=axes, where="training.window <= training.loops and model.width * training.loops < 64"
    )
    assert labels(made) == ["width=8, loops=2", "width=8, loops=4", "width=16, loops=2"]


def test_values_that_agree_in_six_digits_have_different_labels():
    made = study(scientific={"task.noise": [0.12345671, 0.12345679, 0.5]})
    assert labels(made) == ["noise=0.12345671", "noise=0.12345679", "noise=0.5"]


def test_a_whole_component_takes_missing_settings_from_fixed_if_its_kind_has_them():
    fixed = BASE["fixed"] | {"model": {"width": 16, "heads": 2, "pre_layers": 3, "kind": "algoformer"}}
    made = study(fixed=fixed, scientific={"model": MODELS})
    models = [made.at(cell, {}, 0).model for cell in made.cells()]
    assert [model.kind for model in models] == ["gpt2", "looped", "algoformer"]
    assert {model.model_dump()["width"] for model in models} == {16}
    assert models[2].model_dump()["pre_layers"] == 2


def test_a_dotted_path_overrides_a_whole_component():
    made = study(scientific={"model.width": [8, 32], "model": [{"kind": "looped", "width": 16}]})
    assert [made.at(cell, {}, 0).model.model_dump()["width"] for cell in made.cells()] == [8, 32]


@pytest.mark.parametrize("axis", ["training.optimizer", "training.optimizer.kind"])
def test_optimizers_may_be_an_axis_and_a_range_tunes_those_that_have_the_setting(axis: str):
    ranges = LR | {"training.optimizer.momentum": {"real": [0.8, 0.95]}}
    made = study(scientific={axis: ["adam", "muon", "sgd"]}, nuisance=ranges)
    assert labels(made) == ["adam", "muon", "sgd"]
    assert [cell.values for cell in made.cells()] == [
        {"training.optimizer.kind": kind} for kind in ("adam", "muon", "sgd")
    ]
    assert [len(made.space(cell)) for cell in made.cells()] == [1, 2, 2]
    point = {"training.optimizer.momentum": 0.9}
    assert made.at(made.cells()[1], point, 0).training.optimizer == Muon(momentum=0.9)
    assert made.at(made.cells()[0], {}, 0).training.optimizer == Adam()


def test_an_optimizer_written_as_its_kind_alone_has_settings():
    fixed = BASE["fixed"] | {"training": BASE["fixed"]["training"] | {"optimizer": "muon"}}
    made = study(fixed=fixed, scientific={"training.optimizer.momentum": [0.9, 0.95]})
    trials = [made.at(cell, {}, 0).training.optimizer for cell in made.cells()]
    assert trials == [Muon(momentum=0.9), Muon()]
    settings = [{"kind": "muon", "smallest_side": 8}, "adam"]
    made = study(fixed=fixed, scientific={"training.optimizer": settings})
    trials = [made.at(cell, {}, 0).training.optimizer for cell in made.cells()]
    assert trials == [Muon(smallest_side=8), Adam()]


def test_a_condition_may_name_the_optimizer_of_cells_that_do_not_write_it():
    axes = {"training.optimizer.kind": ["adam", "muon"], "training.loops": [2, 4]}
    where = "training.optimizer.kind == 'muon' or training.loops == 4"
    assert len(study(scientific=axes, where=where).cells()) == 3
    assert len(study(where="training.optimizer.kind == 'adam'").cells()) == 1


def test_the_default_is_a_value_of_an_axis_and_an_end_of_a_range():
    ranges = {"training.optimizer.beta2": {"real": [0.999, 0.9999]}}
    made = study(scientific={"model.init_std": [0.02, 0.1]}, nuisance=ranges)
    assert [cell.values for cell in made.cells()] == [{"model.init_std": std} for std in (0.02, 0.1)]
    assert [list(made.space(cell)) for cell in made.cells()] == [list(ranges)] * 2


def test_an_unknown_optimizer_is_named_at_its_place():
    with pytest.raises(Mistakes) as caught:
        study(scientific={"training.optimizer": ["adam", "muom"]})
    (line,) = str(caught.value).splitlines()
    assert "no optimizer 'muom'; there is adam, adamw, muon, sgd" in line


def test_kinds_may_be_an_axis():
    assert labels(study(scientific={"model.kind": ["gpt2", "looped"]})) == ["gpt2", "looped"]


def test_settings_that_a_net_of_fixed_depth_lacks_give_one_cell():
    made = study(scientific={"model": MODELS, "training.loops": [2, 4]}, nuisance=LR)
    assert labels(made) == [
        "gpt2",
        "looped, loops=2",
        "looped, loops=4",
        "algoformer, loops=2",
        "algoformer, loops=4",
    ]
    assert "training.loops" not in made.cells()[0].values


def test_equal_cells_are_a_mistake():
    with pytest.raises(Mistakes, match="equal cells"):
        study(scientific={"model": [{"kind": "looped"}, {"kind": "looped", "layers": 1}]})


def test_the_key_of_a_cell_ignores_tuned_settings_and_the_order_of_writing():
    plain, tuned = (
        study(scientific={"training.loops": [2, 4]}),
        study(scientific={"training.loops": [4, 2]}, nuisance=LR),
    )
    assert {cell.key for cell in plain.cells()} == {cell.key for cell in tuned.cells()}
    wider = study(
        scientific={"training.loops": [2, 4, 8]}, nuisance={"training.lr": {"choice": [1e-3, 1e-1]}}
    )
    assert [cell.key for cell in wider.cells()][:2] == [cell.key for cell in plain.cells()]


def test_a_range_is_tuned_in_the_cells_whose_kind_has_the_setting():
    nuisance = LR | {"model.pre_layers": {"integer": [1, 3]}, "training.window": {"integer": [1, 4]}}
    models = [{"kind": "gpt2"}, {"kind": "looped"}, {"kind": "algoformer"}]
    made = study(scientific={"model": models}, nuisance=nuisance)
    assert [sorted(made.space(cell)) for cell in made.cells()] == [
        ["training.lr"],
        ["training.lr", "training.window"],
        ["model.pre_layers", "training.lr", "training.window"],
    ]


def test_a_point_becomes_a_trial_with_its_seed():
    made = study(scientific={"training.loops": [2, 4]}, nuisance=LR)
    trial = made.at(made.cells()[1], {"training.lr": 3e-3}, 2)
    assert (trial.training.loops, trial.training.lr, trial.seed) == (4, 3e-3, 2)


def test_a_point_with_an_unknown_setting_is_refused():
    made = study(nuisance=LR)
    with pytest.raises(ValueError, match="momentum"):
        made.at(made.cells()[0], {"training.momentum": 1}, 0)


def test_the_upper_ends_of_two_ranges_are_validated_together():
    nuisance = {"training.loops": {"integer": [4, 8]}, "training.window": {"integer": [1, 6]}}
    with pytest.raises(Mistakes, match="window 6 is more than the 4 loops"):
        study(nuisance=nuisance)


@pytest.mark.parametrize(
    ("nuisance", "search", "points"),
    [
        ({}, {}, 0),
        (LR, {"trials": 5}, 5),
        ({"training.lr": {"choice": [1e-3, 1e-2]}}, {"trials": 5}, 2),
        (
            {"training.lr": {"choice": [1e-3, 1e-2]}, "training.window": {"integer": [1, 4], "points": 3}},
            {"kind": "grid"},
            6,
        ),
    ],
)
def test_a_search_has_at_most_the_points_of_its_space(nuisance: Any, search: Any, points: int):
    made = study(nuisance=nuisance, search=search, replicates=3)
    assert made.points(made.cells()[0]) == points
    assert made.planned == points + 3


def test_a_baseline_belongs_to_the_cells_whose_task_it_solves():
    made = study(baselines=["newton", {"kind": "gradient_descent", "rate": 0.1}])
    assert [solver.kind for solver in made.baselines_for(made.cells()[0])] == ["newton", "gradient_descent"]


def test_a_single_form_and_a_theory_by_name_are_completed():
    made = study(laws=[{"along": "loop", "form": "exponential", "theory": "newton_residual"}])
    assert made.laws[0].form == ("exponential",)
    assert made.laws[0].theory == {"kind": "newton_residual"}


def test_labels_of_components_show_the_settings_that_differ():
    made = study(
        scientific={
            "training": [{"loops": 8, "window": 6}, {"loops": 4, "window": 4}],
            "task.noise": [0, 0.1],
        }
    )
    assert labels(made)[0] == "loops=8, window=6, noise=0"
    curricula = study(scientific={"training.curriculum": [None, {"dim": 1, "points": 2, "every": 10}]})
    assert len(set(labels(curricula))) == 2


def test_the_document_is_plain_data():
    made = study(scientific={"training.loops": [2, 4]}, nuisance=LR, laws=[{"along": "training.loops"}])
    document = json.loads(json.dumps(made.document()))
    assert document["cells"][0] == {
        "key": made.cells()[0].key,
        "label": "loops=2",
        "values": {"training.loops": 2},
    }
    assert document["planned"] == 18
    assert document["laws"][0]["along"] == "training.loops"
