"""Temporary folders: those of dead processes are found, and no others."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from loopscale.core.temporary import Owner, leftovers, make_folder, temporary_folder, this_process

MAKE = "from loopscale.core.temporary import make_folder; print(make_folder('files')); input()"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_folder_is_left_over_once_its_process_is_killed(here: Path):
    command = [sys.executable, "-c", MAKE]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    folder = Path(process.stdout.readline().strip())
    assert folder.parent == here
    assert leftovers() == {}
    process.kill()
    process.communicate()
    assert list(leftovers()) == [folder]


def test_the_folder_of_a_context_is_gone_after_the_context(here: Path):
    with temporary_folder() as folder:
        assert Owner.of_folder(folder.name) == this_process()
    assert list(here.iterdir()) == []


def test_only_what_is_provably_dead_counts_as_dead():
    own = this_process()
    assert own
    assert not own.is_dead
    assert replace(own, start=own.start + 1).is_dead, "a later process has the same number"
    assert replace(own, boot="0" * 12).is_dead, "the machine has started anew"
    assert not replace(own, boot="0" * 12, host="0" * 8).is_dead, "another machine is out of sight"
    assert not replace(own, start=own.start + 1, space="1").is_dead, "another container is out of sight"


def test_links_files_and_folders_of_other_users_stay(here: Path):
    own = this_process()
    assert own
    dead = f"loopscale-files-{replace(own, start=own.start + 1)}"
    (here / f"{dead}-file").touch()
    (here / f"{dead}-link").symlink_to(make_folder("files"))
    if os.geteuid() == 0:  # only root gives a folder to another user
        (here / f"{dead}-other").mkdir()
        os.chown(here / f"{dead}-other", 65534, 65534)
    assert leftovers() == {}
    (here / f"{dead}-mine").mkdir()
    assert list(leftovers()) == [here / f"{dead}-mine"]
