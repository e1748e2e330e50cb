"""`loopscale stop STUDY --trial KEY` on records that no driver writes now."""

from pathlib import Path

import pytest

from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import stopped_trials
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record


def recorded(folder: Path) -> tuple[Path, str, str]:
    """A store with a finished and an interrupted trial, and the keys of the trials."""
    (folder / "tiny.yaml").write_text(TINY)
    study = Study.load(folder / "tiny.yaml")
    with record(folder / "records", study) as made:
        made.parent("KILLED")
        cell = study.cells()[0]
        ends = [("finished", 2e-3), ("interrupted", 5e-3)]
        keys = [
            made.trial(cell, "tuning", number, 0, {"training.lr": lr}, 0.5, outcome).key
            for number, (outcome, lr) in enumerate(ends)
        ]
    return folder / "records", keys[0], keys[1]


def test_an_unfinished_trial_is_stopped_by_the_beginning_of_its_key(loopscale, elsewhere: Path):
    root, _, key = recorded(elsewhere)
    done = loopscale("stop", "tiny", "--trial", key[:8], "--store", root)
    again = f"`loopscale run tiny --again {key}` does"
    assert done.out == f"{key} ends at its next report, and no run trains it; {again}\n"
    parent = open_store(str(root)).parent_run("tiny")
    assert parent is not None
    assert stopped_trials(parent.tags) == {key}


def test_a_finished_trial_is_not_stopped(loopscale, elsewhere: Path):
    root, key, _ = recorded(elsewhere)
    assert loopscale("stop", "tiny", "--trial", key, "--store", root).out == (
        f"{key} does not run: it has finished\n"
    )
    answer = loopscale("stop", "tiny", "--trial", key, "--store", root, "--json").json
    assert answer == {"study": "tiny", "trial": key, "outcome": "finished", "stopped": False}
    parent = open_store(str(root)).parent_run("tiny")
    assert parent is not None
    assert stopped_trials(parent.tags) == frozenset()


def test_an_unknown_trial_is_one_line(loopscale, elsewhere: Path):
    root, _, _ = recorded(elsewhere)
    refused = loopscale("stop", "tiny", "--trial", "zzz", "--store", root)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "no trials of tiny have a key that begins with 'zzz'" in refused.err


def test_a_study_without_records_is_named(loopscale, elsewhere: Path):
    root, _, _ = recorded(elsewhere)
    refused = loopscale("stop", "absent", "--trial", "abc", "--store", root)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "no records of absent in " in refused.err


def test_a_study_that_ends_by_itself_while_it_is_told_to_stop_has_not_stopped(
    loopscale, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    job = elsewhere / "jobs/7"
    job.mkdir(parents=True)
    (job / "about.json").write_text('{"study": "tiny", "submitted": 1}')
    (programs := elsewhere / "bin").mkdir()
    (programs / "squeue").write_text(f"#!/bin/sh\n[ -e {job}/exit ] || echo '7|RUNNING|None'\n")
    (programs / "scancel").write_text(f"#!/bin/sh\necho 0 > {job}/exit\n")  # the driver ends at this moment
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (file := elsewhere / "site.yaml").write_text(f"kind: slurm\nfolder: {elsewhere}\n")
    answer = loopscale("stop", "tiny", "--cluster", file)
    assert answer.out.splitlines() == ["7 has finished the study before it could stop"]
