from typing import Any

import pytest

from loopscale.models.base import Model
from loopscale.training.trial import Curriculum, Training, Trial, identity


def test_explicit_defaults_give_the_same_trial(make):
    trial = make()
    assert Trial.model_validate(trial.model_dump()) == trial
    explicit = {name: getattr(trial.training, name) for name in Training.model_fields}
    short = {"task": {"kind": "linear_regression"}, "model": {"kind": "looped"}}
    assert (
        Trial.model_validate(short).key
        == Trial.model_validate(short | {"training": Training(), "seed": 0}).key
    )
    assert trial.model_copy(update={"training": Training(**explicit)}).key == trial.key


@pytest.mark.parametrize("kind", Model.choices())
def test_a_trial_survives_a_round_trip_through_json(make, kind: str):
    trial = make(kind, curriculum={"dim": 1, "points": 2, "every": 3}, clip=0.5)
    again = Trial.model_validate_json(trial.model_dump_json())
    assert again == trial
    assert again.key == trial.key


@pytest.mark.parametrize("settings", [{"eval_every": 1}, {"checkpoint_every": 8}], ids=str)
def test_the_times_of_evaluation_and_checkpoints_do_not_change_the_key(make, settings: dict[str, Any]):
    assert make(**settings).key == make().key


@pytest.mark.parametrize("settings", [{"loops": 9}, {"window": 1}, {"truncate": False}], ids=str)
def test_settings_of_loops_change_the_key_of_looped_trials_only(make, settings: dict[str, Any]):
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
def test_every_setting_that_changes_the_outcome_changes_the_key(make, settings: dict[str, Any]):
    assert make(**settings).key != make().key


def test_another_curriculum_changes_the_key(make):
    first = Curriculum(dim=1, points=2, every=3).model_dump()
    assert make(curriculum=first).key != make(curriculum=first | {"every": 4}).key


def test_identity_can_leave_out_paths(make):
    assert identity(make(lr=1.0, seed=3), ("training.lr", "seed")) == identity(
        make(), ("training.lr", "seed")
    )
    assert identity(make(), ("training.lr", "model.nothing", "nothing.at.all")) != make().key
