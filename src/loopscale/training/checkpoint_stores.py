"""Opens the store of checkpoints at an address."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from loopscale.training.bucket import Bucket
from loopscale.training.folder import Folder
from loopscale.training.storage import CheckpointStore


def open_checkpoint_store(where: str | Path, patience: float | None = None) -> CheckpointStore:
    """The store at a folder or URL. Opening does not access the store. Raises BadAddress.

    `patience` is the time for retries in seconds. By default 15 s for a folder and 300 s for a bucket.
    """
    text = str(where)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if "://" in text:
        return Bucket(text, Bucket.patience if patience is None else patience)
    return Folder(Path(text), Folder.patience if patience is None else patience)
