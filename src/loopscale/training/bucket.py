"""A store of checkpoints in a bucket, through pyarrow: S3 and compatible servers, Google Cloud Storage and Azure.

Credentials come from the environment of the process (AWS_ACCESS_KEY_ID, instance profiles and so on). They never
come from the URL, because the URL is printed and passed on.

A file up to 10 MiB is one object and one request. pyarrow uploads larger files in parts, and readers see nothing
before the last part is complete. The parts of a killed writer stay invisible in the bucket, but the provider charges
for them. A lifecycle rule that aborts incomplete uploads removes these parts.
"""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from typing_extensions import override

from loopscale.training.storage import (
    BadAddress,
    CheckpointStore,
    StorageDenied,
    StorageMissing,
    StorageUnavailable,
)

if TYPE_CHECKING:  # pyarrow is slow to import, and only a store in a bucket needs pyarrow
    from pyarrow.fs import FileSystem

SCHEMES = ("s3", "gs", "abfs", "abfss")
OPTIONS = ("endpoint_override", "region", "scheme")
"""Valid options of an s3:// URL, after the question mark."""
CONNECT, REQUEST = 5.0, 60.0
"""Timeouts in seconds: for a connection, and for an answer on the connection."""
DENIED = re.compile(
    "ACCESS_DENIED|AuthorizationFailure|HTTP status 40[13]|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|No credentials"
    "|PermissionDenied|SIGNATURE"
)
MISSING = re.compile("NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|bucket does not exist")
REMEDY = "give --storage a folder, or s3://, gs:// or abfs:// with bucket and prefix"
READS = 5
"""Attempts to read a file that is replaced during the read."""


class Bucket(CheckpointStore):
    """A bucket, or the objects below a prefix of a bucket."""

    patience = 300.0

    def __init__(self, url: str, patience: float = patience) -> None:
        try:
            parts = urlsplit(url)
            login = parts.username
        except ValueError as error:
            raise BadAddress(f"{url} is no valid address ({error}); {REMEDY}") from error
        if login is not None and not parts.scheme.startswith("abfs"):
            safe = f"{parts.scheme}://{parts.hostname}{parts.path}"
            raise BadAddress(
                f"the address of {safe} contains a key, and addresses are printed; put credentials into the environment"
            )
        if parts.scheme not in SCHEMES or not parts.netloc:
            raise BadAddress(f"checkpoints cannot be kept at {url}; {REMEDY}")
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
        """The store below `folder`."""
        path = f"{self._parts.path.rstrip('/')}/{quote(folder)}"
        return Bucket(self._parts._replace(path=path).geturl(), self.patience)

    @override
    def describe(self, name: str) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc}{self._parts.path.rstrip('/')}/{name}"

    @override
    def make(self) -> None:
        """Does nothing: users create buckets, and prefixes need no creation."""

    @override
    def get(self, name: str) -> bytes:
        return self._retry(lambda: self._read(name))

    @override
    def put(self, name: str, content: bytes) -> None:
        def write() -> None:
            with self._explained(name), self._system.open_output_stream(self._path(name)) as file:
                file.write(content)

        self._retry(write)

    @override
    def delete(self, name: str) -> None:
        def remove() -> None:
            with self._explained(name):
                self._system.delete_file(self._path(name))

        with suppress(FileNotFoundError):
            self._retry(remove)

    @override
    def names(self) -> list[str]:
        from pyarrow.fs import FileSelector  # here, because pyarrow loads slowly

        def list_files() -> list[str]:
            with self._explained():
                entries = self._system.get_file_info(FileSelector(self._root, allow_not_found=True))
            return sorted(entry.base_name for entry in entries if entry.is_file)

        return [name for name in self._retry(list_files) if name[0] != "."]

    @override
    def sweep(self) -> int:
        return 0

    def _read(self, name: str) -> bytes:
        """Size and content are two requests. If a write came in between, the two disagree: read again."""
        for _ in range(READS):
            with self._explained(name):
                with self._system.open_input_file(self._path(name)) as file:
                    content = file.read()
                if self._system.get_file_info(self._path(name)).size == len(content):
                    return content
        raise StorageUnavailable(f"{self.describe(name)} was replaced during every read; try again")

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
        """The file system of pyarrow, and the path of this store in the file system (bucket and prefix)."""
        from pyarrow import fs  # here, because pyarrow loads slowly

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
            allow_delayed_open=True,  # otherwise even the smallest file is an upload in parts
            connect_timeout=CONNECT,
            request_timeout=REQUEST,
            retry_strategy=fs.AwsStandardS3RetryStrategy(
                max_attempts=1
            ),  # `_retry` waits, and reports the reason
        )
        return system, self._parts.netloc + unquote(self._parts.path)

    @contextmanager
    def _explained(self, name: str = "") -> Iterator[None]:
        """Translate errors of pyarrow into errors of storage. pyarrow's errors differ in their text only."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if isinstance(error, StorageUnavailable):
                raise
            reason = " ".join(str(error).split())
            place, host = self.describe(name), socket.gethostname()
            if MISSING.search(reason):
                raise StorageMissing(
                    f"there is no bucket {self._parts.netloc} ({reason}); make it, or give another --storage"
                ) from error
            if isinstance(error, PermissionError) or DENIED.search(reason):
                raise StorageDenied(
                    f"{host} may not use {place} ({reason}); give credentials with access, in the environment"
                ) from error
            raise StorageUnavailable(
                f"{host} cannot reach {place} ({reason}); try again when it answers, or give another --storage"
            ) from error


def _environment(*names: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
