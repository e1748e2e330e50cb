"""The page's own process beside a driver. The driver's decisions therefore never wait for the page.

The process gets an open socket, and reads lines of JSON. The first line names the records, and every other line is a
message of the driver. The lines end with the driver, also if the driver was killed.
"""

import json
import os
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

NICENESS = 10
"""Added to the niceness, so that the page gives way to trainings on a full machine."""


def be_nice() -> None:
    with suppress(OSError):
        os.nice(NICENESS)


def serve_for_driver(listening: socket.socket, lines: Any) -> None:
    """Serve the page until the lines end."""
    # Imported here, because the imports take seconds and `be_nice` comes before them.
    from loopscale.live.board import Board
    from loopscale.live.server import PageServer, make_app
    from loopscale.live.watcher import Watcher
    from loopscale.records.stores.opening import open_store

    place: dict[str, Any] = json.loads(next(lines))
    board = Board()
    watcher = Watcher(board, lambda: open_store(place["store"], place["storage"]), driven=True)
    watcher.start()

    def hear() -> None:
        for line in lines:
            watcher.hear(json.loads(line))
        watcher.hear_end()
        watcher.finish()

    threading.Thread(target=hear, name="driver", daemon=True).start()
    app = make_app(board, lambda: place | {"study": watcher.study, "file": watcher.file})
    PageServer(app, board).run([listening])


if __name__ == "__main__":
    be_nice()
    serve_for_driver(socket.socket(fileno=int(sys.argv[1])), iter(sys.stdin))
