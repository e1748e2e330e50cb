"""KubeRay (1.5.1 or newer): Kubernetes creates a Ray cluster for a study, and deletes it at the study's end.

A study ends early in two ways. `loopscale stop` runs `ray job stop` in the head's pod: the driver gets SIGINT and a
minute to save its state. Deleting or suspending the RayJob is rougher: KubeRay asks Ray to stop the job, does not wait,
and deletes the pods (read in its source, not tried). Recorded results and checkpoints survive both ways. The rough way
loses the training since the last checkpoint.

If the head of a RayJob dies, KubeRay starts a new cluster (`retries`), and for a while the old head may still run. The
study's lease then lets only one of the two drivers go on. A driver that ends with failed trials is retried as well.

Fields and rules of the manifests follow KubeRay's API reference and its validation.go, 1.5.1 to 1.6.2. Names are
DNS-1035 labels. Deletion rules and shutdownAfterJobFinishes exclude each other. A suspended head may not restart.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import yaml
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, field_validator, model_validator
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    STOP_ENVIRONMENT,
    Cluster,
    ClusterError,
    OneLine,
    Request,
    Submission,
    SubmissionState,
    trials_per_machine,
)
from loopscale.cluster.commands import run_command, stream_command
from loopscale.core.config import Config

STUDY_BYTES = 250_000
"""The largest study file. `kubectl apply` copies the file into an annotation of at most 256 KiB."""
NAME_CHARACTERS = 47
"""The longest name of a RayJob. KubeRay appends its own suffixes."""
WORK = "/loopscale"
"""The driver's working directory. The study's file lies below it."""
STUDY_ANNOTATION, CLUSTER_ANNOTATION = "loopscale/study", "loopscale/cluster"
LABELS = {"app.kubernetes.io/name": "loopscale", "app.kubernetes.io/managed-by": "loopscale"}
STOP_SECONDS = 150.0
DEPLOYMENT_STATES: dict[str, SubmissionState] = {
    "Running": "running",
    "Retrying": "pending",
    "Suspending": "stopped",
    "Suspended": "stopped",
    "Failed": "failed",
}
"""States of a RayJob's deployment. All other states come before Running."""


class Machine(Config):
    """A pod: its resources (requested and maximal), and the nodes that may run it."""

    cpu: PositiveFloat = 2.0
    memory: PositiveFloat = 8.0
    """GiB."""
    gpu: NonNegativeInt = 0
    gpu_resource: OneLine = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[dict[str, Any], ...] = ()

    def amounts(self) -> dict[str, str]:
        amounts = {"cpu": f"{self.cpu:g}", "memory": f"{round(self.memory * 1024)}Mi"}
        return amounts | ({self.gpu_resource: str(self.gpu)} if self.gpu else {})


