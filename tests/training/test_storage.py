"""The promises of every store of checkpoints, tested on a folder and on a bucket of a real server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscale.training.bucket import Bucket
from loopscale.training.checkpoint_stores import Folder, open_checkpoint_store
from loopscale.training.storage import (
    BadAddress,
    CheckpointStore,
    StorageDenied,
    StorageMissing,
    StorageUnavailable,
)
from tests import buckets
from tests.disks import small_disk

LARGE = 30_000_000
"""Bytes of a file that pyarrow uploads in parts."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[buckets.Bucket]:
    server = buckets.Bucket(tmp_path_factory.mktemp("s3"))
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in buckets.CREDENTIALS.items():
            patch.setenv(name, value)
        yield server
    server.kill()


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStore:
    if request.param == "folder":
        store: CheckpointStore = Folder(tmp_path / "store", 0.0)
    else:
        server = request.getfixturevalue("server")
        store = Bucket(server.at(server.endpoint, f"tests/{tmp_path.name}"), 0.0)
    store.make()
    return store


def version(number: int) -> bytes:
    """Contents in which a test can detect a mixture or a cut."""
    return number.to_bytes(4, "big") * (2_500 + number)


def number_of(content: bytes) -> int:
    return int.from_bytes(content[:4], "big")


def is_whole(content: bytes) -> bool:
    return content == version(number_of(content))


def test_get_returns_the_last_put_content(store: CheckpointStore):
    for content in (b"one", b"", b"three"):
        store.put("a.safetensors", content)
        assert store.get("a.safetensors") == content
        assert open_checkpoint_store(store.url, 0.0).get("a.safetensors") == content


def test_a_missing_file_raises_file_not_found(store: CheckpointStore):
    with pytest.raises(FileNotFoundError):
        store.get("a.safetensors")
    store.delete("a.safetensors")
    store.put("a.safetensors", b"x")
    store.delete("a.safetensors")
    with pytest.raises(FileNotFoundError):
        store.get("a.safetensors")


def test_names_lists_files_without_hidden_files(store: CheckpointStore):
    assert store.names() == []
    for name in ("b.safetensors", "a.safetensors", ".probe"):
        store.put(name, b"x")
    assert store.names() == ["a.safetensors", "b.safetensors"]


def test_check_leaves_no_file_behind(store: CheckpointStore):
    store.check()
    assert store.names() == []
    with pytest.raises(FileNotFoundError):
        store.get(f".probe-{socket.gethostname()}-{os.getpid()}")


def test_readers_always_see_a_whole_file_during_writes(store: CheckpointStore):
    """Versions grow, because a bucket knows by its size that a file was replaced. Checkpoints never return."""
    store.put("a.safetensors", version(0))
    over, torn, read = threading.Event(), [], []

    def reading() -> None:
        reader = open_checkpoint_store(store.url, 60.0)
        while not over.is_set():
            content = reader.get("a.safetensors")
            read.append(number_of(content))
            if not is_whole(content):
                torn.append((number_of(content), len(content)))

    readers = [threading.Thread(target=reading) for _ in range(2)]
    for reader in readers:
        reader.start()
    until, number = time.monotonic() + 60, 0
    while len(set(read)) < 4 and time.monotonic() < until:
        number += 1
        store.put("a.safetensors", version(number))
    over.set()
    for reader in readers:
        reader.join()
    assert torn == []
    assert len(set(read)) >= 4, "the readers did not read during the writes"


WRITER = """
import sys
from loopscale.training.checkpoint_stores import open_checkpoint_store
store, size = open_checkpoint_store(sys.argv[1]), int(sys.argv[2])
number = 0
while True:
    number = number % 250 + 1
    store.put("a.safetensors", bytes([number]) * (size + number))
    print(number, flush=True)
"""


