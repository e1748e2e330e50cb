"""The package for a cluster has the same files from a checkout and from an environment without a repository."""

from pathlib import Path

import pytest

import loopscale
from loopscale.cluster import package
from loopscale.runner.machine import git


def test_without_a_repository_no_file_of_the_code_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    folder = Path(loopscale.__file__).parent
    known = {
        f"loopscale/{name}" for name in git(folder, "ls-files").splitlines() if (folder / name).is_file()
    }
    assert known
    monkeypatch.setattr(package, "git", lambda *words: "")
    sent = package.build_package("mine", "question: none\n")
    assert sent.commit == ""
    request = package.Request("mine", "", package=sent.write(tmp_path), digest=sent.digest)
    package.unpack(request, there := tmp_path / "there")
    arrived = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.is_file()}
    assert known <= arrived
    assert not any("__pycache__" in name for name in arrived)
