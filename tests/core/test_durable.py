"""A file is on the disk before its rename, and the rename before the answer."""

import os
import stat
from pathlib import Path

import pytest

from loopscale.core.files import write_whole
from loopscale.records.mirror import _save_json, _write_parquet
from loopscale.records.tables import parquet_bytes
from loopscale.training.checkpoint_stores import Folder


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The order of the real calls of fsync and rename."""
    seen: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(handle: int) -> None:
        fsync(handle)
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")

    def rename(source: Path, target: Path) -> None:
        replace(source, target)
        seen.append("rename")

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return seen


def test_every_written_file_is_flushed_before_and_after_its_rename(tmp_path: Path, calls: list[str]):
    import pyarrow as pa

    table = pa.table({"x": [1]})
    writers = [
        lambda: write_whole(tmp_path / "a", b"content"),
        lambda: Folder(tmp_path).put("b", b"content"),
        lambda: _save_json(tmp_path / "c.json", {}),
        lambda: _write_parquet(table, tmp_path / "d.parquet"),
    ]
    for write in writers:
        calls.clear()
        write()
        assert calls == ["file", "rename", "folder"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"content"
    assert not [*tmp_path.glob("*.part"), *tmp_path.glob(".*.part")]
    assert parquet_bytes(table)
