"""Slurm: a batch job starts a Ray on its first host, and runs the driver there.

In `mode: gang` the job holds all hosts from start to end. In `mode: elastic` the job is small, and holds no host for
trials. It submits one worker job for each host that trials need. A worker job joins Ray when it starts. It leaves at
its time limit, if its host is drained, or after `idle` seconds without a trial. The trials of a host that leaves resume
on other hosts from their checkpoints.

`loopscale submit` runs on a machine that has `sbatch` and the shared folder. The folder holds `code/` (unpacked
packages), `jobs/ID/` (token, Ray's logs, exit code) and `logs/`. It also holds the records and checkpoints, unless
the settings name other places. Slurm may forget ended jobs; their exit codes stay in `jobs/ID/`. Before the driver,
the job checks its hosts as `loopscale submit` would (`job_check.py`), and a problem ends the job at once.

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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    EXIT_STATES,
    Cluster,
    ClusterError,
    ClusterProblem,
    HostGroup,
    HostState,
    OneLine,
    Request,
    Submission,
    SubmissionState,
    trials_on,
)
from loopscale.cluster.commands import follow_file, run_command
from loopscale.cluster.former_names import Former
from loopscale.cluster.package import unpack
from loopscale.cluster.slurm_queue import WantedHosts, slurm_problems
from loopscale.core.config import Config
from loopscale.core.files import make_private
from loopscale.core.machine_share import trials_per_machine

WORKER_JOB = "loopscale-worker-"
"""The name of a worker job is this prefix and the number of the driver's job, see `slurm.sh`."""
SLURM_TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")
LENGTH, SECONDS = re.compile(r"(\d+(?:\.\d+)?) ?(min|h|d)"), {"min": 60, "h": 3600, "d": 86400}
WARNING_SECONDS = 120
"""Slurm's signal comes so long before the time limit. A driver takes up to 40 s to stop."""
LEAVE_SECONDS = 60
"""Slurm's signal comes so long before the time limit of a worker job. A host takes a few seconds to leave Ray."""
STOP_SECONDS = 150.0
GPU = re.compile(r"((?P<type>[A-Za-z][\w.-]*):)?(?P<count>\d+)")
WORKER_END = "END-OF-THE-WORKER-JOB"
BEGUN: dict[str, SubmissionState] = {"RUNNING": "running", "COMPLETING": "running", "SUSPENDED": "running"}
"""States of squeue for a job that has begun. Every other job of squeue is pending."""


def _slurm_time(value: object) -> object:
    """A time limit as Slurm writes it. Raises ValueError."""
    if isinstance(value, str) and (found := LENGTH.fullmatch(value)):
        seconds = round(float(found[1]) * SECONDS[found[2]])
        days, rest = divmod(seconds, 86400)
        text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
        return f"{days}-{text}" if days else text
    if value is not None and not (isinstance(value, str) and SLURM_TIME.fullmatch(value)):
        # YAML reads 12:00:00 without quotes as the number 43200.
        raise ValueError(f"{value!r} is no time limit; write 12 h, 90 min or 2 d, or in quotes '12:00:00'")
    return value


TimeLimit = Annotated[OneLine, BeforeValidator(_slurm_time)]


def _gib(value: object) -> float | None:
    """GiB of a memory as Slurm writes it: 64G, 500M, or a number of MiB. Raises ValueError."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", str(value), re.IGNORECASE)
    if not found or isinstance(value, bool):
        raise ValueError(f"{value!r} is no memory; write memory_gib: 64")
    return int(found[1]) * 1024.0 ** ("KMGT".index(found[2].upper() or "M") - 2)


def _memory(gib: float | None) -> str | None:
    """A memory as Slurm writes it."""
    return None if gib is None else f"{gib:g}G" if gib == int(gib) else f"{round(gib * 1024)}M"


MEMORY, TIME = Former("memory_gib", _gib), Former("time_limit")


def _home(text: str) -> str:
    """A path with the home folder in the place of `~`. The scripts quote paths, so no shell replaces it there."""
    return os.path.expanduser(text)


HomePath = Annotated[OneLine, AfterValidator(_home)]


class Container(Config):
    """A container for the driver, Ray and the trials. `python` is the interpreter inside."""

    image: HomePath
    """Apptainer: a .sif file, or docker://REGISTRY/NAME:TAG. Pyxis: a .sqsh file, or REGISTRY#NAME:TAG."""
    runtime: Literal["apptainer", "pyxis"] = "apptainer"
    options: tuple[OneLine, ...] = ()
    """More options of `apptainer exec` (--bind=/data), or of srun with pyxis (--container-env=HF_HOME)."""


