"""The servers of a cluster as real processes on hosts of their own: Ray, PostgreSQL, MLflow, S3."""

import json
import shutil
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.hosts import Host, Network, Process, until

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

POSTGRES = Path("/usr/lib/postgresql")
TOKEN = "0123456789abcdef" * 4
KEYS = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": TOKEN,
    "AWS_ACCESS_KEY_ID": "loopscale",
    "AWS_SECRET_ACCESS_KEY": "loopscale",
    "AWS_ENDPOINT_URL": "http://bucket:9000",
    "AWS_DEFAULT_REGION": "us-east-1",
    # The head looks for dead hosts every second, not every three. Otherwise a test waits half a minute for each.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
    # After this time without a head, the Ray of a host gives up and kills its trials.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""The environment of every host of the cluster."""


class Database:
    """PostgreSQL on a host, its data on the host's own disk."""

    def __init__(self, host: Host) -> None:
        self.host = host
        tools = sorted(POSTGRES.glob("*/bin"))
        assert tools, "no PostgreSQL below /usr/lib/postgresql: apt-get install postgresql"
        self.tools, self.data = tools[-1], host.home / "data"
        shutil.chown(host.folder, "postgres")
        options = ("-U", "loopscale", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
        initdb = self._as_owner("initdb", str(self.tools / "initdb"), "-D", str(self.data), *options)
        assert initdb.wait(60) == 0, initdb.output
        with (host.folder / "data/pg_hba.conf").open("a") as file:
            file.write(f"host all all {host.network.prefix}.0/24 trust\n")

    def _as_owner(self, name: str, *command: str) -> Process:
        return self.host.start(name, "runuser", "-u", "postgres", "--", *command)

    def start(self) -> None:
        options = ("-c", "listen_addresses=*", "-k", str(self.data))
        self.process = self._as_owner(
            "postgres", str(self.tools / "postgres"), "-D", str(self.data), *options
        )
        until(self._answers, 60, "PostgreSQL answers")

    def _answers(self) -> bool:
        assert self.process.running, self.process.output
        try:
            return self.query("SELECT 1") == [(1,)]
        except Exception:
            return False

    def restart(self) -> None:
        """Restart as after a crash: all connections break, and uncommitted data is lost."""
        (postmaster,) = [int((self.host.folder / "data/postmaster.pid").read_text().split()[0])]
        stopped = self._as_owner("stop", "kill", "-QUIT", str(postmaster))
        assert stopped.wait(20) == 0
        self.process.wait(30)
        self.start()

    def query(self, sql: str) -> list[tuple]:
        import psycopg

        address = f"host={self.host.address} user=loopscale dbname=postgres connect_timeout=5"
        with psycopg.connect(address) as connection:
            return connection.execute(sql.encode()).fetchall()


class Tracking:
    """`mlflow server` on a host, with records in PostgreSQL and artifacts on its own disk."""

    uri = "http://tracking:5000"

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        names = ["tracking", self.host.address]
        allowed = ",".join([*names, *(f"{name}:5000" for name in names)])
        command = [sys.executable, "-m", "mlflow", "server", "--host", "0.0.0.0", "--workers", "1"]
        command += ["--backend-store-uri", "postgresql+psycopg://loopscale@database:5432/postgres"]
        command += ["--artifacts-destination", str(self.host.home / "artifacts"), "--allowed-hosts", allowed]
        # Without this variable MLflow starts seven more processes, for its assistant.
        self.process = self.host.start("mlflow", *command, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")

    def wait(self) -> None:
        until(
            lambda: _answers(f"http://{self.host.address}:5000/health", self.process), 300, "MLflow answers"
        )

    def kill(self) -> None:
        self.process.kill()


class Bucket:
    """An S3 server with its objects in memory."""

    url = "s3://loopscale/checkpoints"

    def __init__(self, host: Host) -> None:
        self.host = host
        server = str(Path(__file__).with_name("bucket_server.py"))
        self.process = host.start("s3", sys.executable, server, "9000", str(host.home / "full"))

    def wait(self) -> None:
        address = f"http://{self.host.address}:9000"
        until(lambda: _answers(address, self.process), 300, "the S3 server answers")
        urllib.request.urlopen(
            urllib.request.Request(f"{address}/loopscale", method="PUT"), timeout=10
        ).close()

    def names(self) -> list[str]:
        """The names of its objects."""
        import re

        with urllib.request.urlopen(f"http://{self.host.address}:9000/loopscale", timeout=10) as answer:
            return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())

    def content(self, name: str) -> bytes:
        with self._files.open_input_stream(f"loopscale/{name}") as stream:
            return stream.readall()

    def write(self, name: str, content: bytes) -> None:
        """Replace an object."""
        with self._files.open_output_stream(f"loopscale/{name}") as stream:
            stream.write(content)

    @property
    def _files(self) -> "S3FileSystem":
        from pyarrow.fs import S3FileSystem

        keys = {"access_key": KEYS["AWS_ACCESS_KEY_ID"], "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"]}
        return S3FileSystem(endpoint_override=f"http://{self.host.address}:9000", **keys)

    def fill(self) -> None:
        """The disk is full: objects that are sent are refused until `free`."""
        (self.host.folder / "full").touch()

    def free(self) -> None:
        (self.host.folder / "full").unlink()


