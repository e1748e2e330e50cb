"""A private S3 server, as a process that a test can stop, kill or switch to strict authentication."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from tests.ports import free_port

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "loopscale",
    "AWS_SECRET_ACCESS_KEY": "of-a-test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The server accepts any credentials until a test calls `strict`."""


class Bucket:
    """moto's server with one bucket. The content lies in memory and is lost when the server is killed."""

    name = "studies"

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.log, self.port = folder / "moto.log", port or free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address for `--storage`. It contains no credentials."""
        return self.at(self.endpoint)

    def at(self, endpoint: str, prefix: str = "a/prefix") -> str:
        host = endpoint.removeprefix("http://")
        return f"s3://{self.name}/{prefix}?endpoint_override={host}&scheme=http"

    def start(self) -> None:
        command = [
            str(Path(sys.executable).with_name("moto_server")),
            "-H",
            "127.0.0.1",
            "-p",
            str(self.port),
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        for _ in range(1800):
            try:
                self._ask("/moto-api/", "GET")
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.1)
            else:
                return self._ask(f"/{self.name}", "PUT")
        raise AssertionError(self.log.read_text())

    def strict(self) -> None:
        """Reject every later request, because no user has a key."""
        self._ask("/moto-api/reset-auth", "POST", b"0")

    def hang(self) -> None:
        """Accept connections without answers, until `go_on`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process:
            if self.alive:
                self._signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self.process
        os.killpg(self.process.pid, number)

    def _ask(self, path: str, method: str, body: bytes | None = None) -> None:
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(self.endpoint + path, body, headers, method=method)
        urllib.request.urlopen(request, timeout=5).close()
