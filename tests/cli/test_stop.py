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


def waiting_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a Slurm cluster whose job 7 runs until `scancel`, at which the job's driver ends by itself."""
    job = folder / "jobs/7"
    job.mkdir(parents=True)
    (job / "about.json").write_text('{"study": "tiny", "submitted": 1}')
    (programs := folder / "bin").mkdir()
    (programs / "squeue").write_text(f"""#!/bin/sh
case "$*" in *--array*) echo '7|7|tiny|RUNNING|n1|None' ;; *) [ -e {job}/exit ] || echo '7|RUNNING|None' ;; esac
""")
    (programs / "scancel").write_text(f"#!/bin/sh\necho 0 > {job}/exit\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    (file := folder / "site.yaml").write_text(f"kind: slurm\nfolder: {folder}\n")
    return file


def test_a_study_that_ends_by_itself_while_it_is_told_to_stop_has_not_stopped(
    loopscale, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    file = waiting_job(elsewhere, monkeypatch)
    answer = loopscale("stop", "tiny", "--cluster", file)
    assert answer.out.splitlines() == ["7 has finished the study before it could stop"]


def test_the_status_of_a_study_that_has_not_begun_asks_for_no_other_run(
    loopscale, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
):
    file = waiting_job(elsewhere, monkeypatch)
    said = loopscale("status", "tiny", "--cluster", file).out
    assert f"this machine cannot read its records: no records in {elsewhere}/records yet\n" in said
