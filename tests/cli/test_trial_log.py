"""`loopscale logs STUDY --trial KEY`: the validations and the output of one trial, from records alone."""

import os
from pathlib import Path

import pytest

from loopscale.cli.errors import known_error
from loopscale.cli.trial_log import TrialLog
from loopscale.records.removal import delete_study
from loopscale.records.stores.opening import open_store
from loopscale.studies.spec import Study
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.output import OUTPUT_SUFFIX
from tests.cli.conftest import TINY, record


def recorded(folder: Path, outcome: str = "finished", detail: str = "") -> tuple[Path, str]:
    """A store with one trial, and the key of the trial."""
    (folder / "tiny.yaml").write_text(TINY)
    study = Study.load(folder / "tiny.yaml")
    with record(folder / "records", study) as made:
        made.parent("KILLED")
        point = {"training.lr": 2e-3}
        trial = made.trial(study.cells()[0], "tuning", 0, 0, point, 0.5, outcome, detail)
    return folder / "records", trial.key


def printed(root: Path, key: str, text: str) -> None:
    store = open_checkpoint_store(root / "checkpoints")
    store.make()
    store.put(key + OUTPUT_SUFFIX, text.encode())


def test_the_log_has_the_validations_the_output_and_the_end(loopscale, elsewhere: Path):
    root, key = recorded(elsewhere)
    printed(root, key, "== process 7 on far ==\nhello\x1b[2J\n")
    heading, step, process, hello, end = loopscale(
        "logs", "tiny", "--trial", key[:8], "--store", root
    ).out.splitlines()
    assert heading.startswith(f"trial {key} of tiny: tuning 0, cell ")
    assert step == "step 4: error 0.5 after 1 s"
    assert process == "== process 7 on far =="
    assert "\x1b" not in hello, "the output of a trial cannot command the terminal"
    assert hello.startswith("hello")
    assert end == "finished"


def test_a_failed_trial_says_why_and_that_it_printed_nothing(loopscale, elsewhere: Path):
    root, key = recorded(elsewhere, "failed", "Traceback\nValueError: odd")
    _, nothing, *end = loopscale("logs", "tiny", "--trial", key, "--store", root).out.splitlines()
    assert nothing == "it has printed nothing"
    assert "\n".join(end) == "failed: Traceback\nValueError: odd"


def test_a_trial_that_is_over_is_not_followed_also_with_its_key_as_csv_writes_it(loopscale, elsewhere: Path):
    root, key = recorded(elsewhere)
    for written in (key, f'"{key}"'):
        assert loopscale("logs", "-f", "tiny", "--trial", written, "--store", root).code == 0


def test_an_unknown_trial_and_an_unknown_study_are_one_line(loopscale, elsewhere: Path):
    root, _ = recorded(elsewhere)
    for study, key, reason in (
        ("tiny", "zzz", "no trials of tiny have"),
        ("absent", "a", "no records of absent"),
    ):
        refused = loopscale("logs", study, "--trial", key, "--store", root)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert reason in refused.err


def test_the_output_of_a_deleted_study_is_deleted(loopscale, elsewhere: Path):
    root, key = recorded(elsewhere)
    printed(root, key, "secret\n")
    assert loopscale("delete", "tiny", "--yes", "--store", root).code == 0
    assert not list((root / "checkpoints").glob(f"{key}*"))


@pytest.mark.parametrize("damage", ["study deleted", "database removed", "folder for the database"])
def test_records_that_vanish_while_a_trial_is_followed_are_one_line(elsewhere: Path, damage: str):
    root, key = recorded(elsewhere)
    store = open_store(str(root))
    log = TrialLog(store, store.require_experiment("tiny"), key)
    log.show_news()
    if damage == "study deleted":
        delete_study(open_store(str(root)), "tiny")
    else:
        (root / "mlflow.db").unlink()
    if damage == "folder for the database":
        (root / "mlflow.db").mkdir()
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the test is of the class
        log.show_news()
    known = known_error(caught.value)
    assert known
    line, code = known
    assert (code, line.count("\n")) == (2, 0)


@pytest.mark.timeout(30)
def test_output_that_is_no_regular_file_is_one_note(loopscale, elsewhere: Path):
    root, key = recorded(elsewhere)
    (root / "checkpoints").mkdir()
    os.mkfifo(root / "checkpoints" / f"{key}.log")
    done = loopscale("logs", "tiny", "--trial", key, "--store", root)
    assert done.code == 0
    assert "it is a folder, a pipe or a device" in done.err


def test_a_slurm_cluster_without_a_store_names_the_records_in_its_folder(loopscale, elsewhere: Path):
    _, key = recorded(elsewhere)
    file = elsewhere / "site.yaml"
    file.write_text(f"kind: slurm\nfolder: {elsewhere}\n")
    for words in (["logs", "tiny", "--trial", key], ["stop", "tiny", "--trial", key]):
        answer = loopscale(*words, "--cluster", file)
        assert answer.out.splitlines()[-1].startswith(("finished", f"{key} does not run: it has finished"))
    assert "did you mean tiny" in loopscale("watch", "tinny", "--cluster", file).err
