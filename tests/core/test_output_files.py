"""Files that a person names are written whole, and nothing but a regular file is ever replaced."""

import os
import select
import socket
import stat
import threading
from pathlib import Path

import pytest

from loopscale.core.output_files import check_page, write_output
from tests.disks import small_disk


def test_a_regular_file_is_replaced_and_keeps_its_mode(tmp_path: Path):
    file = tmp_path / "page.html"
    file.write_text("old")
    file.chmod(0o640)
    write_output(file, b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o640)
    assert os.listdir(tmp_path) == ["page.html"]


def test_a_new_file_has_the_mode_of_every_new_file(tmp_path: Path):
    (tmp_path / "usual").write_text("")
    write_output(tmp_path / "page.html", b"new")
    assert (tmp_path / "page.html").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_followed_also_to_a_file_that_does_not_exist_yet(tmp_path: Path, exists: bool):
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_text("old")
    link.symlink_to("target")
    write_output(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert sorted(os.listdir(tmp_path)) == ["link", "target"]


def test_a_pipe_with_a_reader_receives_the_content_and_stays_a_pipe(tmp_path: Path):
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reading, True)

    def drain() -> None:
        with os.fdopen(reading, "rb") as file:
            read.append(file.read())

    reader = threading.Thread(target=drain)
    content = b"x" * 300_000  # more than a pipe holds
    writer = threading.Thread(target=write_output, args=(pipe, content))
    writer.start()
    select.select([reading], [], [])  # a reader that comes before the first byte sees the end of the pipe
    reader.start()
    writer.join()
    reader.join()
    assert read == [content]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_without_a_reader_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no program reads the pipe"):
        write_output(tmp_path / "pipe", b"new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Device files of the test: nodes of the null and the full device, which only root can make."""
    if os.getuid() != 0:
        pytest.skip("only root makes device files")
    os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(tmp_path / "full", 0o666 | stat.S_IFCHR, os.makedev(1, 7))
    os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 250))
    return tmp_path


def test_a_device_is_written_to_and_stays_a_device(devices: Path):
    (devices / "link").symlink_to("null")
    write_output(devices / "null", b"new")
    write_output(devices / "link", b"new")
    with pytest.raises(OSError, match="No space left"):
        write_output(devices / "full", b"new")
    assert all(stat.S_ISCHR((devices / name).lstat().st_mode) for name in ("null", "full"))
    assert (devices / "link").is_symlink()


def test_a_disk_is_never_written_to(devices: Path):
    with pytest.raises(OSError, match="it is a disk"):
        write_output(devices / "disk", b"new")
    assert stat.S_ISBLK((devices / "disk").stat().st_mode)


def test_a_folder_a_socket_and_a_circle_of_links_are_refused(tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        (tmp_path / "circle").symlink_to("circle")
        (tmp_path / "folder").mkdir()
        for name in ("socket", "circle", "folder", "absent/page.html"):
            with pytest.raises(OSError, match=r"\w"):
                write_output(tmp_path / name, b"new")
    assert sorted(os.listdir(tmp_path)) == ["circle", "folder", "socket"]


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path):
    with small_disk(tmp_path / "disk", "64k") as disk:
        (disk / "page.html").write_text("old")
        with pytest.raises(OSError, match="No space left"):
            write_output(disk / "page.html", b"x" * 200_000)
        assert (disk / "page.html").read_text() == "old"
        assert os.listdir(disk) == ["page.html"]


PAGES = [b"", b"<!doctype html>\n<html>", b"<!DOCTYPE HTML PUBLIC>", b"\xef\xbb\xbf\n <html lang='en'>"]
OTHERS = [b"question: why?\n", b"<svg>", b"SQLite format 3\x00", b"<?xml version='1.0'?>", b"\n", b"x<html>"]


@pytest.mark.parametrize("content", PAGES)
def test_an_empty_file_and_a_page_may_be_replaced_by_a_page(tmp_path: Path, content: bytes):
    (tmp_path / "page.html").write_bytes(content)
    (tmp_path / "link").symlink_to("page.html")
    for name in ("page.html", "link", "absent"):
        check_page(tmp_path / name)


@pytest.mark.parametrize("content", OTHERS)
def test_another_file_is_not_replaced_by_a_page(tmp_path: Path, content: bytes):
    (tmp_path / "page.html").write_bytes(content)
    (tmp_path / "link").symlink_to("page.html")
    for name in ("page.html", "link"):
        with pytest.raises(OSError, match="it exists and is no HTML page"):
            check_page(tmp_path / name)


def test_a_pipe_and_a_folder_are_no_concern_of_the_check_of_pages(tmp_path: Path):
    """`write_output` knows what to do with both. A pipe that is opened for reading waits for a writer for ever."""
    os.mkfifo(tmp_path / "pipe")
    check_page(tmp_path / "pipe")
    check_page(tmp_path)