class KubeRay(Cluster, kind="kuberay"):
    """A Kubernetes cluster with the KubeRay operator."""

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
    worker: Machine = Machine(cpu=4, memory=16)
    min_workers: NonNegativeInt = 0
    max_workers: PositiveInt = 1
    """Worker pods. If max_workers exceeds min_workers, Ray's autoscaler decides."""
    idle: PositiveInt = 300
    """Seconds without a trial, after which a worker pod is deleted."""
    trials_on_head: bool = False
    service_account: OneLine | None = None
    pull_secrets: tuple[OneLine, ...] = ()
    tracking_secret: OneLine | None = None
    """A Secret with MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for the driver: only it writes records."""
    storage_secret: OneLine | None = None
    """A Secret with the bucket's credentials, such as AWS_ACCESS_KEY_ID, for the driver and the trials."""
    environment: dict[str, str] = {}
    """More variables of all pods. Write no secret here: everyone who can read the RayJob can read them."""
    keep: NonNegativeInt = 0
    """Seconds that the Ray cluster stays after the study."""
    keep_on_failure: NonNegativeInt | None = None
    """Seconds that the Ray cluster stays after a failure. Needs KubeRay's feature gate RayJobDeletionPolicy."""
    retries: NonNegativeInt = 3
    """The number of new Ray clusters after the death of a head."""
    active_deadline: PositiveInt | None = None
    """Seconds from submission to a rough end of the study. The study's own `budget` ends it cleanly."""
    start_deadline: PositiveInt | None = Field(default=None)
    """Seconds until the driver must run. Needs KubeRay 1.6."""

    @field_validator("namespace")
    @classmethod
    def _is_label(cls, namespace: str) -> str:
        if not all(each.isalnum() or each == "-" for each in namespace) or namespace != namespace.lower():
            raise ValueError(f"{namespace!r} is no namespace; use small letters, digits and -")
        return namespace

    @model_validator(mode="after")
    def _has_range(self) -> "KubeRay":
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is more than max_workers {self.max_workers}")
        return self

    def driver(self, request: Request) -> list[str]:
        """The driver's command in the head's pod."""
        machines = [self.worker] * self.max_workers + [self.head] * self.trials_on_head
        capacity = sum(
            trials_per_machine(request.resources, each.cpu, each.gpu, each.memory) for each in machines
        )
        resolved = self.model_copy(update={"workers": self.workers or max(1, capacity)})
        return resolved.command(request, self.python)

    @override
    def render(self, name: str, request: Request) -> str:
        """ConfigMap and RayJob, for `kubectl apply -f -`. Raises ClusterError if the study's file is too large."""
        if len(request.text.encode()) > STUDY_BYTES:
            raise ClusterError(
                f"the file of {request.study} has more than {STUDY_BYTES // 1000} kB", "shorten it"
            )
        return yaml.dump_all(
            manifests(self, name, request),
            Dumper=_ReadableDumper,
            sort_keys=False,
            allow_unicode=True,
            width=1000,
        )

    @override
    def submit(self, name: str, request: Request) -> Submission:
        text, latest = self.render(name, request), self.latest(name, request.study)
        if latest and latest.state not in ENDED:
            return replace(latest, attached=True)
        if latest:  # a RayJob that has ended is never run again
            self._kubectl("delete", "rayjob", latest.id, "--wait=true", "--timeout=50s")
        self._kubectl("apply", "-f", "-", stdin=text)
        return Submission(rayjob_name(request.study), request.study, name, "pending")

    @override
    def submissions(self, name: str) -> list[Submission]:
        selector = ",".join(f"{key}={value}" for key, value in LABELS.items())
        jobs = json.loads(self._kubectl("get", "rayjobs", "-l", selector, "-o", "json"))["items"]
        ours = [job for job in jobs if STUDY_ANNOTATION in job["metadata"].get("annotations", {})]
        return sorted((submission_of_rayjob(job, name) for job in ours), key=lambda each: each.started or 0.0)

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        """The logs of the Kubernetes Job that submits and follows the driver. It has the name of the RayJob."""
        if submission.state == "pending":
            raise ClusterError(
                f"{submission.study} has not begun ({submission.detail})", "wait, or see `kubectl`"
            )
        follow_option = ["--follow"] if follow else []
        yield from stream_command(self._words("logs", f"job/{submission.id}", *follow_option))

    @override
    def stop(self, submission: Submission) -> None:
        rayjob = json.loads(self._kubectl("get", "rayjob", submission.id, "-o", "json"))
        status = rayjob.get("status", {})
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
        self.wait_until_stopped(submission, STOP_SECONDS, pause=2.0)
        # Deletion rules cover success and failure. Without this line the cluster of a stopped study would stay.
        self._kubectl("delete", "raycluster", cluster, "--ignore-not-found", "--wait=false")

    def _kubectl(self, *words: str, stdin: str | None = None) -> str:
        return run_command(self._words(*words), stdin, "check the context, the namespace and KubeRay")

    def _words(self, *words: str) -> list[str]:
        context = [f"--context={self.context}"] if self.context else []
        return ["kubectl", *context, f"--namespace={self.namespace}", *words]


def submission_of_rayjob(job: dict[str, Any], name: str) -> Submission:
    """The submission that a RayJob stands for, with the state that Kubernetes gives."""
    metadata, status = job["metadata"], job.get("status", {})
    annotations = metadata["annotations"]
    return Submission(
        metadata["name"],
        annotations[STUDY_ANNOTATION],
        annotations.get(CLUSTER_ANNOTATION, name),
        _state(status),
        _seconds(status.get("startTime") or metadata.get("creationTimestamp")),
        _seconds(status.get("endTime")),
        " ".join(filter(None, (status.get("reason"), status.get("message")))),
    )


def _state(status: dict[str, Any]) -> SubmissionState:
    deployment, driver = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
    if deployment in ("Complete", "Failed") and driver == "STOPPED":
        return "stopped"
    if deployment == "Complete":
        return "succeeded" if driver == "SUCCEEDED" else "failed"
    return DEPLOYMENT_STATES.get(deployment, "pending")


