"""This machine: the study goes on in a process of its own after the terminal is closed.

Studies that `loopscale run` started in a terminal are submissions too, while they run.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    EXIT_STATES,
    Cluster,
    ClusterError,
    HostGroup,
    Request,
    Submission,
    SubmissionState,
)
from loopscale.cluster.commands import follow_file
from loopscale.cluster.package import unpack
from loopscale.core.file_locks import process_here
from loopscale.core.files import LONGEST_FILE_NAME, bounded_name, make_private, read_regular
from loopscale.core.machine_share import trials_per_machine, usable_cpus
from loopscale.core.visible import tell
from loopscale.records.stores.base import unwritable
from loopscale.records.stores.folder import check_folder
from loopscale.records.stores.opening import DEFAULT, absolute_folder, store_place
from loopscale.runner.lease import drivers

STOP_SECONDS = 60.0
STARTED_BY_RUN = "started by `loopscale run`"


class Local(Cluster, kind="local"):
    """This machine, with a Ray of its own while the study runs."""

    python: str | None = None
    """The interpreter. By default the interpreter that submits."""

    @override
    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        cpus = max(1, int(usable_cpus()))
        gpus = torch.cuda.device_count()
        return (HostGroup(1, cpus, gpus, trials_per_machine(trial, cpus, gpus), least=1, started=False),)

    @property
    def folder(self) -> Path:
        """The folder of all submissions.

        `ID/` is the unpacked package, `ID.json` the study and its process, `ID.log` the driver's output, and `ID.code`
        its exit code.
        """
        return self._storage_folder / "submissions"

    @property
    def _storage_folder(self) -> Path:
        """The folder of everything but records: `storage`, else the store if it is a folder, else `.loopscale`.

        Raises StoreError for a path that is no folder.
        """
        places = (self.storage, self.store, os.environ.get("LOOPSCALE_STORE"))
        folder = absolute_folder(next((place for place in places if place and "://" not in place), DEFAULT))
        check_folder(folder)
        return folder

    @override
    def submit(self, name: str, request: Request) -> Submission:
        latest = self.latest(name, request.study)
        if latest and latest.state not in ENDED:
            return replace(latest, attached=True)
        number = 1 + sum(each.study == request.study for each in self.submissions(name))
        identity = bounded_name(
            request.study.replace("/", "__"), f"-{number}", LONGEST_FILE_NAME - len(".json")
        )
        package, log, code = self.folder / identity, self._file(identity, "log"), self._file(identity, "code")
        try:
            make_private(self._storage_folder)
            self.folder.mkdir(exist_ok=True)
        except OSError as problem:
            raise unwritable(self.folder, problem) from problem
        shutil.rmtree(package, ignore_errors=True)  # of a submission that was cut short
        unpack(request, package)
        resolved = self.model_copy(update={"store": self._store(), "storage": self._storage()})
        words = resolved.command(request, self.python or sys.executable, address=None)
        # The shell outlives the driver to write its exit code.
        script = f"{shlex.join(words)} > {shlex.quote(str(log))} 2>&1; echo $? > {shlex.quote(str(code))}"
        process = subprocess.Popen(
            ["/bin/sh", "-c", script],
            cwd=package,
            env=os.environ | resolved.secrets | {"PYTHONPATH": str(package), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        about = {"study": request.study, "pid": process.pid, "born": _start_time(process.pid)}
        about["started"] = time.time()
        self._file(identity, "json").write_text(json.dumps(about))
        return self._submission(name, identity, about)

    @override
    def submissions(self, name: str) -> list[Submission]:
        identities = sorted(path.stem for path in self.folder.glob("*.json"))
        known = {identity: about for identity in identities if (about := self._about(identity))}
        submissions = [self._submission(name, identity, about) for identity, about in known.items()]
        going = {each.study for each in submissions if each.state not in ENDED}
        submissions += [
            Submission(driver.name, driver.study, name, "running", driver.since, detail=STARTED_BY_RUN)
            for driver in drivers(self._storage_folder)
            if driver.study not in going
        ]
        return sorted(submissions, key=lambda each: each.started or 0.0)

    @override
    def no_submissions(self, name: str) -> str:
        return (
            f"no study in {self._storage_folder} runs on {name} or was submitted; --store names another store"
        )

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        if submission.detail == STARTED_BY_RUN:
            what = f"{submission.study} is run by {submission.id}, and its output is on the terminal of `loopscale run`"
            raise ClusterError(what, f"`loopscale watch {submission.study}` shows the study here")
        log = self._file(submission.id, "log")
        if not log.is_file():
            raise ClusterError(f"{submission.id} has no log in {self.folder}", "look at `loopscale list`")
        yield from follow_file(log, lambda: self.has_ended(submission), follow)

    @override
    def stop(self, submission: Submission) -> None:
        for pid in self._drivers(submission):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        self.wait_until_stopped(submission, STOP_SECONDS, pause=0.2)

    def _drivers(self, submission: Submission) -> list[int]:
        """The processes of the submission's driver. Raises ClusterError if they belong to another host."""
        if submission.detail != STARTED_BY_RUN:
            about = self._about(submission.id)
            return _children(about["pid"]) if about else []  # their shell goes on to write the exit code
        process = process_here(submission.id)
        if process is None:
            raise ClusterError(f"{submission.study} is run by {submission.id}", "stop the process there")
        return [process]

    def _file(self, identity: str, suffix: str) -> Path:
        return self.folder / f"{identity}.{suffix}"

    def _store(self) -> str:
        """The store, in a form that holds in another working directory."""
        store = self.store or os.environ.get("LOOPSCALE_STORE") or os.environ.get("MLFLOW_TRACKING_URI")
        store = store or ".loopscale"
        return str(store_place(store))

    def _storage(self) -> str | None:
        return self.storage if not self.storage or "://" in self.storage else str(self._storage_folder)

    def _about(self, identity: str) -> dict[str, Any] | None:
        """The study and the process of a submission. None after a note for a damaged file."""
        file = self._file(identity, "json")
        try:
            about = json.loads(read_regular(file))
            typed = {"study": str, "pid": int, "born": str | None, "started": int | float}
            if all(isinstance(about[key], kind) for key, kind in typed.items()):
                return about
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        tell(f"note: {file} is damaged, so its submission is left out; rename the file")
        return None

    def _submission(self, name: str, identity: str, about: Mapping[str, Any]) -> Submission:
        state, detail, ended = self._state(about, self._file(identity, "code"))
        return Submission(identity, about["study"], name, state, about["started"], ended, detail)

    @staticmethod
    def _state(about: Mapping[str, Any], code: Path) -> tuple[SubmissionState, str, float | None]:
        with contextlib.suppress(OSError):  # the process has not ended, or something else has the name
            if text := read_regular(code).decode(errors="replace").strip():
                state, detail = EXIT_STATES.get(text, ("failed", f"exit code {text[:20]}"))
                return state, detail, code.stat().st_mtime
        if _start_time(about["pid"]) == about["born"]:
            return "running", "", None
        return "failed", "its process died; submit it again to resume", None


def _start_time(pid: int) -> str | None:
    """The start of a process, which tells it from a later process with the same pid; None if it has ended."""
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