class Ray:
    """The Ray of one host. A supervisor restarts it, as Kubernetes or systemd would."""

    def __init__(self, host: Host, head: Host, cpus: int, gpus: int = 0) -> None:
        self.host, self.head, self.cpus, self.gpus = host, head, cpus, gpus

    def start(self) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        address = (
            f"--head --port=6379 --dashboard-host={self.host.address} --include-dashboard=true"
            if self.host is self.head
            else f"--address={self.head.address}:6379"
        )
        script = (
            f"while :; do '{ray}' start {address} --node-ip-address={self.host.address} --num-cpus={self.cpus} "
            f"--num-gpus={self.gpus} "
            f"--object-store-memory=100000000 --temp-dir={self.host.home}/ray --block; sleep 1; done"
        )
        self.process = self.host.start("ray", "sh", "-c", script)


class Cluster:
    """A head without CPUs for trials, two training hosts, and the three servers."""

    def __init__(self, network: Network, workers: int = 2, disk: str = "256m", gpus: int = 0) -> None:
        """`disk` is the size of the last training host's disk. `gpus` of each training host are not there."""
        self.network = network
        self.database = Database(network.host("database"))
        self.database.start()
        self.tracking = Tracking(network.host("tracking"))
        self.tracking.start()
        self.bucket = Bucket(network.host("bucket"))
        head = network.host("head")
        self.head = Ray(head, head, 0)
        self.workers = [
            Ray(network.host(f"worker{n}", disk if n == workers else ""), head, 1, gpus)
            for n in range(1, workers + 1)
        ]
        for each in (self.head, *self.workers):
            each.start()
        self.tracking.wait()
        self.bucket.wait()
        self.wait()

    @property
    def address(self) -> str:
        return f"{self.head.host.address}:6379"

    def wait(self, hosts: int | None = None) -> None:
        """Wait until Ray counts `hosts` live hosts, by default all."""
        wanted = len(self.workers) + 1 if hosts is None else hosts
        until(lambda: len(self.alive()) == wanted, 300, f"{wanted} hosts have joined")

    def alive(self) -> list[str]:
        """The addresses of the hosts that Ray counts as alive."""
        return [node["node_ip"] for node in self._nodes() if node["state"] == "ALIVE"]

    def _nodes(self) -> list[dict]:
        url = f"http://{self.head.host.address}:8265/api/v0/nodes"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)["data"]["result"]["result"]
        except OSError:
            return []


def _answers(url: str, process: Process) -> bool:
    assert process.running, process.output
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except urllib.error.HTTPError as problem:
        problem.close()  # an error is an answer too
        return True
    except OSError:
        return False
    return True
