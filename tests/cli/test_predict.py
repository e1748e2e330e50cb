"""`predict`: the evaluation of a trained net from its checkpoint."""

import shutil
from pathlib import Path

import pytest

from loopscale.evaluate import Evaluation, evaluate
from loopscale.records.model import WEIGHTS, Note
from loopscale.records.stores.opening import open_store
from loopscale.studies.spec import Study
from loopscale.training.checkpoint import Checkpoint, load_net, save, strip
from loopscale.training.loop import train
from loopscale.training.trial import Trial


@pytest.fixture(scope="module")
def trained(tmp_path_factory, store, study_file) -> tuple[Path, list[Trial]]:
    """A store with the records of all trials, and the checkpoint of one trial in each cell."""
    study, root = Study.load(study_file), tmp_path_factory.mktemp("trained") / "records"
    shutil.copytree(store, root)
    trials = [study.at(cell, {"training.lr": 5e-3}, 1) for cell in study.cells()]
    for trial in trials:
        *_, last = train(trial)
        checkpoints = open_store(root).checkpoints
        checkpoints.make()
        save(checkpoints, trial.key, Checkpoint(last.state(), ((last.step, last.metrics),), 1.0))
        strip(checkpoints, trial.key, keep_weights=True)
    return root, trials


def test_predict_evaluates_a_net_like_the_study(loopscale, trained):
    root, (_, trial) = trained
    found = loopscale("predict", trial.key, "--store", root, "--loops", "4", "--prompts", "16", "--json").json
    net = load_net(open_store(root).checkpoints, trial.key, trial)
    curve = evaluate(net, trial.task, Evaluation(loops=4, prompts=16))
    assert [row["error"] for row in found["loops"]] == pytest.approx(curve.error.mean(1).tolist())
    assert [row["loop"] for row in found["loops"]] == [1, 2, 3, 4]
    assert (found["trial"], found["trained_loops"]) == (trial.key, 2)


def test_a_unique_beginning_of_a_key_is_enough(loopscale, trained):
    root, (trial, _) = trained
    answer = loopscale("predict", trial.key[:6], "--store", root, "--loops", "2", "--prompts", "16")
    assert answer.code == 0
    assert f"trial {trial.key}: looped on linear_regression" in answer.out


def test_changed_task_settings_change_the_prompts_and_not_the_net(loopscale, trained):
    root, (trial, _) = trained
    words = ["predict", trial.key, "--store", root, "--prompts", "64", "--loops", "1", "--json"]
    own = loopscale(*words).json
    noisy = loopscale(*words, "--set", "task.noise=1").json
    assert noisy["settings"]["task"]["noise"] == 1
    assert noisy["settings"]["model"] == own["settings"]["model"]
    assert noisy["loops"][0]["raw_error"] > own["loops"][0]["raw_error"]
    (row,) = noisy["loops"]
    assert row["excess"] == pytest.approx(row["raw_error"] - 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "task.noise=-1"], "task.noise is -1"),
        (["--set", "task.nois=1"], "did you mean noise?"),
        (["--set", "task.dim=3"], "leave the dimensions as they are"),
        (["--set", "task.points=9"], "use a shorter prompt"),
        (["--set", "model.width=16"], "only settings of the task can change"),
        (["--set", "task.noise=[1"], "write the value as YAML"),
        (["--loops", "0"], "--loops"),
        (["--prompts", "-3"], "--prompts"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_settings_that_the_net_cannot_read_are_a_mistake(loopscale, trained, words, said):
    root, (trial, _) = trained
    answer = loopscale("predict", trial.key, "--store", root, *words)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_key_may_stand_in_quotes_as_csv_writes_it(loopscale, trained):
    root, (trial, _) = trained
    words = ("--store", root, "--loops", "1", "--prompts", "16", "--json")
    found = loopscale("query", "SELECT trial FROM trials", "--format", "csv", "--store", root).out
    assert f'"{trial.key}"' in found
    assert loopscale("predict", f'"{trial.key}"', *words).json["trial"] == trial.key


def test_an_ambiguous_beginning_of_a_key_is_a_mistake(loopscale, trained):
    root, trials = trained
    answer = loopscale("predict", "", "--store", root)
    assert answer.code == 2
    assert all(trial.key in answer.err for trial in trials)


def test_errors_tell_a_trial_without_weights_from_an_unknown_trial(loopscale, trained):
    root, _ = trained
    rows = loopscale("query", "SELECT trial, role FROM trials", "--store", root, "--json").json
    left = next(r["trial"] for r in rows if r["role"] == "tuning")
    solver = next(r["trial"] for r in rows if r["role"] == "baseline")
    assert "were not kept" in loopscale("predict", left, "--store", root).err
    assert "is a classical algorithm" in loopscale("predict", solver, "--store", root).err
    assert "there is no trial xyz" in loopscale("predict", "xyz", "--store", root).err


def test_a_damaged_checkpoint_is_one_line(loopscale, trained, tmp_path):
    root, (trial, _) = trained
    folder = tmp_path / "storage" / "checkpoints"
    folder.mkdir(parents=True)
    whole = (root / "checkpoints" / f"{trial.key}.safetensors").read_bytes()
    (folder / f"{trial.key}.safetensors").write_bytes(whole[:-9])
    answer = loopscale("predict", trial.key, "--store", root, "--storage", folder.parent)
    assert answer.code == 2
    assert "is damaged" in answer.err
    assert answer.err.count("\n") == 1


def test_without_a_checkpoint_the_weights_come_from_the_records(
    loopscale, elsewhere, recording, study_file, trained
):
    root, (trial, _) = trained
    file = root / "checkpoints" / f"{trial.key}.safetensors"
    with recording(Path("records"), Study.load(study_file)) as made:
        made.whole()
        made.writer.write(Note(trial.key, artifacts=((WEIGHTS, file),)))
    words = ["predict", trial.key[:8], "--loops", "2", "--prompts", "16", "--json"]
    assert loopscale(*words, "--store", "records").json == loopscale(*words, "--store", root).json
