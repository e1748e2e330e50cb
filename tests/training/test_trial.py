from typing import Any

import pytest

from loopscale.models.base import Model
from loopscale.training.trial import Curriculum, Training, Trial, identity


def test_explicit_defaults_are_the_same_trial(make):
    trial = make()
    assert Trial.model_validate(trial.model_dump()) == trial
    spelt = {name: getattr(trial.training, name) for name in Training.model_fields}
    short = {"task": {"kind": "linear_regression"}, "model": {"kind": "looped"}}
    assert (
        Trial.model_validate(short).key
        == Trial.model_validate(short | {"training": Training(), "seed": 0}).key
    )
    assert trial.model_copy(update={"training": Training(**spelt)}).key == trial.key


@pytest.mark.parametrize("kind", Model.choices())
def test_a_trial_survives_json(make, kind: str):
    trial = make(kind, curriculum={"dim": 1, "points": 2, "every": 3}, clip=0.5)
    again = Trial.model_validate_json(trial.model_dump_json())
    assert again == trial
    assert again.key == trial.key


@pytest.mark.parametrize("settings", [{"eval_every": 1}, {"checkpoint_every": 8}], ids=str)
def test_when_one_looks_is_no_part_of_the_trial(make, settings: dict[str, Any]):
    assert make(**settings).key == make().key


@pytest.mark.parametrize("settings", [{"loops": 9}, {"window": 1}, {"truncate": False}], ids=str)
def test_loops_are_part_of_looped_trials_alone(make, settings: dict[str, Any]):
    assert make("gpt2", **settings).key == make("gpt2").key
    assert make("looped", **settings).key != make("looped").key


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 1e-2},
        {"steps": 13},
        {"batch_size": 9},
        {"seed": 1},
        {"width": 16},
        {"schedule": "cosine"},
        {"warmup": 1},
        {"clip": 1.0},
        {"precision": "float64"},
        {"task": {"noise": 0.1}},
        {"task": {"dim": 3}},
        {"curriculum": {"dim": 1, "points": 2, "every": 3}},
    ],
    ids=str,
)
def test_a_setting_that_matters_changes_the_key(make, settings: dict[str, Any]):
    assert make(**settings).key != make().key


def test_a_curriculum_that_differs_is_another_trial(make):
    first = Curriculum(dim=1, points=2, every=3).model_dump()
    assert make(curriculum=first).key != make(curriculum=first | {"every": 4}).key


def test_paths_may_be_left_out_of_the_identity(make):
    assert identity(make(lr=1.0, seed=3), ("training.lr", "seed")) == identity(
        make(), ("training.lr", "seed")
    )
    assert identity(make(), ("training.lr", "model.nothing", "nothing.at.all")) != make().key