@pytest.mark.parametrize(
    "size", [100_000, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"]
)
@pytest.mark.timeout(120)
def test_a_killed_writer_leaves_the_old_or_the_new_file(store: CheckpointStore, size: int):
    for kill in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, store.url, str(size)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout
        numbers = [int(writer.stdout.readline()) for _ in range(2)]
        time.sleep(0.003 + 0.05 * kill * (size > 10**6))
        writer.send_signal(signal.SIGKILL)
        numbers += [int(line) for line in writer.stdout.read().split()]
        writer.wait()
        writer.stdout.close()
        content = store.get("a.safetensors")
        assert content[0] in (numbers[-1], numbers[-1] + 1)
        assert content == bytes([content[0]]) * (size + content[0])
    store.sweep()
    assert store.names() == ["a.safetensors"]
    if isinstance(store, Folder):
        assert [file.name for file in store.path.iterdir()] == ["a.safetensors"]


def test_sweep_deletes_only_partial_files_of_dead_writers(tmp_path: Path):
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    here = socket.gethostname()
    dead = tmp_path / f"a.safetensors.{here}.{gone}.part"
    alive = tmp_path / f"b.safetensors.{here}.{os.getpid()}.part"
    elsewhere = tmp_path / f"c.safetensors.{here}-2.{gone}.part"
    long_ago = tmp_path / f"d.safetensors.{here}-2.{gone}.part"
    finished = tmp_path / "e.safetensors"
    for file in (dead, alive, elsewhere, long_ago, finished):
        file.write_bytes(b"x")
    os.utime(long_ago, (0, 0))
    assert open_checkpoint_store(tmp_path).sweep() == 2
    assert set(tmp_path.iterdir()) == {alive, elsewhere, finished}


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "256k") as disk:
        yield disk


def test_a_full_disk_raises_storage_unavailable_and_keeps_the_old_file(full: Path):
    store = Folder(full, 0.0)
    store.put("a.safetensors", version(1))
    with pytest.raises(StorageUnavailable, match=r"No space left on device.*; make room"):
        store.put("a.safetensors", b"x" * 300_000)
    assert store.get("a.safetensors") == version(1)
    assert [file.name for file in full.iterdir()] == ["a.safetensors"]


