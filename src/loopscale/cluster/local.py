"""This machine: the study goes on in a process of its own after the terminal is closed."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from loopscale.cluster.base import ENDED, Cluster, ClusterError, Request, State, Submission

FOLDER = "submissions"
PATIENCE = 60.0
"""Seconds that a driver gets to stop."""
CODES: dict[int, tuple[State, str]] = {
    0: ("succeeded", ""),
    1: ("failed", "trials failed or were lost, or the driver did; see the logs"),
    2: ("failed", "a mistake in the study or the store; see the logs"),
    3: ("stopped", ""),
}


@dataclass(frozen=True)
class _Files:
    """A submission's files, side by side: what was started, what it printed, how it ended."""

    folder: Path
    id: str

    @property
    def about(self) -> Path:
        return self.folder / f"{self.id}.json"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.id}.log"

    @property
    def code(self) -> Path:
        return self.folder / f"{self.id}.code"

    @property
    def package(self) -> Path:
        """Where the package is unpacked: the driver's working directory."""
        return self.folder / self.id


class Local(Cluster, kind="local"):
    """The machine that `loopscale submit` is typed on, with a Ray of its own for the length of the study."""

    python: str | None = None
    """The interpreter; by default the one that submits."""

    @property
    def folder(self) -> Path:
        return self._place / FOLDER

    @property
    def _place(self) -> Path:
        """What is not a record: `storage`, else the store if it is a folder, else `.loopscale`."""
        for place in (self.storage, self.store, os.environ.get("LOOPSCALE_STORE")):
            if place and "://" not in place:
                return Path(place).expanduser().absolute()
        return Path(".loopscale").absolute()

    @override
    def submit(self, name: str, request: Request) -> Submission:
        latest = self.latest(name, request.study)
        if latest and latest.state not in ENDED:
            return replace(latest, attached=True)
        number = 1 + sum(each.study == request.study for each in self.submissions(name))
        identity = f"{request.study.replace('/', '__')}-{number}"
        files = _Files(self.folder, identity)
        work = files.package
        _unpack(request, work)
        settled = self.model_copy(update={"store": self._store(), "storage": self._storage()})
        words = settled.command(request, self.python or sys.executable, address=None)
        # The shell outlives the driver by as long as it takes to write how it ended.
        line = f"{shlex.join(words)} > {shlex.quote(str(files.log))} 2>&1; echo $? > {shlex.quote(str(files.code))}"
        environment = os.environ | {"PYTHONPATH": str(work), "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            ["/bin/sh", "-c", line], cwd=work, env=environment, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        about = {
            "study": request.study,
            "pid": process.pid,
            "born": _born(process.pid),
            "started": time.time(),
        }
        files.about.write_text(json.dumps(about))
        return self._submission(name, files)

    @override
    def submissions(self, name: str) -> list[Submission]:
        files = [_Files(self.folder, path.name.removesuffix(".json")) for path in self.folder.glob("*.json")]
        found = [self._submission(name, each) for each in files]
        return sorted(found, key=lambda each: each.started or 0.0)

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        files = _Files(self.folder, submission.id)
        if not files.log.exists():
            raise ClusterError(f"{submission.id} has no log in {self.folder}", "look at `loopscale list`")
        with files.log.open() as log:
            while True:
                over = self._submission(submission.cluster, files).state in ENDED
                if text := log.read():
                    yield text
                if over or not follow:
                    return
                time.sleep(0.5)

    @override
    def stop(self, submission: Submission) -> None:
        files = _Files(self.folder, submission.id)
        about = json.loads(files.about.read_text())
        for pid in _children(about["pid"]):  # the driver, not the shell, which is to say how it ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        until = time.monotonic() + PATIENCE
        while self._submission(submission.cluster, files).state not in ENDED:
            if time.monotonic() > until:
                raise ClusterError(
                    f"{submission.id} has not stopped within {PATIENCE:g} s", f"see its log, {files.log}"
                )
            time.sleep(0.2)

    def _store(self) -> str:
        """Where the records are, told so that it holds from another folder."""
        store = self.store or os.environ.get("LOOPSCALE_STORE") or os.environ.get("MLFLOW_TRACKING_URI")
        store = store or ".loopscale"
        return store if "://" in store else str(Path(store).expanduser().absolute())

    def _storage(self) -> str | None:
        return self.storage if not self.storage or "://" in self.storage else str(self._place)

    def _submission(self, name: str, files: _Files) -> Submission:
        about: dict[str, Any] = json.loads(files.about.read_text())
        state, detail, ended = self._state(about, files)
        return Submission(files.id, about["study"], name, state, about["started"], ended, detail)

    @staticmethod
    def _state(about: dict[str, Any], files: _Files) -> tuple[State, str, float | None]:
        if files.code.exists() and (text := files.code.read_text().strip()):
            state, detail = CODES.get(int(text), ("failed", f"exit code {text}"))
            return state, detail, files.code.stat().st_mtime
        if _born(about["pid"]) == about["born"]:
            return "running", "", None
        return "failed", "its process died; submit it again to go on", None


def _unpack(request: Request, folder: Path) -> None:
    import zipfile

    if request.package is None:
        raise ClusterError(f"{request.study} was not packed", "submit it with `loopscale submit`")
    with zipfile.ZipFile(request.package) as archive:
        archive.extractall(folder)


def _born(pid: int) -> str | None:
    """When a process began, which tells it from a later one of the same number; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
