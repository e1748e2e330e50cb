"""Slurm: a batch job starts a Ray on the allocation and runs the driver on the first host.

`loopscale submit` runs on a machine that has `sbatch` and the shared folder. The folder holds `code/` (unpacked
packages), `jobs/ID/` (token, Ray's logs, exit code) and `logs/`. It also holds the records and checkpoints, unless
the settings name other places. Slurm may forget ended jobs; their exit codes stay in `jobs/ID/`.

Two signals end a study cleanly. `loopscale stop` sends INT to the batch shell: the driver saves its state and the job
ends. Slurm sends USR1 two minutes before the time limit: the driver saves its state, and the job is queued again under
the same id.
"""

import hashlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    EXIT_STATES,
    Cluster,
    ClusterError,
    OneLine,
    Request,
    Submission,
    SubmissionState,
    trials_per_machine,
)
from loopscale.cluster.commands import follow_file, run_command
from loopscale.cluster.package import unpack

TIME_LIMIT = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
WARNING_SECONDS = 120
"""Slurm's signal comes so long before the time limit. A driver takes up to 40 s to stop."""
STOP_SECONDS = 150.0
BEGUN: dict[str, SubmissionState] = {"RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running"}
"""States of squeue for a job that has begun. Every other job of squeue is pending."""


class Slurm(Cluster, kind="slurm"):
    """A Slurm cluster with a folder that all hosts share."""

    folder: OneLine
    """An absolute path that all hosts share."""
    python: OneLine = "python"
    """The interpreter with the packages of constraints.txt, as the set-up lines leave it."""
    setup: tuple[OneLine, ...] = ()
    """Shell lines that run first: `module load ...`, `source .../activate`."""
    nodes: PositiveInt = 1
    cpus_per_task: PositiveInt = 4
    """CPUs of each host. Each host runs one task."""
    gpus_per_node: NonNegativeInt = 0
    mem: OneLine | None = None
    """Memory of each host, as Slurm writes it: 64G."""
    time: OneLine | None = None
    """The time limit of one job: 12:00:00, 2-00:00:00. The next job resumes the study."""
    partition: OneLine | None = None
    account: OneLine | None = None
    qos: OneLine | None = None
    options: tuple[OneLine, ...] = ()
    """More options of sbatch: --constraint=a100."""
    requeue: bool = True
    """Whether the job is queued again after its time limit or the failure of a host."""
    join_seconds: PositiveFloat = Field(default=300.0, le=86400)
    """Time for the other hosts to join Ray. After it, the study begins without them."""

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
        if value is not None and not (isinstance(value, str) and TIME_LIMIT.fullmatch(value)):
            # YAML reads 12:00:00 without quotes as the number 43200.
            raise ValueError(f"{value!r} is no time limit of Slurm; write it in quotes, as '12:00:00'")
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
        """The complete batch script."""
        head = ["#!/bin/bash", f"# loopscale: {request.study} on {name}; output goes to an existing folder"]
        head += [f"#SBATCH {option}" for option in self._options(request)]
        gpus = self.gpus_per_node
        values = {"folder": self.folder, "code": self._code(request), "python": self.python}
        values |= {"cpus": self.cpus_per_task, "gpus": gpus, "gres": gpus or "", "mem": self.mem or ""}
        values |= {"seconds": f"{self.join_seconds:g}", "requeue": int(self.requeue)}
        head += ["", *(f"{name}={shlex.quote(str(value))}" for name, value in values.items())]
        capacity = self.nodes * trials_per_machine(request.resources, self.cpus_per_task, gpus)
        resolved = self.model_copy(
            update={
                "store": self.store or f"{self.folder}/records",
                "storage": self.storage or f"{self.folder}/storage",
                "workers": self.workers or max(1, capacity),
            }
        )
        head += [f"study=({shlex.join(resolved.command(request, self.python, address=None))})", *self.setup]
        return "\n".join(head) + "\n" + files("loopscale.cluster").joinpath("slurm.sh").read_text()

    def _options(self, request: Request) -> Iterator[str]:
        """The options of sbatch. A quoted value is one word there, and % is escaped by another %."""
        output = self.folder.replace("%", "%%") + "/logs/%j.log"
        options = {"job-name": request.study, "output": output, "open-mode": "append"}
        options |= {"partition": self.partition, "account": self.account, "qos": self.qos, "time": self.time}
        options |= {"nodes": self.nodes, "ntasks-per-node": 1, "cpus-per-task": self.cpus_per_task}
        options |= {"gpus-per-node": self.gpus_per_node or None, "mem": self.mem}
        options |= {"signal": f"B:USR1@{WARNING_SECONDS}"}
        yield from (shlex.quote(f"--{key}={value}") for key, value in options.items() if value is not None)
        yield from ("--no-kill", "--requeue" if self.requeue else "--no-requeue")
        yield from map(shlex.quote, self.options)

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
            unpack(request, Path(self._code(request)))
        except OSError as problem:
            raise ClusterError(
                f"cannot write below {self.folder} ({problem.strerror})", "correct `folder`"
            ) from None
        answer = run_command(["sbatch", "--parsable"], self.render(name, request))
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
        lines = run_command(["squeue", "--me", "--noheader", "--format=%A|%T|%r"]).splitlines()
        queue = {line.split("|")[0].strip(): line.split("|")[1:] for line in lines}
        return [self._submission(name, path, queue.get(path.parent.name)) for path in abouts]

    def _submission(self, name: str, path: Path, queued: list[str] | None) -> Submission:
        about, code = json.loads(path.read_text()), path.parent / "exit"
        submission = Submission(path.parent.name, about["study"], name, "pending", about["submitted"])
        # A job that has begun and has an exit code is about to leave the queue.
        if queued and not (queued[0] in BEGUN and code.exists()):
            detail = queued[1].replace("None", "")
            return replace(submission, state=BEGUN.get(queued[0], "pending"), detail=detail)
        if code.exists():
            text = code.read_text().strip()
            state, detail = EXIT_STATES.get(text, ("failed", f"exit code {text}"))
            return replace(submission, state=state, detail=detail, ended=code.stat().st_mtime)
        return replace(submission, state="failed", detail=_reason_without_exit_code(submission.id))

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        log = Path(self.folder, "logs", f"{submission.id}.log")
        while follow and not log.exists() and not self.has_ended(submission):
            time.sleep(1)
        if not log.exists():
            raise ClusterError(f"job {submission.id} has printed nothing yet", "see `loopscale status`")
        yield from follow_file(log, lambda: self.has_ended(submission), follow, pause=1.0)

    @override
    def stop(self, submission: Submission) -> None:
        if submission.state == "pending":
            run_command(["scancel", submission.id])
            Path(self.folder, "jobs", submission.id, "exit").write_text("3\n")
            return
        run_command(["scancel", "--signal=INT", "--batch", submission.id])
        self.wait_until_stopped(submission, STOP_SECONDS, pause=1.0)


def _reason_without_exit_code(job: str) -> str:
    """The reason why a job left no exit code: Slurm killed it, or its first host failed."""
    try:
        words = [
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={job}",
            "--format=SubmissionState",
        ]
        state = run_command(words).strip()
    except ClusterError:  # usually because the site keeps no accounts
        state = ""
    return f"Slurm ended it{f' ({state})' if state else ''}; submit it again to resume"
