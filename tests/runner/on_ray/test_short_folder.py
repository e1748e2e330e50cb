"""The folder of a private Ray: its path leaves room for the names of sockets."""

import shutil
from pathlib import Path

import pytest

from loopscale.runner.on_ray.session import LONGEST_FOLDER, RayFailed, short_folder


def test_a_long_folder_for_temporary_files_is_passed_over(tmp_path: Path):
    (long := tmp_path / ("x" * LONGEST_FOLDER)).mkdir()
    folder = Path(short_folder([str(long), "/absent", "/tmp"]))
    try:
        assert folder.parent == Path("/tmp")
        assert len(str(folder)) <= LONGEST_FOLDER
        assert not list(long.iterdir())
    finally:
        shutil.rmtree(folder)


def test_no_short_folder_is_one_line_that_names_the_remedy(tmp_path: Path):
    (long := tmp_path / ("x" * LONGEST_FOLDER)).mkdir()
    with pytest.raises(RayFailed, match=r"at most 19 characters, and none of .*; set TMPDIR to a short path"):
        short_folder([str(long), "/absent"])
