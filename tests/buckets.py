"""An S3-speaking server of one's own, as a process that can be stopped, killed, and made to ask who is there."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "loopscale",
    "AWS_SECRET_ACCESS_KEY": "of-a-test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""The server takes any, until it is made strict."""


class Bucket:
    """moto's server with one bucket. What it holds, it holds in memory: killed, it forgets."""

    name = "studies"

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.log, self.port = folder / "moto.log", port or free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """What `--storage` takes: everything but credentials."""
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
        for _ in range(600):
            try:
                self._ask("/moto-api/", "GET")
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.1)
            else:
                return self._ask(f"/{self.name}", "PUT")
        raise AssertionError(self.log.read_text())

    def strict(self) -> None:
        """From now on nobody may do anything: nobody has been given a key."""
        self._ask("/moto-api/reset-auth", "POST", b"0")

    def hang(self) -> None:
        """Take connections and answer none, until `go_on`."""
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
