"""A cluster: where studies run when they do not run here, and what can be asked of it.

A family like tasks and models: one file a kind in this package, and `cluster/*.yaml` holds settings only. The work
is always the same command, `loopscale run`, which starts, resumes and repairs; a cluster decides only where its driver
and its workers are. So whatever dies, submitting the study again is the remedy.
"""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from loopscale.core.config import Config, Family

State = Literal["pending", "running", "succeeded", "failed", "stopped"]
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "stopped"})


class ClusterError(RuntimeError):
    """What keeps a cluster from doing what it was asked, and what would help: one line."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}; {remedy}")


class Prices(Config):
    """What an hour costs, in `currency`."""

    gpu_hour: NonNegativeFloat = 0.0
    core_hour: NonNegativeFloat = 0.0
    currency: str = "USD"

    def cost(self, core_hours: float, gpu_hours: float) -> float:
        return core_hours * self.core_hour + gpu_hours * self.gpu_hour


@dataclass(frozen=True)
class Request:
    """A study to be brought to its end by a cluster, as `loopscale submit` was asked for it."""

    study: str
    """The study's name."""
    text: str
    """Its file."""
    overrides: dict[str, str] = field(default_factory=dict)
    """What `--set` changes, by dotted path."""
    package: Path | None = None
    """The code at its commit, and the study, as a zip archive (`pack.py`); None for those who need none."""
    digest: str = ""
    """Of the package: equal packages are sent once."""
    resources: dict[str, float] = field(default_factory=dict)
    """What one trial gets: cpu, gpu, memory (GiB)."""

    @property
    def file(self) -> str:
        """Where the study's file lies below the working directory of the driver."""
        return f"studies/{self.study}.yaml"


@dataclass(frozen=True)
class Submission:
    """What a cluster knows of a study that was submitted to it."""

    id: str
    study: str
    cluster: str
    state: State
    started: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    detail: str = ""
    """What the cluster says of the state; why it failed."""
    attached: bool = False
    """Whether the study was running already, so that nothing was started."""

    def document(self) -> dict[str, Any]:
        """Plain data, as JSON has it."""
        return asdict(self)


class Cluster(Family, package="loopscale.cluster"):
    """Settings that every kind of cluster has, and what every kind can be asked."""

    store: str | None = None
    """The tracking server, by the name that the cluster's machines know it by."""
    storage: str | None = None
    """The folder or bucket that all machines of the cluster reach; checkpoints are kept there."""
    workers: PositiveInt | None = None
    """Trials at a time; by default as many as the cluster has room for."""
    weight: float = Field(default=1.0, gt=0)
    """The share of the cluster that a study may have, against the weights of the others that run there."""
    grows: bool = False
    """Whether machines are added when trials wait for them: then a trial may ask for more than any that is up has."""
    prices: Prices | None = None
    gpu_memory: PositiveFloat | None = None
    """GiB of one GPU: `plan` then says when a trial's share is too small for it."""

    def command(self, request: Request, python: str = "python", address: str | None = "auto") -> list[str]:
        """The driver's words, below the package's folder (or with its file given): what the cluster runs."""
        words = [python, "-m", "loopscale.cli.main", "run", request.file]
        settings = {"--address": address, "--store": self.store, "--storage": self.storage}
        for option, value in settings.items():
            words += [option, value] if value else []
        words += ["--workers", str(self.workers)] if self.workers else []
        words += ["--weight", str(self.weight)] if self.weight != 1 else []
        for path, value in request.overrides.items():
            words += ["--set", f"{path}={value}"]
        return words

    @abstractmethod
    def submit(self, name: str, request: Request) -> Submission:
        """Start the study on the cluster called `name`, or attach to it where it runs. Raises ClusterError."""

    @abstractmethod
    def submissions(self, name: str) -> list[Submission]:
        """All that the cluster remembers, the latest last. Raises ClusterError."""

    @abstractmethod
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        """What the driver has printed, in pieces; until it ends, if `follow`. Raises ClusterError."""

    @abstractmethod
    def stop(self, submission: Submission) -> None:
        """Stop it cleanly: its state is saved, and submitting it again goes on. Raises ClusterError."""

    def render(self, name: str, request: Request) -> str:
        """What would be sent, as text that a person can read, change and send. Raises ClusterError where none is."""
        raise ClusterError(f"{name} is of kind {self.kind}, which sends no text", "submit to it instead")

    def latest(self, name: str, study: str) -> Submission | None:
        """The study's latest submission."""
        return next((each for each in reversed(self.submissions(name)) if each.study == study), None)