class DriverJob(Config):
    """The job of the driver in `mode: elastic`. It needs no GPU."""

    cpus: PositiveInt = 2
    former_names: ClassVar[dict[str, Former]] = {"mem": MEMORY, "time": TIME}

    memory_gib: PositiveFloat | None = 8.0
    partition: OneLine | None = None
    """By default the partition of the workers."""
    time_limit: TimeLimit | None = None
    """By default the time limit of the workers. The next job resumes the study."""
    options: tuple[OneLine, ...] = ()
    """More options of sbatch."""


class Slurm(Cluster, kind="slurm"):
    """A Slurm cluster with a folder that all hosts share."""

    former_names: ClassVar[dict[str, Former]] = {"mem": MEMORY, "time": TIME, "idle": Former("idle_seconds")}
    example = {"folder": "/shared/loopscale"}

    folder: OneLine
    """An absolute path that all hosts share."""
    python: HomePath = "python"
    """The interpreter with the packages of constraints.txt, as the set-up lines leave it."""
    setup: tuple[OneLine, ...] = ()
    """Shell lines that run first: `module load ...`, `source .../activate`."""
    mode: Literal["gang", "elastic"] = "gang"
    """gang: one job with all hosts. elastic: a small job for the driver, and worker jobs that come and go."""
    nodes: PositiveInt = 1
    """Hosts of the job. With mode: elastic, the largest number of worker jobs."""
    cpus_per_task: PositiveInt = 4
    """CPUs of each host. Each host runs one task."""
    gpus_per_node: NonNegativeInt = 0
    gpu: OneLine | None = None
    """GPUs of each host with their type, instead of gpus_per_node: a100:1."""
    memory_gib: PositiveFloat | None = None
    """Memory of each host."""
    time_limit: TimeLimit | None = None
    """The time limit of one job: 12 h, 90 min, 2 d, or as Slurm writes it, in quotes: '2-00:00:00'.

    The next job resumes the study.
    """
    partition: OneLine | None = None
    account: OneLine | None = None
    qos: OneLine | None = None
    options: tuple[OneLine, ...] = ()
    """More options of sbatch: --constraint=a100. With mode: elastic, of the worker jobs."""
    container: Container | None = None
    driver: DriverJob = DriverJob()
    """With mode: elastic, the job of the driver."""
    idle_seconds: PositiveInt = 300
    """With mode: elastic, the time without a trial after which a worker job ends."""
    array_limit: PositiveInt | None = None
    """With mode: elastic, worker jobs of one array that run at a time, as in --array=1-8%4."""
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

    @field_validator("store", "storage")
    @classmethod
    def _is_place(cls, place: str | None) -> str | None:
        place = place and _home(place)
        if place and "://" not in place and not place.startswith("/"):
            raise ValueError(
                f"{place!r} is neither absolute nor an address; write it as /scratch/me/loopscale"
            )
        return place

    @field_validator("gpu")
    @classmethod
    def _is_gpu(cls, gpu: str | None) -> str | None:
        if gpu is not None and not GPU.fullmatch(gpu):
            raise ValueError(f"{gpu!r} is no GPU of Slurm; write TYPE:COUNT, as a100:1, or a number")
        return gpu

    @model_validator(mode="after")
    def _is_consistent(self) -> "Slurm":
        if self.gpu and self.gpus_per_node:
            raise ValueError("gpu and gpus_per_node both give the GPUs of a host; write one of them")
        unused = [key for key in ("driver", "idle_seconds", "array_limit") if key in self.model_fields_set]
        if self.mode == "gang" and unused:
            raise ValueError(
                f"{unused[0]} is for mode: elastic; write mode: elastic, or leave {unused[0]} out"
            )
        return self

    @property
    def gpus(self) -> int:
        """GPUs of each host."""
        found = GPU.fullmatch(self.gpu or "")
        return int(found["count"]) if found else self.gpus_per_node

    @field_validator("options")
    @classmethod
    def _are_options(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("-"):
                raise ValueError(f"{option!r} is no option of sbatch; write it as --constraint=a100")
        return options

    @override
    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        """The hosts of the allocation, which are held from start to end, or the worker jobs beside the driver."""
        slots = trials_per_machine(trial, self.cpus_per_task, self.gpus)
        if self.mode == "gang":
            return (HostGroup(self.nodes, self.cpus_per_task, self.gpus, slots, least=self.nodes),)
        return (
            HostGroup(1, self.driver.cpus, 0, 0, least=1),
            HostGroup(
                self.nodes, self.cpus_per_task, self.gpus, slots, least=0, idle_seconds=self.idle_seconds
            ),
        )

    @property
    @override
    def driver_places(self) -> tuple[str, str]:
        """The store and the storage, by default in the folder."""
        return self.store or f"{self.folder}/records", self.storage or f"{self.folder}/storage"

    @override
    def queue_problems(self, name: str, request: Request) -> list[ClusterProblem]:
        """What Slurm says of the jobs, before one of them is queued."""
        script = self.render(name, request)
        hosts = WantedHosts(
            nodes=self.nodes,
            cpus=self.cpus_per_task,
            gpus=self.gpus,
            gpu_type=found["type"] if (found := GPU.fullmatch(self.gpu or "")) else None,
            memory=_memory(self.memory_gib),
            time=self.time_limit,
            partition=self.partition,
            account=self.account,
            qos=self.qos,
        )
        if self.mode == "gang":
            return slurm_problems(hosts, script)
        driver = WantedHosts(
            1, self.driver.cpus, 0, None, _memory(self.driver.memory_gib), **self._driver_place()
        )
        worker = self._worker_script(name, request)
        # A worker job has one host. Fewer hosts than `nodes` are no problem.
        problems = [*slurm_problems(driver, script), *slurm_problems(replace(hosts, nodes=1), worker)]
        return list(dict.fromkeys(problems))

    def _driver_place(self) -> dict[str, str | None]:
        return {
            "time": self.driver.time_limit or self.time_limit,
            "partition": self.driver.partition or self.partition,
            "account": self.account,
            "qos": self.qos,
        }

    @override
    def render(self, name: str, request: Request) -> str:
        """The complete batch script. In `mode: elastic` it holds the script of the worker jobs."""
        head = ["#!/bin/bash", f"# loopscale: {request.study} on {name}; output goes to an existing folder"]
        head += [f"#SBATCH {option}" for option in self._options(request)]
        values = self._values(request) | {"mode": self.mode}
        values |= {"seconds": f"{self.join_seconds:g}", "requeue": int(self.requeue)}
        values |= {"array_limit": self.array_limit or ""}
        head += ["", *(f"{key}={shlex.quote(str(value))}" for key, value in values.items())]
        resolved = self._resolved(name, request)
        head += [f"study=({shlex.join(resolved.command(request, self.python, address=None))})"]
        check = [
            "--study",
            request.study,
            "--store",
            str(resolved.public_store),
            "--storage",
            str(resolved.storage),
        ]
        check += ["--trial", json.dumps(request.resources), *(["--grows"] if self.mode == "elastic" else [])]
        head += [f"check=({shlex.join(check)})", *self._container_words(), *self.setup]
        if self.mode == "elastic":
            _, workers = self.hosts(name, request.resources)
            limits = {"--most": self.nodes, "--slots": max(1, workers.slots), "--idle": self.idle_seconds}
            head += [f"elastic=({' '.join(f'{key} {value}' for key, value in limits.items())})"]
            worker = self._worker_script(name, request)
            head += [f"write_worker_job() {{\n  cat << '{WORKER_END}'\n{worker}{WORKER_END}\n}}"]
        return "\n".join(head) + "\n" + _shell("slurm.sh")

    def _worker_script(self, name: str, request: Request) -> str:
        """The batch script of a worker job. The driver's job writes the script beside its token."""
        options = {**self._place(), **self._host_options(), "open-mode": "append"}
        options |= {"signal": f"B:USR1@{LEAVE_SECONDS}"}
        words = [f"--{key}={value}" for key, value in options.items() if value is not None]
        head = ["#!/bin/bash", *(f"#SBATCH {shlex.quote(word)}" for word in [*words, "--no-requeue"])]
        head += [f"#SBATCH {shlex.quote(option)}" for option in self.options]
        head += [f"{key}={shlex.quote(str(value))}" for key, value in self._values(request).items()]
        storage = str(self._resolved(name, request).storage)
        head += [f"check=({shlex.join(['--storage', storage])})", *self._container_words(), *self.setup]
        return "\n".join(head) + "\n" + _shell("slurm_worker.sh")

    def _resolved(self, name: str, request: Request) -> "Slurm":
        """The settings with the store, the storage and the number of trials that the driver uses."""
        store, storage = self.driver_places
        return self.model_copy(
            update={
                "store": store,
                "storage": storage,
                "workers": self.workers or trials_on(self.hosts(name, request.resources)),
            }
        )

    def _values(self, request: Request) -> dict[str, object]:
        """The variables of both scripts."""
        return {
            "folder": self.folder,
            "code": self._code(request),
            "python": self.python,
            "cpus": self.cpus_per_task,
            "gpus": self.gpus,
            "gres": self.gpu or self.gpus_per_node or "",
            "mem": _memory(self.memory_gib) or "",
            "runtime": self.container.runtime if self.container else "none",
            "image": self.container.image if self.container else "",
            "mounts": "".join(f",{path}:{path}" for path in self._outside()),
        }

    def _outside(self) -> list[str]:
        """The folders of records and checkpoints outside of `folder`, which a container does not see by itself."""
        paths = [path for path in self.driver_places if path.startswith("/")]
        return [path for path in dict.fromkeys(paths) if not Path(path).is_relative_to(self.folder)]

    def _container_words(self) -> list[str]:
        return [f"container=({shlex.join(self.container.options)})"] if self.container else ["container=()"]

    def _place(self) -> dict[str, object]:
        return {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "time": self.time_limit,
        }

    def _host_options(self) -> dict[str, object]:
        options: dict[str, object] = {"ntasks-per-node": 1, "cpus-per-task": self.cpus_per_task}
        return options | {
            "gpus-per-node": self.gpu or self.gpus_per_node or None,
            "mem": _memory(self.memory_gib),
        }

    def _options(self, request: Request) -> Iterator[str]:
        """The options of sbatch. A quoted value is one word there, and % is escaped by another %."""
        output = self.folder.replace("%", "%%") + "/logs/%j.log"
        options: dict[str, object] = {"job-name": request.study, "output": output, "open-mode": "append"}
        if self.mode == "gang":
            options |= {**self._place(), "nodes": self.nodes, **self._host_options()}
        else:
            options |= {**self._driver_place(), "nodes": 1, "ntasks-per-node": 1}
            options |= {"cpus-per-task": self.driver.cpus, "mem": _memory(self.driver.memory_gib)}
        options |= {"signal": f"B:USR1@{WARNING_SECONDS}"}
        yield from (shlex.quote(f"--{key}={value}") for key, value in options.items() if value is not None)
        yield from ("--no-kill", "--requeue" if self.requeue else "--no-requeue")
        yield from map(shlex.quote, self.options if self.mode == "gang" else self.driver.options)

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
            if not self.storage:
                make_private(folder / "storage")
            unpack(request, Path(self._code(request)))
        except OSError as problem:
            raise ClusterError(
                f"cannot write below {self.folder} ({problem.strerror})", "correct `folder`"
            ) from None
        # sbatch hands its environment to the job. The script, which shows no password, stays readable for everyone.
        answer = run_command(["sbatch", "--parsable"], self.render(name, request), environment=self.secrets)
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
            if (problem := path.with_name("problem")).exists():  # of the check in the first minute
                detail = problem.read_text().strip()
            return replace(submission, state=state, detail=detail, ended=code.stat().st_mtime)
        return replace(submission, state="failed", detail=_reason_without_exit_code(submission.id))

    @override
    def host_states(self, submission: Submission) -> tuple[HostState, ...]:
        """The job of the driver and its worker jobs, with the reasons of Slurm."""
        words = ["squeue", "--me", "--array", "--noheader", "--format=%i|%A|%j|%T|%N|%r"]
        found = list[HostState]()
        for line in run_command(words).splitlines():
            job, number, name, state, hosts, reason = (word.strip() for word in line.split("|", 5))
            if number == submission.id or name == f"{WORKER_JOB}{submission.id}":
                what = "driver" if number == submission.id else "worker job"
                reason = reason.replace("None", "")
                found.append(HostState(hosts or f"job {job}", state.lower(), f"{what} {job}", reason))
        return tuple(found)

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


def _shell(name: str) -> str:
    """The part of a script that is the same for every study."""
    return files("loopscale.cluster").joinpath(name).read_text()


def _reason_without_exit_code(job: str) -> str:
    """The reason why a job left no exit code: Slurm killed it, or its first host failed."""
    try:
        words = [
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={job}",
            "--format=State",
        ]
        state = run_command(words).strip()
    except ClusterError:  # usually because the site keeps no accounts
        state = ""
    return f"Slurm ended it{f' ({state})' if state else ''}; submit it again to resume"