@pytest.mark.slow
def test_a_write_succeeds_if_a_full_disk_gets_room_in_time(full: Path):
    (full / "other").write_bytes(b"x" * 230_000)
    threading.Timer(1.0, (full / "other").unlink).start()
    store = Folder(full, 10.0)
    store.put("a.safetensors", b"x" * 100_000)
    assert len(store.get("a.safetensors")) == 100_000


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds of each pause of this thread from now on."""
    pauses: list[float] = []
    sleep, tester = time.sleep, threading.get_ident()

    def noted(seconds: float) -> None:
        if threading.get_ident() == tester:
            pauses.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noted)
    return pauses


def test_a_read_only_disk_is_not_retried(full: Path, pauses: list[float]):
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    with pytest.raises(StorageDenied, match="Read-only file system"):
        Folder(full, 60.0).put("a.safetensors", b"x")
    assert pauses == []


def test_workers_do_not_create_a_missing_folder(tmp_path: Path):
    for act in (lambda s: s.put("a", b"x"), lambda s: s.get("a")):
        with pytest.raises(StorageMissing, match=r"there is no folder .* mount it"):
            act(Folder(tmp_path / "gone", 60.0))
    assert not (tmp_path / "gone").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageMissing):
        Folder(tmp_path / "file").make()


def test_a_missing_bucket_is_reported_at_once(server: buckets.Bucket):
    store = Bucket(server.url.replace("s3://studies", "s3://nothing-here"), 60.0)
    with pytest.raises(StorageMissing, match="there is no bucket nothing-here"):
        store.check()


@pytest.mark.slow
def test_a_write_waits_for_a_server_that_is_away_for_a_while(
    tmp_path: Path, server: buckets.Bucket, pauses: list[float]
):
    late = buckets.Bucket(tmp_path)
    threading.Timer(1.5, late.start).start()
    store = Bucket(late.url, 300.0)
    try:
        store.put("a.safetensors", b"x")
        assert store.get("a.safetensors") == b"x"
    finally:
        late.kill()
    pauses.clear()
    with pytest.raises(
        StorageUnavailable, match=r"cannot reach s3://studies/a/prefix/a\.safetensors"
    ) as caught:
        Bucket(late.url, 6.0).get("a.safetensors")
    # Without a first pause the refusal of a port on this machine took more than five seconds.
    assert 0.5 <= sum(pauses) <= 6
    assert type(caught.value) is StorageUnavailable


def test_denied_access_is_reported_at_once(tmp_path: Path, server: buckets.Bucket):
    strict = buckets.Bucket(tmp_path)
    store = Bucket(strict.url, 60.0)
    try:
        strict.start()
        strict.strict()
        for act in (store.check, store.names, lambda: store.get("a")):
            with pytest.raises(StorageDenied, match="may not use"):
                act()
    finally:
        strict.kill()


class Cut:
    """A connection to the server that breaks forever after `limit` bytes."""

    def __init__(self, port: int, limit: int) -> None:
        self.to, self.left, self.lock = port, limit, threading.Lock()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while self.left > 0:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()
        self.listening.close()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while content := source.recv(65536):
                with self.lock:
                    self.left -= len(content)
                if self.left <= 0:
                    break
                target.sendall(content)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.mark.slow
@pytest.mark.parametrize("sent", [5_000, 12_000_000, 24_000_000])
def test_a_broken_connection_during_a_large_upload_leaves_the_old_file(
    tmp_path: Path, sent: int, monkeypatch
):
    for name, value in buckets.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    crashes = -1
    while crashes < 3:  # moto's server sometimes segfaults when a connection breaks
        crashes += 1
        server = buckets.Bucket(tmp_path)
        server.start()
        try:
            direct = Bucket(server.url, 0.0)
            direct.put("a.safetensors", b"old")
            cut = Cut(server.port, sent)
            with pytest.raises(StorageUnavailable):
                Bucket(server.at(cut.endpoint), 0.0).put("a.safetensors", b"n" * LARGE)
            if server.alive:
                assert direct.get("a.safetensors") == b"old"
                return
        finally:
            server.kill()
    raise AssertionError("moto's server crashed in every attempt")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://somewhere/x", "cannot be kept at ftp://somewhere/x; give --storage"),
        ("s3://", "give --storage a folder, or s3://"),
        ("s3://key:secret@bucket/x", "put credentials into the environment"),
        ("s3://bucket/x?endpoint=y", "has an option endpoint; an s3:// URL takes endpoint_override"),
    ],
)
def test_a_bad_address_is_reported_before_any_access(url: str, message: str):
    with pytest.raises(BadAddress) as caught:
        open_checkpoint_store(url)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_endpoint_can_come_from_the_environment(server: buckets.Bucket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
    open_checkpoint_store("s3://studies/by environment", 0.0).put("a.safetensors", b"x")
    url = server.at(server.endpoint, "by%20environment")
    assert open_checkpoint_store(url, 0.0).get("a.safetensors") == b"x"


def test_opening_a_store_imports_neither_torch_nor_pyarrow():
    code = "import sys; from loopscale.training.checkpoint_stores import open_checkpoint_store as opened"
    code += "; opened('s3://b/c'); opened('x')"
    code += "; print(sorted({'torch', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop of links"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, pauses: list[float], kind: str):
    path = tmp_path / "a.safetensors"
    make = {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "loop of links": lambda: path.symlink_to(path.name),
    }
    make[kind]()
    with pytest.raises(StorageDenied, match=r"(a folder, a pipe or a device|Too many levels)"):
        Folder(tmp_path, 60.0).get("a.safetensors")
    assert pauses == []
