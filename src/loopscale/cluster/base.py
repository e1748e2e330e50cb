"""A cluster: the place where studies run when they do not run on this machine.

Clusters are a family like tasks and models: each kind is one file of this package, and `cluster/*.yaml` holds only
settings. Every cluster runs the same command, `loopscale run`, which starts, resumes and repairs a study. A cluster
decides only where the driver and its workers are. After any failure, the remedy is to submit the study again.
"""

import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import unquote

from pydantic import AfterValidator, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from loopscale.core.config import Config, Family
from loopscale.errors import ClusterError as ClusterError
from loopscale.foresight.held_hosts import HostGroup as HostGroup
from loopscale.redaction import STORE_PASSWORD, password_of, without_password

SubmissionState = Literal["pending", "running", "succeeded", "failed", "stopped"]
ENDED: frozenset[SubmissionState] = frozenset({"succeeded", "failed", "stopped"})
EXIT_STATES: dict[str, tuple[SubmissionState, str]] = {
    "0": ("succeeded", ""),
    "1": ("failed", "trials failed or were lost, or the driver or its Ray failed; see the logs"),
    "2": ("failed", "the study or the store has a mistake; see the logs"),
    "3": ("stopped", ""),
}
"""State and reason for each exit code of the driver."""
STOP_ENVIRONMENT = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
"""Makes Ray stop a job as Ctrl-C stops a driver. Ray's default (SIGTERM, 3 s) loses the latest results."""


def _one_line(text: str) -> str:
    if not text or any(ord(each) < 32 or ord(each) == 127 for each in text):
        raise ValueError(f"{text!r:.80} is empty, or more than a line; write one line")
    return text


OneLine = Annotated[str, AfterValidator(_one_line)]
"""A setting of text without line breaks and other control characters."""


class Prices(Config):
    """The price of an hour, in `currency`."""

    gpu_hour: NonNegativeFloat = 0.0
    core_hour: NonNegativeFloat = 0.0
    currency: str = "USD"

    def cost(self, core_hours: float, gpu_hours: float) -> float:
        return core_hours * self.core_hour + gpu_hours * self.gpu_hour


@dataclass(frozen=True)
class Request:
    """A study for a cluster, with the options of `loopscale submit`."""

    study: str
    """The study's name."""
    text: str
    """The text of the study's file."""
    overrides: dict[str, str] = field(default_factory=dict)
    """The changes of `--set`, by dotted path."""
    package: Path | None = None
    """A zip archive of the code at its commit and the study (`package.py`). None if the cluster needs no code."""
    digest: str = ""
    """The digest of the package. Clusters store equal packages once."""
    resources: dict[str, float] = field(default_factory=dict)
    """The resources of one trial: cpu, gpu, memory (GiB)."""
    rate: float | None = None
    """FLOP/s of one trial, for `training.seconds`. None if the first run measures the speed."""
    plugins: Mapping[str, bytes] = field(default_factory=dict)
    """The files of the study's plugins, by their paths relative to the working directory of the driver."""

    @property
    def file(self) -> str:
        """The study's file, relative to the working directory of the driver."""
        return f"studies/{self.study}.yaml"


