"""The settings of a study on Kubernetes: its pods, their secrets, and their lifetime."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from typing_extensions import override

from loopscale.cluster.base import Cluster, HostGroup, OneLine, Request, trials_on
from loopscale.cluster.former_names import Former
from loopscale.core.config import Config
from loopscale.core.machine_share import trials_per_machine


class Machine(Config):
    """A pod: its resources (requested and maximal), and the nodes that may run it."""

    cpu: PositiveFloat = 2.0
    former_names: ClassVar[dict[str, Former]] = {"memory": Former("memory_gib")}

    memory_gib: PositiveFloat = 8.0
    gpu: NonNegativeInt = 0
    gpu_resource: OneLine = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()

    def amounts(self) -> dict[str, str]:
        amounts = {"cpu": f"{self.cpu:g}", "memory": f"{round(self.memory_gib * 1024)}Mi"}
        return amounts | ({self.gpu_resource: str(self.gpu)} if self.gpu else {})


class KubeRaySettings(Cluster):
    """The settings of a Kubernetes cluster with the KubeRay operator, and the resources of a study there."""

    former_names: ClassVar[dict[str, Former]] = {
        "idle": Former("idle_seconds"),
        "keep": Former("keep_seconds"),
        "keep_on_failure": Former("keep_on_failure_seconds"),
        "active_deadline": Former("active_deadline_seconds"),
        "start_deadline": Former("start_deadline_seconds"),
    }

    example = {"image": "registry.example.org/loopscale:1"}
    image: OneLine
    """An image with loopscale and its dependencies."""
    namespace: OneLine = "default"
    context: OneLine | None = None
    """The context of kubectl. By default the current context."""
    python: OneLine = "python"
    ray: OneLine = "2.60.0"
    """The image's version of Ray."""
    head: Machine = Machine()
    """The driver's pod."""
    worker: Machine = Machine(cpu=4, memory_gib=16)
    min_workers: NonNegativeInt = 0
    max_workers: PositiveInt = 1
    """Worker pods. If max_workers exceeds min_workers, Ray's autoscaler decides."""
    idle_seconds: PositiveInt = 300
    """Time without a trial, after which a worker pod is deleted."""
    trials_on_head: bool = False
    run_as_user: PositiveInt | None = 1000
    """The user of all pods, which must not be root. null: no such rule, for an image that needs root."""
    network_policy: bool = True
    """Whether a NetworkPolicy lets only the study's own pods and the KubeRay operator reach the study's pods."""
    service_account: OneLine | None = None
    pull_secrets: tuple[OneLine, ...] = ()
    tracking_secret: OneLine | None = None
    """A Secret with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for the driver: only it writes records."""
    storage_secret: OneLine | None = None
    """A Secret with the bucket's credentials, such as AWS_ACCESS_KEY_ID, for the driver and the trials."""
    environment: dict[str, str] = {}
    """More variables of all pods. Write no secret here: everyone who can read the RayJob can read them."""
    keep_seconds: NonNegativeInt = 0
    """Time that the Ray cluster stays after the study."""
    keep_on_failure_seconds: NonNegativeInt | None = None
    """Time that the Ray cluster stays after a failure. Needs KubeRay's feature gate RayJobDeletionPolicy."""
    retries: NonNegativeInt = 3
    """The number of new Ray clusters after the death of a head."""
    active_deadline_seconds: PositiveInt | None = None
    """Time from submission to a rough end of the study. The study's own `budget` ends it cleanly."""
    start_deadline_seconds: PositiveInt | None = Field(default=None)
    """Time until the driver must run. Needs KubeRay 1.6."""

    @field_validator("namespace")
    @classmethod
    def _is_label(cls, namespace: str) -> str:
        if not all(each.isalnum() or each == "-" for each in namespace) or namespace != namespace.lower():
            raise ValueError(f"{namespace!r} is no namespace; use small letters, digits and -")
        return namespace

    @model_validator(mode="after")
    def _has_range(self) -> Self:
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is more than max_workers {self.max_workers}")
        return self

    def driver(self, request: Request) -> list[str]:
        """The driver's command in the head's pod."""
        capacity = trials_on(self.hosts("", request.resources))
        resolved = self.model_copy(update={"workers": self.workers or capacity})
        return resolved.command(request, self.python)

    @override
    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        """The pods of the Ray cluster. Pods beyond `min_workers` go when they have been idle."""
        head, worker = self.head, self.worker
        on_head, on_worker = (trials_per_machine(trial, m.cpu, m.gpu, m.memory_gib) for m in (head, worker))
        return (
            HostGroup(1, head.cpu, head.gpu, on_head if self.trials_on_head else 0, least=1),
            HostGroup(
                self.max_workers,
                worker.cpu,
                worker.gpu,
                on_worker,
                self.min_workers,
                idle_seconds=self.idle_seconds,
            ),
        )