def _seconds(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None


def rayjob_name(study: str) -> str:
    """The RayJob's name: a DNS-1035 label, different for every study."""
    plain = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")
    digest = hashlib.sha256(study.encode()).hexdigest()[:8]
    if plain == study and len(study) <= NAME_CHARACTERS - 3 and not re.search(r"-[0-9a-f]{8}$", plain):
        return f"ls-{plain}"
    return f"ls-{plain[: NAME_CHARACTERS - 12].strip('-')}-{digest}"


def manifests(cluster: KubeRay, name: str, request: Request) -> list[dict[str, Any]]:
    """A ConfigMap with the study's file, and a RayJob with its RayCluster, in the order of `kubectl apply`."""
    metadata = {
        "name": rayjob_name(request.study),
        "namespace": cluster.namespace,
        "labels": dict(LABELS),
        "annotations": {STUDY_ANNOTATION: request.study, CLUSTER_ANNOTATION: name},
    }
    # A script, because a job's entrypoint passes through two shells that quote differently.
    script = f"#!/bin/bash\ncd {WORK} && exec {shlex.join(cluster.driver(request))}\n"
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"study.yaml": request.text, "run.sh": script},
    }
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": _job(cluster, request)}
    return [files, job]


def _job(cluster: KubeRay, request: Request) -> dict[str, Any]:
    environment = STOP_ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}
    spec: dict[str, Any] = {
        "entrypoint": f"bash {WORK}/run.sh",
        "runtimeEnvYAML": yaml.safe_dump({"env_vars": environment}),
        "backoffLimit": cluster.retries,
    }
    if cluster.keep_on_failure is None:
        spec |= {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": cluster.keep}
    else:
        kept = {"SUCCEEDED": cluster.keep, "FAILED": cluster.keep_on_failure}
        rules = [
            {"policy": "DeleteCluster", "condition": {"jobStatus": status, "ttlSeconds": seconds}}
            for status, seconds in kept.items()
        ]
        spec |= {"shutdownAfterJobFinishes": False, "deletionStrategy": {"deletionRules": rules}}
    if cluster.active_deadline:
        spec["activeDeadlineSeconds"] = cluster.active_deadline
    if cluster.start_deadline:
        spec["preRunningDeadlineSeconds"] = cluster.start_deadline
    return spec | {"rayClusterSpec": _cluster(cluster, request)}


def _cluster(cluster: KubeRay, request: Request) -> dict[str, Any]:
    low, high = cluster.min_workers, cluster.max_workers
    spec: dict[str, Any] = {
        "rayVersion": cluster.ray,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {} if cluster.trials_on_head else {"num-cpus": "0", "num-gpus": "0"},
            "template": _pod(cluster, "ray-head", cluster.head, request),
        },
        "workerGroupSpecs": [
            {
                "groupName": "trials",
                "replicas": low,
                "minReplicas": low,
                "maxReplicas": high,
                "rayStartParams": {},
                "template": _pod(cluster, "ray-worker", cluster.worker, None),
            }
        ],
    }
    if high > low:
        options = {"version": "v2", "idleTimeoutSeconds": cluster.idle}
        spec |= {"enableInTreeAutoscaling": True, "autoscalerOptions": options}
    return spec


def _pod(cluster: KubeRay, name: str, machine: Machine, driven: Request | None) -> dict[str, Any]:
    """A pod of the Ray cluster. The driver's pod gets the study's file and the driver's secrets."""
    amounts = machine.amounts()
    secrets = [cluster.storage_secret, cluster.tracking_secret if driven else None]
    container: dict[str, Any] = {
        "name": name,
        "image": cluster.image,
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "env": [{"name": key, "value": value} for key, value in cluster.environment.items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in secrets if secret],
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if driven:
        spec |= {"terminationGracePeriodSeconds": 90} | _study(container, driven)
    optional = {
        "serviceAccountName": cluster.service_account,
        "imagePullSecrets": [{"name": each} for each in cluster.pull_secrets],
        "nodeSelector": dict(machine.node_selector),
        "tolerations": [dict(each) for each in machine.tolerations],
    }
    spec |= {key: value for key, value in optional.items() if value}
    return {"metadata": {"labels": dict(LABELS)}, "spec": spec}


def _study(container: dict[str, Any], request: Request) -> dict[str, Any]:
    """Mount the study's file and the script into the container. Returns the volumes.

    Mounting by subPath gives plain files. A whole ConfigMap is mounted as links through a folder named by date, which
    hides the study's name, and its keys cannot hold slashes.
    """
    mounts = {"study.yaml": request.file, "run.sh": "run.sh"}
    container["workingDir"] = WORK
    container["volumeMounts"] = [{"name": "work", "mountPath": WORK}] + [
        {"name": "study", "mountPath": f"{WORK}/{path}", "subPath": key, "readOnly": True}
        for key, path in mounts.items()
    ]
    study = {"name": "study", "configMap": {"name": rayjob_name(request.study)}}
    return {"volumes": [{"name": "work", "emptyDir": {}}, study]}


class _ReadableDumper(yaml.SafeDumper):
    """YAML for readers: no anchors, and text of several lines as a block."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _block_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None  # PyYAML takes quotes where a block cannot hold the text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ReadableDumper.add_representer(str, _block_text)
