"""Programs in a real terminal, with its width."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import processes

_CONTROLS = re.compile(
    r"\x1b\[(?P<number>\d*)[0-9;?]*(?P<action>[A-Za-z])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\r\n\b]"
)
"""Colours, movements of the cursor, titles and ends of lines."""


def run_in_terminal(
    command: Sequence[str],
    width: int,
    folder: Path | None = None,
    environment: Mapping[str, str] = os.environ,
) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines that stand in the terminal at the end of the command.

    Standard error goes to the same terminal. Lines of progress that the command has replaced are gone.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    own = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
    side = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=own | {"TERM": "xterm"}
    )
    os.close(theirs)
    printed = b""
    while block := _read(ours):
        printed += block
    os.close(ours)
    code = side.wait()
    return code, lines_at_end(printed.decode())


class LostTerminal:
    """A program in a terminal of its own, which closes as after a broken connection. The program gets SIGHUP."""

    def __init__(self, command: Sequence[str]) -> None:
        self._ours, theirs = pty.openpty()
        self._closed = threading.Event()
        # `setsid` takes the terminal, and becomes the program. The number of the process stays.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *processes.DEFAULT_SIGNALS, *command],
            text=True,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        processes.keep(self.process)
        os.close(theirs)
        # A program waits if nobody reads its terminal.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while not self._closed.is_set():
            if select.select([self._ours], [], [], 0.1)[0] and not _read(self._ours):
                return

    def close(self) -> None:
        self._closed.set()
        self._reader.join()
        os.close(self._ours)


def lines_at_end(printed: str) -> list[str]:
    """The lines that stand in a terminal after a text with its movements of the cursor.

    The terminal remembers all lines, and does not break a long line.
    """
    rows, row, column = [""], 0, 0

    def write(text: str) -> None:
        nonlocal column
        line = rows[row].ljust(column)
        rows[row] = line[:column] + text + line[column + len(text) :]
        column += len(text)

    start = 0
    for control in _CONTROLS.finditer(printed):
        write(printed[start : control.start()])
        start = control.end()
        number = int(control["number"] or 0)
        match control["action"] or control[0]:
            case "\n":
                row += 1
                rows += [""] * (row + 1 - len(rows))
            case "\r":
                column = 0
            case "\b" | "D":
                column = max(column - max(number, 1), 0)
            case "A":
                row = max(row - max(number, 1), 0)
            case "B":
                row = min(row + max(number, 1), len(rows) - 1)
            case "C":
                column += max(number, 1)
            case "K":
                rest = rows[row][column:] if number == 1 else ""
                rows[row] = (" " * column + rest) if number else rows[row][:column]
            case "J" if not number:
                rows[row:] = [rows[row][:column]]
            case _:
                pass
    write(printed[start:])
    lines = [line.rstrip() for line in rows]
    return lines[:-1] if lines and not lines[-1] else lines


def _read(terminal: int) -> bytes:
    """The next bytes; empty after the last program has left the terminal."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
