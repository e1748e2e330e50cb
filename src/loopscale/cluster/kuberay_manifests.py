"""The Kubernetes objects of a study: its files, its network policy, and its RayJob with the pods.

Fields and rules follow KubeRay's API reference and its validation.go, 1.5.1 to 1.6.2. Names are DNS-1035 labels.
Deletion rules and shutdownAfterJobFinishes exclude each other. A suspended head may not restart.
"""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from loopscale.cluster.base import (
    STOP_ENVIRONMENT,
    Request,
)
from loopscale.cluster.kuberay_settings import KubeRaySettings, Machine

NAME_CHARACTERS = 47
"""The longest name of a RayJob. KubeRay appends its own suffixes."""
WORK = "/loopscale"
"""The driver's working directory. The study's file lies below it."""
STUDY_ANNOTATION, CLUSTER_ANNOTATION = "loopscale/study", "loopscale/cluster"
LABELS = {"app.kubernetes.io/name": "loopscale", "app.kubernetes.io/managed-by": "loopscale"}


def rayjob_name(study: str) -> str:
    """The RayJob's name: a DNS-1035 label, different for every study."""
    plain = re.sub(r"[^a-z0-9]+", "-", study.lower()).strip("-")
    digest = hashlib.sha256(study.encode()).hexdigest()[:8]
    if plain == study and len(study) <= NAME_CHARACTERS - 3 and not re.search(r"-[0-9a-f]{8}$", plain):
        return f"ls-{plain}"
    return f"ls-{plain[: NAME_CHARACTERS - 12].strip('-')}-{digest}"


def manifests(cluster: KubeRaySettings, name: str, request: Request) -> list[dict[str, Any]]:
    """A ConfigMap with the study's file, a NetworkPolicy, and a RayJob, in the order of `kubectl apply`."""
    metadata = {
        "name": rayjob_name(request.study),
        "namespace": cluster.namespace,
        "labels": dict(LABELS),
        "annotations": {STUDY_ANNOTATION: request.study, CLUSTER_ANNOTATION: name},
    }
    # A script, because a job's entrypoint passes through two shells that quote differently.
    check = [cluster.python, "-m", "loopscale.cluster.job_check", "--address", "auto", "--grows"]
    check += ["--study", request.study, "--trial", json.dumps(request.resources)]
    for option, value in (("--store", cluster.store), ("--storage", cluster.storage)):
        check += [option, value] if value else []
    script = f"#!/bin/bash\ncd {WORK} || exit\n{shlex.join(check)} || exit\n"
    script += f"exec {shlex.join(cluster.driver(request))}\n"
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"study.yaml": request.text, "run.sh": script}
        | {key: request.plugins[path].decode() for key, path in _plugin_keys(request).items()},
    }
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": _job(cluster, request)}
    return [files, *([_policy(metadata)] if cluster.network_policy else []), job]


def _policy(metadata: dict[str, Any]) -> dict[str, Any]:
    """Only the study's own pods reach the study's pods. The operator reaches Ray's job server."""
    own = {"matchLabels": {STUDY_ANNOTATION: metadata["name"]}}
    operator = {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": own,
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": own}]},
                {
                    "from": [{"namespaceSelector": {}, "podSelector": operator}],
                    "ports": [{"protocol": "TCP", "port": 8265}],
                },
            ],
        },
    }


