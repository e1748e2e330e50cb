"""A shelf in a bucket: S3 and what speaks its language, Google's and Azure's, through pyarrow.

Credentials come from the environment of whoever asks (AWS_ACCESS_KEY_ID, instance profiles and so on), never from the
URL, which is shown and passed on. A file is one object and one request where it is small (10 MiB); pyarrow sends
larger ones in parts, of which nobody sees any before the last has come. Parts of a writer that was killed stay
invisible in the bucket and are not free: a lifecycle rule that aborts incomplete uploads clears them.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from typing_extensions import override

from loopscale.training.storage import (
    SCHEMES,
    BadAddress,
    CheckpointStore,
    StorageDenied,
    StorageMissing,
    StorageUnavailable,
)

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

OPTIONS = ("endpoint_override", "region", "scheme")
"""What an s3:// URL may say after its question mark."""
CONNECT, REQUEST = 5.0, 60.0
"""Seconds to wait for a connection, and for an answer on it."""
DENIED = ("ACCESS_DENIED", "HTTP status 403", "INVALID_ACCESS_KEY", "INVALID_CLIENT_TOKEN", "SIGNATURE",
          "HTTP status 401", "PermissionDenied", "AuthorizationFailure", "No credentials")  # fmt: skip
MISSING = ("NO_SUCH_BUCKET", "NoSuchBucket", "ContainerNotFound", "bucket does not exist")
WRONG = "; give --storage a folder, or s3://, gs:// or abfs:// with bucket and prefix"
READS = 5
"""How often a file that is replaced while it is read is read again."""


class Bucket(CheckpointStore):
    """A bucket, or what lies below a prefix of it."""

    patience = 300.0

    def __init__(self, url: str, patience: float = patience) -> None:
        try:
            parts = urlsplit(url)
            login = parts.username
        except ValueError as problem:
            raise BadAddress(f"{url} is no address ({problem}){WRONG}") from problem
        if login is not None and not parts.scheme.startswith("abfs"):
            shown = f"{parts.scheme}://{parts.hostname}{parts.path}"
            raise BadAddress(
                f"{shown} is given with a key, which would be shown; put credentials into the environment"
            )
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise BadAddress(f"checkpoints cannot be kept at {url}{WRONG}")
        self.patience, self._parts = patience, parts
        self._options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = set(self._options) - set(OPTIONS)
        if parts.scheme == "s3" and unknown:
            raise BadAddress(f"{url} has an option {min(unknown)}; an s3:// URL takes {', '.join(OPTIONS)}")

    @property
    @override
    def url(self) -> str:
        return self._parts.geturl()

    def below(self, folder: str) -> "Bucket":
        """The part of it whose names begin so."""
        path = f"{self._parts.path.rstrip('/')}/{quote(folder)}"
        return Bucket(self._parts._replace(path=path).geturl(), self.patience)

    @override
    def describe(self, name: str) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc}{self._parts.path.rstrip('/')}/{name}"

    @override
    def make(self) -> None:
        """Nothing: a bucket is not ours to make, and a prefix needs no making."""

    @override
    def get(self, name: str) -> bytes:
        return self._patiently(lambda: self._read(name))

    @override
    def put(self, name: str, content: bytes) -> None:
        def write() -> None:
            with self._said(name), self._system.open_output_stream(self._path(name)) as file:
                file.write(content)

        self._patiently(write)

    @override
    def delete(self, name: str) -> None:
        def remove() -> None:
            with self._said(name):
                self._system.delete_file(self._path(name))

        with suppress(FileNotFoundError):
            self._patiently(remove)

    @override
    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector, FileType

        def listed() -> list[str]:
            with self._said():
                found = self._system.get_file_info(FileSelector(self._root, allow_not_found=True))
            return sorted(info.base_name for info in found if info.type == FileType.File)

        return [name for name in self._patiently(listed) if name[0] != "."]

    @override
    def sweep(self) -> int:
        return 0

    def _read(self, name: str) -> bytes:
        """Size and content are two requests: where another object came in between, ask again."""
        for _ in range(READS):
            with self._said(name):
                with self._system.open_input_file(self._path(name)) as file:
                    content = file.read()
                if self._system.get_file_info(self._path(name)).size == len(content):
                    return content
        raise StorageUnavailable(f"{self.describe(name)} is replaced all the time; try again")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @property
    def _root(self) -> str:
        return self._opened[1].rstrip("/")

    @property
    def _system(self) -> "FileSystem":
        return self._opened[0]

    @cached_property
    def _opened(self) -> "tuple[FileSystem, str]":
        """pyarrow's file system, and the path in it that begins with the bucket."""
        from pyarrow import fs

        if self._parts.scheme != "s3":
            return fs.FileSystem.from_uri(self.url)
        options = self._options
        endpoint = options.get("endpoint_override") or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        region = options.get("region") or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
        if not (region or endpoint):
            region = fs.resolve_s3_region(self._parts.netloc)
        scheme = options.get("scheme") or (urlsplit(endpoint).scheme if "://" in endpoint else "https")
        system = fs.S3FileSystem(
            region=region or "us-east-1",
            endpoint_override=endpoint.rpartition("://")[2].rstrip("/") or None,
            scheme=scheme,
            allow_delayed_open=True,  # else even the smallest file is an upload in parts
            connect_timeout=CONNECT,
            request_timeout=REQUEST,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),  # ours waits, and says why
        )
        return system, self._parts.netloc + unquote(self._parts.path)

    @contextmanager
    def _said(self, name: str = "") -> Iterator[None]:
        """Say what pyarrow says as what it means; its errors differ in their text alone."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as problem:
            if isinstance(problem, StorageUnavailable):
                raise
            said = " ".join(str(problem).split())
            where, here = self.describe(name), socket.gethostname()
            if any(word in said for word in MISSING):
                raise StorageMissing(
                    f"there is no bucket {self._parts.netloc} ({said}); make it, or give another --storage"
                ) from problem
            if isinstance(problem, PermissionError) or any(word in said for word in DENIED):
                raise StorageDenied(
                    f"{here} may not use {where} ({said}); give credentials that may, in the environment"
                ) from problem
            raise StorageUnavailable(
                f"{here} cannot reach {where} ({said}); try again when it answers, or give another --storage"
            ) from problem


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
