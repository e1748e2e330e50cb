"""Slurm: a batch job that starts a Ray of its own on the allocation, and drives the study from the first host.

`loopscale submit` is run where `sbatch` is and the shared folder is mounted. Below the folder lie `code/` (packages,
unpacked), `jobs/ID/` (token, Ray's logs, exit code), `logs/` and, unless the settings say otherwise, the records and
checkpoints. What Slurm forgets of an ended job (it may keep no accounts) is read from its exit code there.

Two signals end a study cleanly. `loopscale stop` sends INT to the batch shell: the job ends, its state saved. Slurm
itself sends USR1 two minutes before the time is up: the state is saved and the job queued again, under its id.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from typing_extensions import override

from loopscale.cluster.base import ENDED, Cluster, ClusterError, Request, State, Submission
from loopscale.cluster.room import fitting
from loopscale.cluster.tool import Line, say, tail

TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
WARNING = 120
"""Seconds before the end of the time at which Slurm says so; a driver takes up to 40 to stop."""
STOPS = 150.0
LIVE: dict[str, State] = {"RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running"}
"""What squeue calls a job that has begun; whatever else it lists is to begin."""
CODES: dict[str, tuple[State, str]] = {
    "0": ("succeeded", ""),
    "1": ("failed", "some trials failed or were lost, or Ray did not start; see the logs"),
    "2": ("failed", "a mistake in the study or the store; see the logs"),
    "3": ("stopped", ""),
}


class Slurm(Cluster, kind="slurm"):
    folder: Line
    """Shared by all hosts, absolute."""
    python: Line = "python"
    """The interpreter with what constraints.txt lists, after the set-up lines."""
    setup: tuple[Line, ...] = ()
    """Shell lines, run first: `module load ...`, `source .../activate`."""
    nodes: PositiveInt = 1
    cpus_per_task: PositiveInt = 4
    """Of each host: one task is started on each."""
    gpus_per_node: NonNegativeInt = 0
    mem: Line | None = None
    """Of each host, as Slurm writes it: 64G."""
    time: Line | None = None
    """The longest that one run may take: 12:00:00, 2-00:00:00. The study goes on in the next."""
    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    options: tuple[Line, ...] = ()
    """More of sbatch: --constraint=a100."""
    requeue: bool = True
    """Whether the job is queued again when its time is up or a host fails."""
    join_seconds: PositiveFloat = Field(default=300.0, le=86400)
    """How long the first host waits for the others before it begins without them."""

    @field_validator("folder")
    @classmethod
    def _is_absolute(cls, folder: str) -> str:
        folder = os.path.expanduser(folder).rstrip("/") or "/"
        if not folder.startswith("/") or "\\" in folder:
            raise ValueError(f"{folder!r} is not absolute or has a backslash; write it as /shared/loopscale")
        return folder

    @field_validator("time", mode="before")
    @classmethod
    def _is_time(cls, value: object) -> object:
        if value is not None and not (isinstance(value, str) and TIME.fullmatch(value)):
            # YAML reads 12:00:00 without quotes as the number 43200.
            raise ValueError(f"{value!r} is no time of Slurm's; write it in quotes, as '12:00:00'")
        return value

    @field_validator("options")
    @classmethod
    def _are_options(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("-"):
                raise ValueError(f"{option!r} is no option of sbatch; write it as --constraint=a100")
        return options

    @override
    def render(self, name: str, request: Request) -> str:
        """The batch script, whole."""
        head = ["#!/bin/bash", f"# loopscale: {request.study} on {name}; output goes to an existing folder"]
        head += [f"#SBATCH {option}" for option in self._options(request)]
        gpus = self.gpus_per_node
        values = {"folder": self.folder, "code": self._code(request), "python": self.python}
        values |= {"cpus": self.cpus_per_task, "gpus": gpus, "gres": gpus or "", "mem": self.mem or ""}
        values |= {"seconds": f"{self.join_seconds:g}", "requeue": int(self.requeue)}
        head += ["", *(f"{name}={shlex.quote(str(value))}" for name, value in values.items())]
        place = self.model_copy(
            update={
                "store": self.store or f"{self.folder}/records",
                "storage": self.storage or f"{self.folder}/storage",
                "workers": self.workers or max(1, self.nodes * self._room(request)),
            }
        )
        head += [f"study=({shlex.join(place.command(request, self.python, address=None))})", *self.setup]
        return "\n".join(head) + "\n" + files("loopscale.cluster").joinpath("slurm.sh").read_text()

    def _options(self, request: Request) -> Iterator[str]:
        """Of sbatch, quoted as it reads them: a value in quotes is one word, and % is its own escape."""
        output = self.folder.replace("%", "%%") + "/logs/%j.log"
        given = {"job-name": request.study, "output": output, "open-mode": "append"}
        given |= {"partition": self.partition, "account": self.account, "qos": self.qos, "time": self.time}
        given |= {"nodes": self.nodes, "ntasks-per-node": 1, "cpus-per-task": self.cpus_per_task}
        given |= {"gpus-per-node": self.gpus_per_node or None, "mem": self.mem}
        given |= {"signal": f"B:USR1@{WARNING}"}
        yield from (shlex.quote(f"--{key}={value}") for key, value in given.items() if value is not None)
        yield from ("--no-kill", "--requeue" if self.requeue else "--no-requeue")
        yield from map(shlex.quote, self.options)

    def _room(self, request: Request) -> int:
        return fitting(request.resources, self.cpus_per_task, self.gpus_per_node, None)

    def _code(self, request: Request) -> str:
        digest = request.digest or hashlib.sha256(request.text.encode()).hexdigest()[:16]
        return f"{self.folder}/code/{digest}"

    @override
    def submit(self, name: str, request: Request) -> Submission:
        latest = self.latest(name, request.study)
        if latest and latest.state not in ENDED:
            return replace(latest, attached=True)
        folder = Path(self.folder)
        try:
            for part in ("code", "jobs", "logs"):
                (folder / part).mkdir(parents=True, exist_ok=True)
            _unpack(request, Path(self._code(request)))
        except OSError as problem:
            raise ClusterError(
                f"cannot write below {self.folder} ({problem.strerror})", "correct `folder`"
            ) from None
        answer = say(["sbatch", "--parsable"], self.render(name, request))
        job = answer.strip().partition(";")[0]
        (folder / "jobs" / job).mkdir(exist_ok=True)
        about = {"study": request.study, "submitted": time.time()}
        (folder / "jobs" / job / "about.json").write_text(json.dumps(about))
        return Submission(job, request.study, name, "pending", about["submitted"])

    @override
    def submissions(self, name: str) -> list[Submission]:
        abouts = sorted(Path(self.folder).glob("jobs/*/about.json"), key=lambda path: int(path.parent.name))
        if not abouts:
            return []
        lines = say(["squeue", "--me", "--noheader", "--format=%A|%T|%r"]).splitlines()
        queue = {line.split("|")[0].strip(): line.split("|")[1:] for line in lines}
        return [self._submission(name, path, queue.get(path.parent.name)) for path in abouts]

    def _submission(self, name: str, path: Path, queued: list[str] | None) -> Submission:
        about, code = json.loads(path.read_text()), path.parent / "exit"
        made = Submission(path.parent.name, about["study"], name, "pending", about["submitted"])
        if queued and not (
            queued[0] in LIVE and code.exists()
        ):  # what has begun and left a code is at its end
            return replace(made, state=LIVE.get(queued[0], "pending"), detail=queued[1].replace("None", ""))
        if code.exists():
            text = code.read_text().strip()
            state, detail = CODES.get(text, ("failed", f"exit code {text}"))
            return replace(made, state=state, detail=detail, ended=code.stat().st_mtime)
        return replace(made, state="failed", detail=_fate(made.id))

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        log = Path(self.folder, "logs", f"{submission.id}.log")
        while follow and not log.exists() and not self._over(submission):
            time.sleep(1)
        if not log.exists():
            raise ClusterError(f"job {submission.id} has printed nothing yet", "see `loopscale status`")
        yield from tail(log, lambda: self._over(submission), follow, pause=1.0)

    @override
    def stop(self, submission: Submission) -> None:
        if submission.state == "pending":
            say(["scancel", submission.id])
            Path(self.folder, "jobs", submission.id, "exit").write_text("3\n")
            return
        say(["scancel", "--signal=INT", "--batch", submission.id])
        until = time.monotonic() + STOPS
        while not self._over(submission):
            if time.monotonic() > until:
                raise ClusterError(
                    f"job {submission.id} has not stopped within {STOPS:g} s", "see `loopscale logs`"
                )
            time.sleep(1)

    def _over(self, submission: Submission) -> bool:
        found = (each for each in self.submissions(submission.cluster) if each.id == submission.id)
        return next((each.state in ENDED for each in found), True)


def _fate(job: str) -> str:
    """Why a job ended that left no exit code: Slurm killed it, or its first host died."""
    try:
        words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", "--format=State"]
        state = say(words).strip()
    except ClusterError:  # most often: accounts are not kept
        state = ""
    return f"Slurm ended it{f' ({state})' if state else ''}; submit it again to go on"


def _unpack(request: Request, folder: Path) -> None:
    """The package, or without one the study's file, in a folder of its own that appears whole or not at all."""
    if folder.exists():
        return
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".part-"))
    part.chmod(0o755)
    if request.package:
        with zipfile.ZipFile(request.package) as archive:
            archive.extractall(part)
    else:
        (part / request.file).parent.mkdir(parents=True)
        (part / request.file).write_text(request.text)
    try:
        part.rename(folder)
    except OSError:  # somebody was faster
        shutil.rmtree(part)
