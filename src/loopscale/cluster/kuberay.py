"""KubeRay (1.5.1 or newer): Kubernetes creates a Ray cluster for a study, and deletes it at the study's end.

A study ends early in two ways. `loopscale stop` runs `ray job stop` in the head's pod: the driver gets SIGINT and a
minute to save its state. Deleting or suspending the RayJob is rougher: KubeRay asks Ray to stop the job, does not wait,
and deletes the pods (read in its source, not tried). Recorded results and checkpoints survive both ways. The rough way
loses the training since the last checkpoint.

Before `submit` applies the RayJob, the API server judges the manifests and the pods without creating them. Then the
head's pod checks itself before it runs the driver (`job_check.py`), and the study ends with the same line.

If the head of a RayJob dies, KubeRay starts a new cluster (`retries`), and for a while the old head may still run. The
study's lease then lets only one of the two drivers go on. A driver that ends with failed trials is retried as well.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import yaml
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    ClusterError,
    ClusterProblem,
    HostState,
    Request,
    Submission,
    SubmissionState,
)
from loopscale.cluster.commands import run_command, stream_command
from loopscale.cluster.kuberay_manifests import (
    CLUSTER_ANNOTATION,
    LABELS,
    STUDY_ANNOTATION,
    dry_pod,
    manifests,
    manifests_text,
    rayjob_name,
)
from loopscale.cluster.kuberay_settings import KubeRaySettings
from loopscale.redaction import STORE_PASSWORD

STUDY_BYTES = 250_000
"""The largest study file. `kubectl apply` copies the file into an annotation of at most 256 KiB."""
STOP_SECONDS = 150.0
DEPLOYMENT_STATES: dict[str, SubmissionState] = {
    "Running": "running",
    "Retrying": "pending",
    "Suspending": "stopped",
    "Suspended": "stopped",
    "Failed": "failed",
}
"""States of a RayJob's deployment. All other states come before Running."""


class KubeRay(KubeRaySettings, kind="kuberay"):
    """A Kubernetes cluster with the KubeRay operator."""

    @override
    def render(self, name: str, request: Request) -> str:
        """ConfigMap and RayJob, for `kubectl apply -f -`.

        Raises ClusterError if the study's file is too large, or if the RayJob would show a password.
        """
        if self.secrets:
            raise ClusterError(
                "everyone who can read the RayJob could read the password of the store",
                f"take it out of the store's address, and put {STORE_PASSWORD} into the secret of `tracking_secret`",
            )
        if len(request.text.encode()) + sum(map(len, request.plugins.values())) > STUDY_BYTES:
            what = f"the file of {request.study}, with its plugins, has more than {STUDY_BYTES // 1000} kB"
            raise ClusterError(what, "shorten the files, or install the plugins in the image")
        return manifests_text(self, name, request)

    @override
    def queue_problems(self, name: str, request: Request) -> list[ClusterProblem]:
        """The answers of the API server: to the manifests, to a pod of each kind, and on secrets and quotas."""
        problems = [
            ClusterProblem(True, f"the cluster has no {key}; write {key}: {example} in its file")
            for key, example in (("store", "http://TRACKING-SERVER:5000"), ("storage", "s3://BUCKET/PREFIX"))
            if not getattr(self, key)
        ]
        dry = ("--dry-run=server", "-o", "name", "-f", "-")
        asked = [(("apply", *dry), self.render(name, request))]
        group = manifests(self, name, request)[-1]["spec"]["rayClusterSpec"]
        templates = (group["headGroupSpec"]["template"], group["workerGroupSpecs"][0]["template"])
        asked += [(("create", *dry), yaml.safe_dump(dry_pod(self, template))) for template in templates]
        for words, text in asked:
            try:
                self._kubectl(*words, stdin=text)
            except ClusterError as problem:
                problems.append(ClusterProblem(True, str(problem)))
                break  # the pods would fail for the same reason
        secrets = [self.tracking_secret, self.storage_secret, *self.pull_secrets]
        for secret in filter(None, secrets):
            try:
                self._kubectl("get", "secret", secret, "-o", "name")
            except ClusterError as problem:  # a user who may not read secrets may still use them
                problems.append(ClusterProblem("not found" in str(problem), str(problem)))
        try:
            quotas = json.loads(self._kubectl("get", "resourcequotas", "-o", "json"))["items"]
        except ClusterError:
            return problems
        return [*problems, *quota_problems(self, quotas)]

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
        found = [
            (submission_of_rayjob(job, name), job.get("status", {}).get("rayClusterName")) for job in ours
        ]
        if any(each.state == "pending" and cluster for each, cluster in found):
            reasons = waiting_reasons(
                json.loads(self._kubectl("get", "pods", "-l", selector, "-o", "json"))["items"]
            )
            found = [
                (
                    replace(each, detail=reasons.get(cluster, each.detail))
                    if each.state == "pending"
                    else each,
                    cluster,
                )
                for each, cluster in found
            ]
        return sorted((each for each, _ in found), key=lambda each: each.started or 0.0)

    @override
    def host_states(self, submission: Submission) -> tuple[HostState, ...]:
        """The pods of the study's Ray cluster."""
        job = json.loads(self._kubectl("get", "rayjob", submission.id, "-o", "json"))
        cluster = job.get("status", {}).get("rayClusterName")
        if not cluster:
            return ()
        selector = f"ray.io/cluster={cluster}"
        return pod_states(json.loads(self._kubectl("get", "pods", "-l", selector, "-o", "json"))["items"])

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


