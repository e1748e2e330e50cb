"""KubeRay (1.5.1 or newer): a Ray cluster for the length of the study, made and taken away by Kubernetes.

How a study ends early. `loopscale stop` runs `ray job stop` in the head's pod: the driver gets SIGINT and a minute,
and saves. To delete the RayJob, or to suspend it, is rougher: KubeRay asks Ray to stop the job, does not wait for it,
and deletes the pods (read in its source, not tried); the driver then has until the head's Ray dies. Nothing that was
recorded or checkpointed is lost then either, only what was trained since.

A RayJob whose head dies is tried again on a new cluster (`retries`), and for a while the old head may still run: two
drivers, of which the study's lease lets one go on. A driver that ends with failed trials is tried again as well.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from time import monotonic, sleep
from typing import Any

import yaml
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from typing_extensions import override

from loopscale.cluster.base import ENDED, Cluster, ClusterError, Request, State, Submission
from loopscale.cluster.manifest import CLUSTER, LABELS, STUDY, label, manifests
from loopscale.cluster.room import fitting
from loopscale.cluster.tool import Line, say, stream
from loopscale.core.config import Config

LARGEST = 250_000
"""Bytes of a study's file: `kubectl apply` keeps what it applied in an annotation, which may have 256 KiB."""
STOPS = 150.0
STATES: dict[str, State] = {
    "Running": "running", "Retrying": "pending", "Suspending": "stopped", "Suspended": "stopped",
    "Failed": "failed",
}  # fmt: skip
"""Of a RayJob's deployment; those not named are on their way to Running."""


class Machine(Config):
    """A pod: what it requests, which is its limit too, and where it may be placed."""

    cpu: PositiveFloat = 2.0
    memory: PositiveFloat = 8.0
    """GiB."""
    gpu: NonNegativeInt = 0
    gpu_resource: Line = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()

    def amounts(self) -> dict[str, str]:
        found = {"cpu": f"{self.cpu:g}", "memory": f"{round(self.memory * 1024)}Mi"}
        return found | ({self.gpu_resource: str(self.gpu)} if self.gpu else {})


