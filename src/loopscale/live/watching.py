"""The live page of a study that runs elsewhere or is over."""

from collections.abc import Callable

from loopscale.live.board import Board
from loopscale.live.recorded_study import RecordedStudy
from loopscale.live.server import PageServer, bind, make_app, url_of
from loopscale.live.watcher import Watcher
from loopscale.records.stores.base import Store


def watch(store: Store, study: str, port: int | None, file: str | None, ready: Callable[[str], None]) -> None:
    """Serve the page until a signal ends the server. `ready` gets the address.

    `file` is the study's file, which the report may need for its plugins. Raises UsageError, NoRecords, StoreError.
    """
    RecordedStudy(store, study).parts()  # a mistake in the name or the address ends the command, not the page
    with bind(port) as listening:
        board = Board()
        watcher = Watcher(board, lambda: store, study)
        watcher.hear({"file": file})
        watcher.start()
        place = {"store": store.uri if store.shared else store.name, "storage": str(store.storage)}
        ready(url_of(listening))
        app = make_app(board, lambda: place | {"study": study, "file": file})
        PageServer(app, board).run([listening])