def pod_states(pods: Sequence[Mapping[str, Any]]) -> tuple[HostState, ...]:
    """The state of each pod, its node, and the reason why the pod waits."""
    return tuple(
        HostState(
            pod["metadata"]["name"],
            pod.get("status", {}).get("phase", "unknown").lower(),
            f"on {node}" if (node := pod.get("spec", {}).get("nodeName")) else "",
            _waiting_reason(pod),
        )
        for pod in pods
    )


def waiting_reasons(pods: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The reason why a pod of a Ray cluster waits, by the name of the cluster."""
    reasons = dict[str, str]()
    for pod in pods:
        cluster = pod["metadata"].get("labels", {}).get("ray.io/cluster")
        if cluster and (reason := _waiting_reason(pod)):
            reasons.setdefault(cluster, reason)
    return reasons


def _waiting_reason(pod: Mapping[str, Any]) -> str:
    """Why a pod waits, such as an image that cannot be pulled; empty if the pod does not say."""
    status = pod.get("status", {})
    states = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses", [])]
    unscheduled = [each for each in status.get("conditions", []) if each.get("reason") == "Unschedulable"]
    given = next((each for each in (*states, *unscheduled) if each.get("message")), None)
    return f"{given['reason']}: {' '.join(given['message'].split())[:300]}" if given else ""


QUANTITIES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
QUANTITIES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
"""Factors of the suffixes of Kubernetes' quantities."""


def quota_problems(cluster: KubeRaySettings, quotas: Sequence[Mapping[str, Any]]) -> Iterator[ClusterProblem]:
    """The quotas of the namespace that the head and one worker exceed, or all workers."""
    least, most = (_requests(cluster, count) for count in (max(1, cluster.min_workers), cluster.max_workers))
    for quota in quotas:
        status, name = quota.get("status", {}), quota["metadata"]["name"]
        for key, hard in status.get("hard", {}).items():
            amount = key.removeprefix("requests.").removeprefix("limits.")
            left = quantity(hard) - quantity(status.get("used", {}).get(key, "0"))
            if least.get(amount, 0.0) > left:
                what = f"the quota {name} leaves {key} {left:g}, and the head and one worker need {least[amount]:g}"
                yield ClusterProblem(True, f"{what}; make the pods smaller, or ask for a larger quota")
            elif most.get(amount, 0.0) > left:
                what = f"the quota {name} leaves {key} {left:g}, and all {cluster.max_workers} workers need "
                yield ClusterProblem(False, f"{what}{most[amount]:g}; some of them will not start")


def _requests(cluster: KubeRaySettings, workers: int) -> dict[str, float]:
    """The resources of the head and some workers, by the names of a quota."""
    sums = {"pods": 1.0 + workers}
    for machine, count in ((cluster.head, 1), (cluster.worker, workers)):
        for key, amount in machine.amounts().items():
            sums[key] = sums.get(key, 0.0) + count * quantity(amount)
    return sums


def quantity(text: str) -> float:
    """A quantity of Kubernetes: 500m, 8, 16Gi, 2k."""
    number, suffix = re.fullmatch(r"([\d.eE+-]*\d)([A-Za-z]*)", str(text).strip()).groups()  # pyright: ignore
    return float(number) * QUANTITIES[suffix]