class KubeRay(Cluster, kind="kuberay"):
    image: Line
    """With loopscale and its dependencies installed."""
    namespace: Line = "default"
    context: Line | None = None
    """Of kubectl; by default the current one."""
    python: Line = "python"
    ray: Line = "2.60.0"
    """The image's version of Ray."""
    head: Machine = Machine()
    """The driver runs here."""
    worker: Machine = Machine(cpu=4, memory=16)
    min_workers: NonNegativeInt = 0
    max_workers: PositiveInt = 1
    """Pods. If there are more than at least, Ray's autoscaler decides."""
    idle: PositiveInt = 300
    """Seconds without a trial, after which a worker pod is taken away."""
    trials_on_head: bool = False
    service_account: Line | None = None
    pull_secrets: tuple[Line, ...] = ()
    tracking_secret: Line | None = None
    """A Secret with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD: for the driver, who alone writes records."""
    storage_secret: Line | None = None
    """A Secret with the bucket's credentials, AWS_ACCESS_KEY_ID and so on: for the driver and the trials."""
    environment: dict[str, str] = {}
    """Further variables of all pods. Nothing secret: whoever may read the RayJob reads them."""
    keep: NonNegativeInt = 0
    """Seconds that the Ray cluster is kept after the study."""
    keep_on_failure: NonNegativeInt | None = None
    """The same if it failed, to look into it. Needs KubeRay's feature gate RayJobDeletionPolicy."""
    retries: NonNegativeInt = 3
    """How often a new Ray cluster is tried, should a head die."""
    active_deadline: PositiveInt | None = None
    """Seconds from submission to the end. The end is rough: the study's own `budget` is the gentle way."""
    start_deadline: PositiveInt | None = Field(default=None)
    """Seconds until the driver must run. Needs KubeRay 1.6."""

    @field_validator("namespace")
    @classmethod
    def _is_label(cls, namespace: str) -> str:
        if not all(each.isalnum() or each == "-" for each in namespace) or namespace != namespace.lower():
            raise ValueError(f"{namespace!r} is no namespace; use small letters, digits and -")
        return namespace

    @model_validator(mode="after")
    def _has_room(self) -> "KubeRay":
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is more than max_workers {self.max_workers}")
        return self

    def driver(self, request: Request) -> list[str]:
        """The driver's words, in the head's pod."""
        machines = [self.worker] * self.max_workers + [self.head] * self.trials_on_head
        room = sum(fitting(request.resources, each.cpu, each.gpu, each.memory) for each in machines)
        here = self.model_copy(update={"workers": self.workers or max(1, room)})
        return here.command(request, self.python)

    @override
    def render(self, name: str, request: Request) -> str:
        """ConfigMap and RayJob, for `kubectl apply -f -`. Raises ClusterError if the study's file is too large."""
        if len(request.text.encode()) > LARGEST:
            raise ClusterError(
                f"the file of {request.study} has more than {LARGEST // 1000} kB", "put less into it"
            )
        return yaml.dump_all(
            manifests(self, name, request), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=1000
        )

    @override
    def submit(self, name: str, request: Request) -> Submission:
        text, latest = self.render(name, request), self.latest(name, request.study)
        if latest and latest.state not in ENDED:
            return replace(latest, attached=True)
        if latest:  # a RayJob that has ended is never run again
            self._kubectl("delete", "rayjob", latest.id, "--wait=true", "--timeout=50s")
        self._kubectl("apply", "-f", "-", stdin=text)
        return Submission(label(request.study), request.study, name, "pending")

    @override
    def submissions(self, name: str) -> list[Submission]:
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        found = json.loads(self._kubectl("get", "rayjobs", "-l", selector, "-o", "json"))
        ours = [job for job in found["items"] if STUDY in job["metadata"].get("annotations", {})]
        return sorted((submission(job, name) for job in ours), key=lambda each: each.started or 0.0)

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        """Of the Kubernetes Job that KubeRay makes, under the RayJob's name, to submit and follow the driver."""
        if submission.state == "pending":
            raise ClusterError(
                f"{submission.study} has not begun ({submission.detail})", "wait, or see `kubectl`"
            )
        yield from stream(self._words("logs", f"job/{submission.id}", *(["--follow"] if follow else [])))

    @override
    def stop(self, submission: Submission) -> None:
        status = self._job(submission.id).get("status", {})
        job, cluster = status.get("jobId"), status.get("rayClusterName")
        if submission.state == "pending" or not (job and cluster):  # no driver yet: nothing to save
            self._kubectl("delete", "rayjob", submission.id, "--wait=false")
            return
        selector = f"ray.io/cluster={cluster},ray.io/node-type=head"
        pod = self._kubectl("get", "pods", "-l", selector, "-o", "name").strip()
        if not pod:
            raise ClusterError(
                f"{submission.study} has no head pod now", "try again, or `kubectl delete rayjob`"
            )
        command = ["ray", "job", "stop", "--no-wait", "--address", "http://127.0.0.1:8265", job]
        self._kubectl("exec", pod.splitlines()[0], "--container=ray-head", "--", *command)
        until = monotonic() + STOPS
        while _state(self._job(submission.id).get("status", {})) not in ENDED:
            if monotonic() > until:
                raise ClusterError(
                    f"{submission.study} has not stopped within {STOPS:g} s", "see `loopscale logs`"
                )
            sleep(2)
        # Deletion rules know success and failure only, and would keep the cluster of a stopped study for ever.
        self._kubectl("delete", "raycluster", cluster, "--ignore-not-found", "--wait=false")

    def _job(self, identity: str) -> dict[str, Any]:
        return json.loads(self._kubectl("get", "rayjob", identity, "-o", "json"))

    def _kubectl(self, *words: str, stdin: str | None = None) -> str:
        return say(self._words(*words), stdin, "see whether the context, the namespace and KubeRay are there")

    def _words(self, *words: str) -> list[str]:
        context = [f"--context={self.context}"] if self.context else []
        return ["kubectl", *context, f"--namespace={self.namespace}", *words]


def submission(job: dict[str, Any], name: str) -> Submission:
    """What Kubernetes says of a RayJob."""
    metadata, status = job["metadata"], job.get("status", {})
    notes = metadata["annotations"]
    return Submission(
        metadata["name"],
        notes[STUDY],
        notes.get(CLUSTER, name),
        _state(status),
        _seconds(status.get("startTime") or metadata.get("creationTimestamp")),
        _seconds(status.get("endTime")),
        " ".join(filter(None, (status.get("reason"), status.get("message")))),
    )


def _state(status: dict[str, Any]) -> State:
    deployment, driver = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
    if deployment in ("Complete", "Failed") and driver == "STOPPED":
        return "stopped"
    if deployment == "Complete":
        return "succeeded" if driver == "SUCCEEDED" else "failed"
    return STATES.get(deployment, "pending")


def _seconds(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


class _Plain(yaml.SafeDumper):
    """Without anchors, and with text of several lines as a block: it is there to be read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None  # where a block cannot hold it, PyYAML takes quotes
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)
