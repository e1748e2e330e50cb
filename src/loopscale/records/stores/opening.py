"""Open the store that the options or the environment name."""

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from loopscale.core.files import make_private
from loopscale.core.plugins import load_installed
from loopscale.notation.mistakes import quoted
from loopscale.records.model import StoreError
from loopscale.records.stores.base import Store, StoreKind, check_folders, unwritable
from loopscale.redaction import STORE_PASSWORD
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import BadAddress, CheckpointStore, StorageUnavailable

DEFAULT = ".loopscale"
HOSTED = ("databricks", "databricks-uc", "uc")
"""Addresses that MLflow takes for services of Databricks. As folders they would surprise a person."""
UNREPLACED = re.compile(r"\$\w+|\$\{|%\w+%")
"""A variable that no shell has replaced."""
WITHOUT_SLASHES = re.compile(
    r"(https?|s3|gs|postgresql|mysql|mssql|sqlite)(\+\w+)?(:|;|(?=//))/{0,2}(?=[^/]|$|/)"
)
"""The beginning of an address whose `://` is incomplete."""
HOST = re.compile(r"localhost|\d+(\.\d+){3}|(\[[\da-fA-F:]+\]|[\w.-]*):\S*")
"""A host of this machine, a number of a host, or a first part with a colon, which a host and its port have."""
READER_PATIENCE = 5.0
"""Seconds before a reader gives up a silent bucket."""


def place_of_store(where: str | Path | None = None) -> Path | str:
    """The folder, or the URL with its password, of the store that a person names or that the environment names."""
    text = str(where or os.environ.get("LOOPSCALE_STORE") or os.environ.get("MLFLOW_TRACKING_URI") or DEFAULT)
    return store_place(_with_password(text))


def open_store(
    where: str | Path | None = None, storage: str | Path | None = None, create: bool = False
) -> Store:
    """Open a store, which may be a folder, a tracking server, a database, or a folder that `loopscale export` wrote.

    `where` is by default $LOOPSCALE_STORE, else $MLFLOW_TRACKING_URI, else `.loopscale`. `storage` is a folder, or the
    URL of a bucket for the checkpoints; by default the store if it is a folder, else `.loopscale`. With `create`, an
    absent store is made and must be writable. Without `create`, nothing is written.

    Raises NoRecords if there is no store, and StoreError if the store or the storage cannot be used.
    """
    place = place_of_store(where)
    bucket = _open_bucket(str(storage), create) if storage and "://" in str(storage) else None
    beside = None if bucket else storage
    kind = kind_at(place)
    kind.check(place, create)
    if kind.is_storage and not beside:
        return kind.open(place, Path(place), bucket, create)
    return kind.open(place, _storage_folder(beside or DEFAULT, create), bucket, create)


def store_place(text: str) -> str | Path:
    """The address of a store, or the absolute path of its folder. Raises StoreError for a text that is neither."""
    if text.partition(":")[0] in HOSTED and not os.path.isdir(text):
        what = f"the store {text} is a service of Databricks, which loopscale does not use"
        raise StoreError(
            what, f"give a folder or an address with --store, such as --store ./{text.partition(':')[0]}"
        )
    text = _without_file_scheme(text)
    return text if "://" in text else absolute_folder(text)


def _with_password(address: str) -> str:
    """The address with the password of the environment, if the address names a user without a password."""
    password, (scheme, slashes, rest) = os.environ.get(STORE_PASSWORD), address.partition("://")
    user, at, host = rest.partition("@")
    if not (password and slashes and user and at) or set(user) & set(":/?#"):
        return address
    return f"{scheme}://{user}:{quote(password, safe='')}@{host}"


def kind_at(place: str | Path) -> StoreKind:
    """The kind of the store in a folder, or at an address. Raises StoreError for an address of no kind."""
    if isinstance(place, Path):
        kinds = StoreKind.choices()
        usual = kinds[StoreKind.default_kind]
        if os.path.exists(place / usual.marker):
            return usual()
        marked = (kind for kind in kinds.values() if kind.marker and os.path.isfile(place / kind.marker))
        return next(marked, usual)()
    try:
        scheme = urlsplit(place).scheme
    except ValueError as problem:
        what = f"{place} is no address ({problem})"
        raise StoreError(what, "give --store as http://host:port") from problem
    found = _kind_with_scheme(scheme)
    if found is None:
        load_installed()
        found = _kind_with_scheme(scheme)
    if found is None:
        kinds = reversed(StoreKind.choices().values())  # a server is the usual address
        addresses = [f"{name}://" for kind in kinds for name in kind.schemes]
        raise StoreError(f"a store cannot be at {place}", f"give {', '.join(['a folder', *addresses])}")
    return found


def _kind_with_scheme(scheme: str) -> StoreKind | None:
    kinds = (kind() for kind in StoreKind.choices().values())
    return next((kind for kind in kinds if kind.has_scheme(scheme)), None)


def _open_bucket(url: str, create: bool) -> CheckpointStore:
    """The checkpoints below a URL. With `create`, StoreError unless they can be written."""
    try:
        bucket = open_checkpoint_store(url, None if create else READER_PATIENCE)
        if create:
            open_checkpoint_store(url, patience=0.0).check()
    except (BadAddress, StorageUnavailable) as problem:
        what, _, remedy = str(problem).rpartition("; ")
        raise StoreError(what, remedy) from problem
    return bucket


def _without_file_scheme(text: str) -> str:
    """The path of a `file:` address, and any other text as it is. Raises StoreError for a file of another host."""
    if not text.startswith("file:"):
        return text
    address = urlsplit(text)
    if address.netloc not in ("", "localhost"):
        what = f"{text} names the host {address.netloc}"
        raise StoreError(what, f"did you mean file:///{address.netloc}{address.path}?")
    return unquote(address.path)


def _check_name(text: str) -> None:
    """Raise StoreError if a text for a folder looks like an incomplete address, or has a variable in it.

    Otherwise records would go into a new folder with an odd name, and not to the place that a person meant. A folder
    that exists is meant.
    """
    if os.path.isdir(text):
        return
    if UNREPLACED.search(text):
        raise StoreError(f"{text} has a variable that no shell has replaced", "write the whole path")
    if start := WITHOUT_SLASHES.match(text):
        slashes = ":///" if start[1] == "sqlite" else "://"
        meant = f"{start[1]}{start[2] or ''}{slashes}{text[start.end() :]}"
    elif HOST.fullmatch(text.partition("/")[0]):
        meant = f"http://{text}"
    else:
        return
    raise StoreError(f"{text} is no path of a folder", f"did you mean {meant}? Otherwise write ./{text}")


def absolute_folder(text: str | Path) -> Path:
    """The folder's absolute path. Raises StoreError for an address, a variable, or `~name` without a user `name`."""
    _check_name(str(text))
    if "\0" in str(text):
        raise StoreError(f"no folder is named {quoted(str(text))}", "write the path of a folder")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as problem:
        raise StoreError(f"there is no folder {text} ({problem})", "write its path without ~") from problem


def _storage_folder(text: str | Path, create: bool) -> Path:
    """The folder for checkpoints, locks and the mirror. With `create`, StoreError unless it can be written."""
    folder = absolute_folder(text)
    remedy = "give another folder with --storage"
    if create:
        try:
            make_private(folder)
        except OSError as problem:
            raise unwritable(folder, problem, remedy) from problem
        check_folders(folder)
        if not os.access(folder, os.W_OK):
            raise StoreError(f"cannot write to {folder}", remedy)
    return folder
