from typing import Any

import pytest
from pydantic import ValidationError

from loopscale.core.config import leaves
from loopscale.models.base import Model
from loopscale.optimizers.muon import Muon
from loopscale.optimizers.sgd import Sgd
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
        {"optimizer": "muon"},
        {"optimizer": {"beta2": 0.95}},
        {"init_std": 0.1},
        {"init": "scaled"},
    ],
    ids=str,
)
def test_every_setting_that_changes_the_outcome_changes_the_key(make, settings: dict[str, Any]):
    assert make(**settings).key != make().key


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam"},
        {"optimizer": {}},
        {"optimizer": {"kind": "adam", "beta1": 0.9}},
        {"init": "normal", "init_std": 0.02, "init_gain": 0.55},
    ],
    ids=str,
)
def test_written_defaults_change_neither_the_key_nor_the_recorded_settings(make, settings: dict[str, Any]):
    assert make(**settings) == make()
    assert make(**settings).key == make().key
    assert make(**settings).settings == make().settings
    assert "optimizer" not in make().settings["training"]
    assert not {"init", "init_std", "init_gain"} & make().settings["model"].keys()


def test_an_optimizer_is_recorded_with_all_its_settings(make):
    recorded = dict(leaves(make(optimizer="muon").settings))
    found = {path: value for path, value in recorded.items() if path.startswith("training.optimizer.")}
    assert found["training.optimizer.kind"] == "muon"
    assert found["training.optimizer.momentum"] == 0.95
    assert found.keys() == {f"training.optimizer.{name}" for name in ("kind", *Muon.model_fields)}
    assert make(optimizer="muon").key != make(optimizer={"kind": "muon", "momentum": 0.9}).key


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"optimizer": "muom"}, "no optimizer 'muom'; there is adam, adamw, muon, sgd"),
        ({"optimizer": {"kind": "sgd", "nesterov": True}}, "nesterov needs a momentum; write momentum: 0.9"),
    ],
)
def test_a_wrong_optimizer_is_refused_in_one_line(make, settings: dict[str, Any], line: str):
    with pytest.raises(ValidationError) as caught:
        make(**settings)
    (error,) = caught.value.errors()
    assert line in error["msg"]
    assert len(error["msg"].splitlines()) == 1


def test_an_optimizer_that_reads_its_rate_on_the_host_is_refused_for_a_graph(
    make, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Sgd, "capturable", False)
    line = "optimizer sgd reads its rate on the host, so a step is no CUDA graph; write graph: off"
    with pytest.raises(ValidationError, match=line):
        make(optimizer="sgd", graph="auto")


def test_another_curriculum_changes_the_key(make):
    first = Curriculum(dim=1, points=2, every=3).model_dump()
    assert make(curriculum=first).key != make(curriculum=first | {"every": 4}).key


def test_identity_can_leave_out_paths(make):
    assert identity(make(lr=1.0, seed=3), ("training.lr", "seed")) == identity(
        make(), ("training.lr", "seed")
    )
    assert identity(make(), ("training.lr", "model.nothing", "nothing.at.all")) != make().key


def test_a_removed_setting_of_older_records_is_read_at_the_value_that_changed_nothing():
    assert Training.model_validate({"decay": 0.9, "decay_every": 1}) == Training(decay=0.9)
    with pytest.raises(ValidationError, match="decay_every"):
        Training.model_validate({"decay": 0.9, "decay_every": 2})