def dry_pod(cluster: KubeRaySettings, template: Mapping[str, Any]) -> dict[str, Any]:
    """A pod as KubeRay would make it, for the API server's judgement of quota, service account and security."""
    metadata = template["metadata"] | {"generateName": "loopscale-check-", "namespace": cluster.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _job(cluster: KubeRaySettings, request: Request) -> dict[str, Any]:
    environment = STOP_ENVIRONMENT | {"PYTHONUNBUFFERED": "1"}
    spec: dict[str, Any] = {
        "entrypoint": f"bash {WORK}/run.sh",
        "runtimeEnvYAML": yaml.safe_dump({"env_vars": environment}),
        "backoffLimit": cluster.retries,
    }
    if cluster.keep_on_failure_seconds is None:
        spec |= {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": cluster.keep_seconds}
    else:
        kept = {"SUCCEEDED": cluster.keep_seconds, "FAILED": cluster.keep_on_failure_seconds}
        rules = [
            {"policy": "DeleteCluster", "condition": {"jobStatus": status, "ttlSeconds": seconds}}
            for status, seconds in kept.items()
        ]
        spec |= {"shutdownAfterJobFinishes": False, "deletionStrategy": {"deletionRules": rules}}
    if cluster.active_deadline_seconds:
        spec["activeDeadlineSeconds"] = cluster.active_deadline_seconds
    if cluster.start_deadline_seconds:
        spec["preRunningDeadlineSeconds"] = cluster.start_deadline_seconds
    return spec | {
        "rayClusterSpec": _cluster(cluster, request),
        "submitterPodTemplate": _submitter(cluster, request),
    }


def _submitter(cluster: KubeRaySettings, request: Request) -> dict[str, Any]:
    """The pod that submits the driver to the head and follows its output."""
    amounts = {"cpu": "500m", "memory": "512Mi"}
    container = {
        "name": "ray-job-submitter",
        "image": cluster.image,
        "resources": {"requests": amounts, "limits": dict(amounts)},
        **_locked_down(cluster),
    }
    pulls = (
        {"imagePullSecrets": [{"name": each} for each in cluster.pull_secrets]}
        if cluster.pull_secrets
        else {}
    )
    account = {"serviceAccountName": cluster.service_account} if cluster.service_account else {}
    spec = {"restartPolicy": "Never", "containers": [container], **_pod_user(cluster), **account, **pulls}
    return {"metadata": {"labels": _labels(request)}, "spec": spec}


def _labels(request: Request) -> dict[str, str]:
    return LABELS | {STUDY_ANNOTATION: rayjob_name(request.study)}


def _pod_user(cluster: KubeRaySettings) -> dict[str, Any]:
    """The user of a pod: not root, and the owner of its volumes."""
    if (user := cluster.run_as_user) is None:
        return {}
    owner = {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"securityContext": owner | {"seccompProfile": {"type": "RuntimeDefault"}}}


def _locked_down(cluster: KubeRaySettings) -> dict[str, Any]:
    """The rights of a container: none that a process without root does not need."""
    if cluster.run_as_user is None:
        return {}
    return {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}


def _cluster(cluster: KubeRaySettings, request: Request) -> dict[str, Any]:
    low, high = cluster.min_workers, cluster.max_workers
    spec: dict[str, Any] = {
        "rayVersion": cluster.ray,
        "authOptions": {"mode": "token"},
        "headGroupSpec": {
            "rayStartParams": {} if cluster.trials_on_head else {"num-cpus": "0", "num-gpus": "0"},
            "template": _pod(cluster, "ray-head", cluster.head, request, driver=True),
        },
        "workerGroupSpecs": [
            {
                "groupName": "trials",
                "replicas": low,
                "minReplicas": low,
                "maxReplicas": high,
                "rayStartParams": {},
                "template": _pod(cluster, "ray-worker", cluster.worker, request),
            }
        ],
    }
    if high > low:
        options = {"version": "v2", "idleTimeoutSeconds": cluster.idle_seconds}
        spec |= {"enableInTreeAutoscaling": True, "autoscalerOptions": options}
    return spec


def _pod(
    cluster: KubeRaySettings, name: str, machine: Machine, request: Request, driver: bool = False
) -> dict[str, Any]:
    """A pod of the Ray cluster. The driver's pod gets the study's file and the driver's secrets."""
    amounts = machine.amounts()
    secrets = [cluster.storage_secret, cluster.tracking_secret if driver else None]
    container: dict[str, Any] = {
        "name": name,
        "image": cluster.image,
        "resources": {"requests": amounts, "limits": dict(amounts)},
        "env": [{"name": key, "value": value} for key, value in cluster.environment.items()],
        "envFrom": [{"secretRef": {"name": secret}} for secret in secrets if secret],
        **_locked_down(cluster),
    }
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container], **_pod_user(cluster)}
    if driver:
        spec |= {"terminationGracePeriodSeconds": 90} | _study(container, request)
    optional = {
        "serviceAccountName": cluster.service_account,
        "imagePullSecrets": [{"name": each} for each in cluster.pull_secrets],
        "nodeSelector": dict(machine.node_selector),
        "tolerations": [dict(each) for each in machine.tolerations],
    }
    spec |= {key: value for key, value in optional.items() if value}
    return {"metadata": {"labels": _labels(request)}, "spec": spec}


def _plugin_keys(request: Request) -> dict[str, str]:
    """The paths of the plugins' files, by their keys in the ConfigMap."""
    return {f"plugin-{n}.py": path for n, path in enumerate(sorted(request.plugins))}


def _study(container: dict[str, Any], request: Request) -> dict[str, Any]:
    """Mount the study's file and the script into the container. Returns the volumes.

    Mounting by subPath gives plain files. A whole ConfigMap is mounted as links through a folder named by date, which
    hides the study's name, and its keys cannot hold slashes.
    """
    mounts = {"study.yaml": request.file, "run.sh": "run.sh"} | _plugin_keys(request)
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


def manifests_text(cluster: KubeRaySettings, name: str, request: Request) -> str:
    """The manifests as YAML, for `kubectl apply -f -`."""
    return yaml.dump_all(
        manifests(cluster, name, request),
        Dumper=_ReadableDumper,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
    )
