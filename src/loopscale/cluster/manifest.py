"""The manifests of a study on KubeRay, as plain data: a ConfigMap with its file, and a RayJob with its RayCluster.

Fields and rules: KubeRay's API reference and validation.go, 1.5.1 to 1.6.2 (names are DNS-1035 labels; deletion rules
and shutdownAfterJobFinishes exclude each other; a suspended head may not restart).
"""

import hashlib
import re
import shlex
from typing import TYPE_CHECKING, Any

import yaml

from loopscale.cluster.base import Request

if TYPE_CHECKING:
    from loopscale.cluster.kuberay import KubeRay, Machine

LONGEST = 47
"""Characters of a RayJob's name: KubeRay hangs its own endings on it."""
WORK = "/loopscale"
"""The driver's working directory, below which its study lies."""
STUDY, CLUSTER = "loopscale/study", "loopscale/cluster"
LABELS = {"app.kubernetes.io/name": "loopscale", "app.kubernetes.io/managed-by": "loopscale"}
STOPPING = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
"""A job is stopped as Ctrl-C stops a driver. Ray's own SIGTERM and 3 seconds would lose the tail of a study."""


def label(study: str) -> str:
    """A study's name as Kubernetes takes it: a DNS-1035 label, and another one for every study."""
    plain = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")
    digest = hashlib.sha256(study.encode()).hexdigest()[:8]
    if plain == study and len(study) <= LONGEST - 3 and not re.search(r"-[0-9a-f]{8}$", plain):
        return f"ls-{plain}"
    return f"ls-{plain[: LONGEST - 12].strip('-')}-{digest}"


def manifests(cluster: "KubeRay", name: str, request: Request) -> list[dict[str, Any]]:
    """What is applied, in order."""
    metadata = {
        "name": label(request.study),
        "namespace": cluster.namespace,
        "labels": dict(LABELS),
        "annotations": {STUDY: request.study, CLUSTER: name},
    }
    words = cluster.driver(request)
    # A script, since a job's entrypoint passes through two shells that quote differently.
    script = f"#!/bin/bash\ncd {WORK} && exec {shlex.join(words)}\n"
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"study.yaml": request.text, "run.sh": script},
    }
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": _job(cluster, request)}
    return [files, job]


def _job(cluster: "KubeRay", request: Request) -> dict[str, Any]:
    environment = STOPPING | {"PYTHONUNBUFFERED": "1"}
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


def _cluster(cluster: "KubeRay", request: Request) -> dict[str, Any]:
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


def _pod(cluster: "KubeRay", name: str, machine: "Machine", driven: Request | None) -> dict[str, Any]:
    """A pod of the Ray cluster; where the study is `driven`, with its file and what the driver alone may know."""
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
    """The study's file and the script, mounted by subPath: then they are files. A whole ConfigMap is mounted as

    links through a folder named by date, from which a study's name cannot be read; its keys have no slashes.
    """
    mounts = {"study.yaml": request.file, "run.sh": "run.sh"}
    container["workingDir"] = WORK
    container["volumeMounts"] = [{"name": "work", "mountPath": WORK}] + [
        {"name": "study", "mountPath": f"{WORK}/{path}", "subPath": key, "readOnly": True}
        for key, path in mounts.items()
    ]
    study = {"name": "study", "configMap": {"name": label(request.study)}}
    return {"volumes": [{"name": "work", "emptyDir": {}}, study]}
