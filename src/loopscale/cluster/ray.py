"""A running Ray cluster, reached by the address of its job server: the study is a job there."""

import asyncio
import contextlib
import os
import shlex
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import field_validator
from typing_extensions import override

from loopscale.cluster.base import ENDED, Cluster, ClusterError, Request, State, Submission

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

STATES: dict[str, State] = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "STOPPED": "stopped",
}
STUDY, DIGEST = "loopscale.study", "loopscale.package"
"""Metadata of a job: the study that it runs, and the package that it runs it with."""
STOPPING = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
"""A job is stopped as Ctrl-C stops a driver. Ray's own SIGTERM and 3 seconds would lose the tail of a study."""
PATIENCE = 5.0
"""Seconds for a first answer; a host that is off answers nothing at all."""
STOPS = 90.0


class Ray(Cluster, kind="ray"):
    """A Ray cluster that is up. Its machines need the packages of `constraints.txt`; the code is sent along."""

    address: str = "http://127.0.0.1:8265"
    """Of the job server, on the head's dashboard port."""
    auth: Literal["token", "disabled"] = "token"
    """Whether the cluster asks for a token: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token."""
    environment: dict[str, str | None] = {}
    """Variables of the driver and the trials. `null` takes the value that it has where the study is submitted from.

    Whoever may look at the cluster's dashboard may read them.
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
        jobs = self._jobs(name, client)
        mine = [job for job in jobs if job.study == request.study]
        if mine and mine[-1].state not in ENDED:
            return replace(mine[-1], attached=True)
        identity = f"{request.study.replace('/', '--')}-{len(mine) + 1}"
        with _said(name):
            try:
                client.submit_job(
                    entrypoint=shlex.join(self.command(request)),
                    submission_id=identity,
                    runtime_env=self.runtime(request),
                    metadata={STUDY: request.study, DIGEST: request.digest},
                )
            except RuntimeError as problem:
                if "already exists" not in str(problem):
                    raise
                found = self.latest(name, request.study)  # somebody submitted it in the same moment
                if found is None:
                    raise
                return replace(found, attached=True)
        return Submission(identity, request.study, name, "pending", time.time())

    def runtime(self, request: Request) -> dict[str, Any]:
        """Ray's runtime environment of the driver, which its workers inherit."""
        found = {"env_vars": STOPPING | {"PYTHONUNBUFFERED": "1"} | self._environment()}
        return found | ({"working_dir": str(request.package)} if request.package else {})

    def ask(self, name: str, request: Request, words: list[str], timeout: float) -> str:
        """What a command prints on the cluster, in the environment that the driver would have. Raises ClusterError."""
        client = self._client(name)
        with _said(name):
            job = client.submit_job(
                entrypoint=shlex.join(words),
                runtime_env=self.runtime(request),
                metadata={DIGEST: request.digest},
            )
            until = time.monotonic() + timeout
            while (status := STATES[str(client.get_job_status(job).value)]) not in ENDED:
                if time.monotonic() > until:
                    client.stop_job(job)
                    raise ClusterError(
                        f"{name} has not run a first command within {timeout:g} s",
                        "see its dashboard, " + self.address,
                    )
                time.sleep(0.3)
            text, info = client.get_job_logs(job), client.get_job_info(job)
            with contextlib.suppress(RuntimeError):
                client.delete_job(job)
            if status != "succeeded":
                raise ClusterError(
                    f"{name} cannot run loopscale ({_last(text) or info.message})",
                    "install what constraints.txt lists on its machines",
                )
            return text

    @override
    def submissions(self, name: str) -> list[Submission]:
        return self._jobs(name, self._client(name))

    @override
    def logs(self, submission: Submission, follow: bool) -> Iterator[str]:
        client = self._client(submission.cluster)
        with _said(submission.cluster):
            if not follow:
                yield client.get_job_logs(submission.id)
                return
            tail, loop = client.tail_job_logs(submission.id), asyncio.new_event_loop()
            try:
                while True:
                    try:
                        yield loop.run_until_complete(anext(tail))
                    except StopAsyncIteration:
                        return
            finally:
                loop.close()

    @override
    def stop(self, submission: Submission) -> None:
        client = self._client(submission.cluster)
        with _said(submission.cluster):
            client.stop_job(submission.id)
            until = time.monotonic() + STOPS
            while STATES[str(client.get_job_status(submission.id).value)] not in ENDED:
                if time.monotonic() > until:
                    raise ClusterError(
                        f"{submission.id} has not stopped within {STOPS:g} s", "see `loopscale logs`"
                    )
                time.sleep(0.3)

    def _environment(self) -> dict[str, str]:
        found = {}
        for name, value in self.environment.items():
            value = os.environ.get(name) if value is None else value
            if value is None:
                raise ClusterError(
                    f"${name} is not set here", "set it, or give it a value under environment:"
                )
            found[name] = value
        return found

    def _jobs(self, name: str, client: "JobSubmissionClient") -> list[Submission]:
        with _said(name):
            jobs = [job for job in client.list_jobs() if job.submission_id and STUDY in (job.metadata or {})]
        found = [
            Submission(
                str(job.submission_id),
                (job.metadata or {})[STUDY],
                name,
                STATES[str(job.status.value)],
                job.start_time and job.start_time / 1000,
                job.end_time and job.end_time / 1000,
                job.message or "",
            )
            for job in jobs
        ]
        return sorted(found, key=lambda each: each.started or 0.0)

    def _client(self, name: str) -> "JobSubmissionClient":
        """Ray's client, after a quick look whether anybody is there."""
        os.environ["RAY_AUTH_MODE"] = os.environ.get("RAY_AUTH_MODE", self.auth)
        for variable in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):  # they would override the cluster's file
            os.environ.pop(variable, None)
        parts = urlsplit(self.address)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((str(parts.hostname), port), PATIENCE).close()
        except OSError as problem:
            raise ClusterError(
                f"{name}: no Ray job server answers at {self.address} ({problem})",
                "start the cluster, or correct its address",
            ) from problem
        import logging

        from ray.job_submission import JobSubmissionClient

        logging.getLogger("ray").setLevel(logging.ERROR)
        with _said(name):
            return JobSubmissionClient(self.address)


@contextlib.contextmanager
def _said(name: str) -> Iterator[None]:
    """What Ray's client raises, as one line."""
    import requests
    from ray.exceptions import AuthenticationError

    try:
        yield
    except AuthenticationError as problem:
        missing = "required" in str(problem)[:40]
        raise ClusterError(
            f"{name} {'asks for a token' if missing else 'does not accept the token'}",
            "set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH, to the token that the cluster was started with",
        ) from problem
    except (ConnectionError, requests.RequestException, RuntimeError) as problem:
        if isinstance(problem, ClusterError):
            raise
        raise ClusterError(f"{name}: {_last(str(problem))}", "see whether the cluster is well") from problem


def _last(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