@dataclass(frozen=True)
class Submission:
    """A study that was submitted to a cluster, and its state there."""

    id: str
    study: str
    cluster: str
    state: SubmissionState
    started: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    detail: str = ""
    """The cluster's explanation of the state, such as the reason of a failure."""
    attached: bool = False
    """True if the study ran already, so that nothing was started."""

    def document(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class ClusterProblem:
    """A problem of a cluster. A fatal problem would keep the study from running."""

    fatal: bool
    text: str


@dataclass(frozen=True)
class HostState:
    """A host of a cluster now, or a job that waits to become one."""

    name: str
    state: str
    """A word of the cluster's own, such as `running` or `pending`."""
    holds: str = ""
    """The resources that trials can use there, or the place, in words."""
    reason: str = ""
    """Why the host waits; empty for a host that runs."""


class Cluster(Family, package="loopscale.cluster"):
    """The settings and the operations that all kinds of clusters share."""

    example: ClassVar[Mapping[str, Any]] = {}
    """The fewest settings of a cluster of this kind, for the tests of the contract."""
    store: str | None = None
    """The tracking server, by its name inside the cluster."""
    storage: str | None = None
    """The folder or bucket for checkpoints. All machines of the cluster reach it."""
    workers: PositiveInt | None = None
    """Trials at a time. By default the capacity of the cluster."""
    weight: float = Field(default=1.0, gt=0)
    """The study's share of the cluster, relative to the weights of the other studies there."""
    grows: bool = False
    """True if the cluster adds machines while trials wait. A trial may then need more than any present machine has."""
    prices: Prices | None = None
    gpu_memory: PositiveFloat | None = None
    """GiB of one GPU. With it, `plan` warns if a trial's share is too small."""

    @property
    def public_store(self) -> str | None:
        """The store without its password, for commands: everyone on a machine can read the commands there."""
        return self.store and without_password(self.store)

    @property
    def driver_places(self) -> tuple[str | None, str | None]:
        """The store and the storage that the driver uses; None if the driver chooses."""
        return self.store, self.storage

    @property
    def secrets(self) -> dict[str, str]:
        """The variables with the secrets that the driver needs and no command or script shows."""
        password = self.store and password_of(self.store)
        return {STORE_PASSWORD: unquote(password)} if password else {}

    def command(self, request: Request, python: str = "python", address: str | None = "auto") -> list[str]:
        """The driver's command. The cluster runs it in the folder of the unpacked package."""
        words = [python, "-m", "loopscale.cli.main", "run", request.file]
        settings = {"--address": address, "--store": self.public_store, "--storage": self.storage}
        for option, value in settings.items():
            words += [option, value] if value else []
        words += ["--workers", str(self.workers)] if self.workers else []
        words += ["--weight", str(self.weight)] if self.weight != 1 else []
        words += ["--rate", str(request.rate)] if request.rate else []
        for path, value in request.overrides.items():
            words += ["--set", f"{path}={value}"]
        return words

    @abstractmethod
    def submit(self, name: str, request: Request) -> Submission:
        """Start the study on the cluster called `name`, or attach to it if it runs there. Raises ClusterError."""

    @abstractmethod
    def submissions(self, name: str) -> list[Submission]:
        """All submissions that the cluster remembers, the latest last. Raises ClusterError."""

    def no_submissions(self, name: str) -> str:
        """A sentence for a cluster that remembers no submission."""
        return f"no study was submitted to {name}; `loopscale submit STUDY --cluster {name}` submits one"

    @abstractmethod
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        """The driver's output in pieces, until the driver ends if `follow`. Raises ClusterError."""

    @abstractmethod
    def stop(self, submission: Submission) -> None:
        """Stop the driver cleanly: its state is saved, and the next submission resumes. Raises ClusterError."""

    def render(self, name: str, request: Request) -> str:
        """The text that `submit` would send, for a person to read, change and send. Raises ClusterError."""
        raise ClusterError(f"{name} is of kind {self.kind}, which sends no text", "submit to it instead")

    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        """The hosts that a submission starts or uses; empty if this machine cannot know them.

        `trial` has the resources of one trial: cpu, gpu, memory (GiB). Raises ClusterError if the cluster was asked
        and does not answer.
        """
        return ()

    def host_states(self, submission: Submission) -> tuple[HostState, ...]:
        """The hosts that run or wait for a submission that has not ended; empty if this machine cannot know them.

        Raises ClusterError if the cluster was asked and does not answer.
        """
        return ()

    def queue_problems(self, name: str, request: Request) -> list[ClusterProblem]:
        """The problems that this machine can find by asking the queue of the cluster, before anything is queued.

        Raises ClusterError if the queue does not answer.
        """
        return []

    def machine_report(self, name: str, request: Request) -> Mapping[str, Any] | None:
        """The answer of `machine_report.py` from the cluster; None if its machines start with the study.

        Raises ClusterError if the cluster does not answer.
        """
        return None

    def latest(self, name: str, study: str) -> Submission | None:
        """The study's latest submission."""
        return next((each for each in reversed(self.submissions(name)) if each.study == study), None)

    def has_ended(self, submission: Submission) -> bool:
        """True if the submission has ended by now, or is forgotten. Raises ClusterError."""
        states = {each.id: each.state for each in self.submissions(submission.cluster)}
        return states.get(submission.id, "stopped") in ENDED

    def wait_until_stopped(self, submission: Submission, seconds: float, pause: float) -> None:
        """Wait until a submission that was told to stop has ended. Raises ClusterError after `seconds`."""
        until = time.monotonic() + seconds
        while not self.has_ended(submission):
            if time.monotonic() > until:
                raise ClusterError(
                    f"{submission.id} has not stopped within {seconds:g} s", "see `loopscale logs`"
                )
            time.sleep(pause)


def trials_on(hosts: Sequence[HostGroup]) -> int:
    """The number of trials that run at a time on all hosts; at least 1, because a study waits for a fitting host."""
    return max(1, sum(group.count * group.slots for group in hosts))
