"""A running Ray cluster, reached at the address of its job server. A study is a job there."""

import asyncio
import contextlib
import json
import logging
import os
import shlex
import socket
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import field_validator
from typing_extensions import override

from loopscale.cluster.base import (
    ENDED,
    STOP_ENVIRONMENT,
    Cluster,
    ClusterError,
    HostGroup,
    HostState,
    Request,
    Submission,
    SubmissionState,
)
from loopscale.cluster.commands import last_line
from loopscale.cluster.machine_report import MARK
from loopscale.core.machine_share import trials_per_machine
from loopscale.redaction import STORE_PASSWORD
from loopscale.runner.machine import PACKAGES

if TYPE_CHECKING:  # Ray loads in seconds, and `plan --cluster` needs none of it
    from ray.job_submission import JobSubmissionClient

JOB_STATES: dict[str, SubmissionState] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}
STUDY_METADATA, PACKAGE_METADATA = "loopscale.study", "loopscale.package"
"""Metadata of a job: its study, and the digest of its package."""
CONNECT_SECONDS = 5.0
"""Time for a connection. A host that is off never answers."""
REPORT_SECONDS = 120.0
"""Time for a report of the machines. The first job on a cluster unpacks the code on every machine."""
STOP_SECONDS = 90.0


class Ray(Cluster, kind="ray"):
    """A running Ray cluster. Its machines need the packages of `constraints.txt`; the code is sent along."""

    example = {"address": "http://127.0.0.1:9"}  # a port that no server listens at
    address: str = "http://127.0.0.1:8265"
    """The job server, at the dashboard port of the head."""
    auth: Literal["token", "disabled"] = "token"
    """Whether the cluster asks for a token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."""
    environment: dict[str, str | None] = {}
    """Variables of the driver and the trials. `null` takes the value of the machine that submits.

    Everyone with access to the cluster's dashboard can read them.
    """

    @field_validator("address")
    @classmethod
    def _has_scheme(cls, address: str) -> str:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{address!r} is no job server; write http://HEAD:8265")
        return address.rstrip("/")

    @override
    def submit(self, name: str, request: Request) -> Submission:
        client = self._client(name)
        earlier = [job for job in self._jobs(name, client) if job.study == request.study]
        if earlier and earlier[-1].state not in ENDED:
            return replace(earlier[-1], attached=True)
        identity = f"{request.study.replace('/', '--')}-{len(earlier) + 1}"
        with _one_line_errors(name):
            try:
                client.submit_job(
                    entrypoint=shlex.join(self.command(request)),
                    submission_id=identity,
                    runtime_env=self.runtime(request),
                    metadata={STUDY_METADATA: request.study, PACKAGE_METADATA: request.digest},
                )
            except RuntimeError as problem:
                if "already exists" not in str(problem):
                    raise
                latest = self.latest(name, request.study)  # another user submitted it at the same moment
                if latest is None:
                    raise
                return replace(latest, attached=True)
        return Submission(identity, request.study, name, "pending", time.time())

    def runtime(self, request: Request) -> dict[str, Any]:
        """Ray's runtime environment of the driver. The workers inherit it."""
        runtime = {"env_vars": STOP_ENVIRONMENT | {"PYTHONUNBUFFERED": "1"} | self._environment()}
        return runtime | ({"working_dir": str(request.package)} if request.package else {})

    @override
    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        """The hosts that run now, by the answer of the head. A submission starts none of them."""
        nodes = [node for node in self._nodes(name) if node["state"] == "ALIVE"]
        groups = []
        for resources in (node["resources_total"] for node in nodes):
            cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
            slots = trials_per_machine(trial, cpus, gpus, resources.get("memory", 0.0) / 2**30)
            groups.append(HostGroup(1, cpus, gpus, slots, least=1, started=False))
        return tuple(groups)

    @override
    def host_states(self, submission: Submission) -> tuple[HostState, ...]:
        """The nodes of the cluster, which all studies there share."""
        alive = [node for node in self._nodes(submission.cluster) if node["state"] == "ALIVE"]
        return tuple(
            HostState(node["node_name"], "alive", describe_resources(node["resources_total"]))
            for node in alive
        )

    def _nodes(self, name: str) -> list[dict[str, Any]]:
        """The head's list of nodes, read without Ray's client, which takes seconds to load. Raises ClusterError."""
        headers = {"Authorization": f"Bearer {token}"} if (token := _token()) else {}
        question = urllib.request.Request(f"{self.address}/api/v0/nodes?limit=10000", headers=headers)
        try:
            with urllib.request.urlopen(question, timeout=CONNECT_SECONDS) as answer:
                return json.load(answer)["data"]["result"]["result"]
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise ClusterError(
                f"{name}: no list of nodes at {self.address} ({last_line(str(problem))})",
                "start the cluster, or correct its address or token",
            ) from problem

    @override
    def machine_report(self, name: str, request: Request) -> Mapping[str, Any]:
        words = ["python", "-m", "loopscale.cluster.machine_report", "--packages", ",".join(PACKAGES)]
        words += ["--study", request.study]
        for option, value in (("--store", self.public_store), ("--storage", self.storage)):
            words += [option, value] if value else []
        output = self.run(name, request, words, REPORT_SECONDS)
        line = next((line for line in output.splitlines() if line.startswith(MARK)), None)
        if line is None:
            raise ClusterError(f"{name} gave no report ({output[-300:].strip()})", "see its dashboard")
        return json.loads(line.removeprefix(MARK))

    def run(self, name: str, request: Request, words: list[str], seconds: float) -> str:
        """The output of a command that runs on the cluster in the driver's environment. Raises ClusterError."""
        client = self._client(name)
        with _one_line_errors(name):
            job = client.submit_job(
                entrypoint=shlex.join(words),
                runtime_env=self.runtime(request),
                metadata={PACKAGE_METADATA: request.digest},
            )
            until = time.monotonic() + seconds
            while (state := JOB_STATES[str(client.get_job_status(job).value)]) not in ENDED:
                if time.monotonic() > until:
                    client.stop_job(job)
                    raise ClusterError(
                        f"{name} has not run a first command within {seconds:g} s",
                        f"see its dashboard, {self.address}",
                    )
                time.sleep(0.3)
            text, info = client.get_job_logs(job), client.get_job_info(job)
            with contextlib.suppress(RuntimeError):
                client.delete_job(job)
            if state != "succeeded":
                raise ClusterError(
                    f"{name} cannot run loopscale ({last_line(text) or info.message})",
                    "install the packages of constraints.txt on its machines",
                )
            return text

    @override
    def submissions(self, name: str) -> list[Submission]:
        return self._jobs(name, self._client(name))

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        client = self._client(submission.cluster)
        with _one_line_errors(submission.cluster):
            if not follow:
                yield client.get_job_logs(submission.id)
                return
            pieces, loop = client.tail_job_logs(submission.id), asyncio.new_event_loop()
            try:
                while True:
                    try:
                        yield loop.run_until_complete(anext(pieces))
                    except StopAsyncIteration:
                        return
            finally:
                loop.close()

    @override
    def stop(self, submission: Submission) -> None:
        client = self._client(submission.cluster)
        with _one_line_errors(submission.cluster):
            client.stop_job(submission.id)
        self.wait_until_stopped(submission, STOP_SECONDS, pause=0.3)

    def _environment(self) -> dict[str, str]:
        environment = {}
        for name, value in self.environment.items():
            value = os.environ.get(name) if value is None else value
            if value is None:
                raise ClusterError(
                    f"${name} is not set here", "set it, or give it a value under environment:"
                )
            environment[name] = value
        if self.secrets.keys() - environment.keys():
            raise ClusterError(
                "everyone with access to the cluster's dashboard could read the password of the store",
                f"take the password out of the store's address, and set {STORE_PASSWORD} under environment:",
            )
        return environment

    def _jobs(self, name: str, client: "JobSubmissionClient") -> list[Submission]:
        with _one_line_errors(name):
            jobs = client.list_jobs()
        submissions = [
            Submission(
                job.submission_id,
                job.metadata[STUDY_METADATA],
                name,
                JOB_STATES[str(job.status.value)],
                job.start_time and job.start_time / 1000,
                job.end_time and job.end_time / 1000,
                job.message or "",
            )
            for job in jobs
            if job.submission_id and job.metadata and STUDY_METADATA in job.metadata
        ]
        return sorted(submissions, key=lambda each: each.started or 0.0)

    def _client(self, name: str) -> "JobSubmissionClient":
        """Ray's client. A quick connection first shows whether a server is there."""
        os.environ["RAY_AUTH_MODE"] = os.environ.get("RAY_AUTH_MODE", self.auth)
        for variable in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):  # they would override the cluster's file
            os.environ.pop(variable, None)
        parts = urlsplit(self.address)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((str(parts.hostname), port), CONNECT_SECONDS).close()
        except OSError as problem:
            raise ClusterError(
                f"{name}: no Ray job server answers at {self.address} ({problem})",
                "start the cluster, or correct its address",
            ) from problem
        from ray.job_submission import JobSubmissionClient  # here, because Ray loads slowly

        logging.getLogger("ray").setLevel(logging.ERROR)
        with _one_line_errors(name):
            return JobSubmissionClient(self.address)


def _token() -> str:
    """This user's token for Ray clusters, from Ray's own places; empty if there is none."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token
    place = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray/auth_token")
    try:
        return place.read_text().strip()
    except OSError:
        return ""


def describe_resources(total: Mapping[str, float]) -> str:
    """The CPUs, GPUs and memory of a node, from Ray's names and bytes, in words."""
    amounts = {"CPUs": total.get("CPU"), "GPUs": total.get("GPU"), "GiB": total.get("memory", 0.0) / 2**30}
    return ", ".join(f"{amount:.3g} {name}" for name, amount in amounts.items() if amount)


@contextlib.contextmanager
def _one_line_errors(name: str) -> Iterator[None]:
    """Turns the errors of Ray's client into ClusterError."""
    import requests  # here, because only Ray's dashboard needs it
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as problem:
        missing = "required" in str(problem)[:40]
        raise ClusterError(
            f"{name} {'asks for a token' if missing else 'does not accept the token'}",
            "set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the token of the cluster",
        ) from problem
    except ClusterError:
        raise
    except (ConnectionError, requests.RequestException, RuntimeError) as problem:
        reason = last_line(str(problem))
        raise ClusterError(f"{name}: {reason}", "check the state of the cluster") from problem
