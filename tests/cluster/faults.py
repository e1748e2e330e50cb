"""Real faults of a cluster. Each fault strikes, lasts a while, and is repaired as an operator would repair it."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.hosts import Host, Process, until
from tests.cluster.servers import Cluster, Ray
from tests.cluster.studies import Study


@dataclass
class Stage:
    """A running study on a cluster, and its present driver."""

    study: Study
    driver: Process
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    repeatable: int = 0
    """The checkpoint intervals that the faults so far may have cost: those in progress, and those that were lost."""

    @property
    def cluster(self) -> Cluster:
        return self.study.cluster

    def worker(self) -> Ray:
        return self.rng.choice(self.cluster.workers)

    def host(self) -> Host:
        """Any host of the cluster."""
        cluster = self.cluster
        servers = (cluster.database.host, cluster.tracking.host, cluster.bucket.host)
        return self.rng.choice([cluster.head.host, *(ray.host for ray in cluster.workers), *servers])

    def strike(self, fault: "Fault") -> None:
        """Remember the ended trials, and strike."""
        self.study.settle()
        self.repeatable += len(self.cluster.workers)
        fault(self)

    def go_on(self) -> None:
        """Run the study again if its driver has ended."""
        if not self.driver.running:
            self.driver = self.study.drive()


Fault = Callable[[Stage], None]


def worker_killed(stage: Stage) -> None:
    """A training process is killed."""
    victims = until(stage.worker().host.trainers, 60, "a trial is trained on the host")
    os.kill(stage.rng.choice(victims), signal.SIGKILL)


def host_killed(stage: Stage) -> None:
    """A training host loses power, and is switched on again after Ray has noticed."""
    ray = stage.worker()
    ray.host.kill()
    _until_gone(stage, ray)
    ray.host.up()
    ray.start()
    stage.cluster.wait()


def host_cut_off(stage: Stage) -> None:
    """A training host is cut off until the others give it up, and then comes back."""
    ray = stage.worker()
    ray.host.cut()
    _until_gone(stage, ray)
    ray.host.mend()
    stage.cluster.wait()


def host_cut_off_briefly(stage: Stage) -> None:
    """A host is cut off for a moment. The others need not notice."""
    ray = stage.worker()
    ray.host.cut()
    time.sleep(stage.rng.uniform(0.5, 3))
    ray.host.mend()


def driver_killed(stage: Stage) -> None:
    """The driver is killed, and the study is run again."""
    stage.driver.kill()
    stage.driver = stage.study.drive()


def head_killed(stage: Stage) -> None:
    """The head's host and its disk are lost. A new head takes its place, and the study is run again there."""
    head = stage.cluster.head
    head.host.kill()
    stage.driver.outer.wait(20)
    for left in head.host.folder.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    head.host.up()
    head.start()
    stage.cluster.wait()
    stage.driver = stage.study.drive()


def tracking_away(stage: Stage, seconds: float = 30) -> None:
    """The tracking server is away for a while."""
    stage.cluster.tracking.kill()
    time.sleep(seconds)
    stage.cluster.tracking.start()
    stage.cluster.tracking.wait()


def driver_killed_unheard(stage: Stage, seconds: float = 15) -> None:
    """The tracking server goes away. Then the driver is killed, with its unsent records."""
    stage.cluster.tracking.kill()
    time.sleep(seconds)
    stage.driver.kill()
    stage.cluster.tracking.start()
    stage.cluster.tracking.wait()
    stage.driver = stage.study.drive()


def driver_killed_half_heard(stage: Stage, seconds: float = 10) -> None:
    """The tracking server returns after a while, and the driver is killed while it sends the waiting records."""
    stage.cluster.tracking.kill()
    time.sleep(seconds)
    stage.cluster.tracking.start()
    stage.cluster.tracking.wait()
    time.sleep(stage.rng.uniform(0, seconds))
    stage.driver.kill()
    stage.driver = stage.study.drive()


def database_restarted(stage: Stage) -> None:
    """PostgreSQL is stopped at any moment, and started again."""
    stage.cluster.database.restart()


def database_failed_over(stage: Stage, seconds: float = 10) -> None:
    """PostgreSQL's host loses power: no client hears that its connection is lost. The data comes up on a new host."""
    database = stage.cluster.database
    database.host.kill()
    time.sleep(seconds)
    database.host.up()
    database.start()


def storage_full(stage: Stage, seconds: float = 20) -> None:
    """The bucket's disk alone is full: every object that is sent is refused."""
    stage.cluster.bucket.fill()
    time.sleep(seconds)
    stage.cluster.bucket.free()


def checkpoint_truncated(stage: Stage) -> None:
    """Half of the checkpoint of a trial in the middle of its steps is lost, and all training processes are killed."""
    trainers = [pid for ray in stage.cluster.workers for pid in ray.host.trainers()]
    for pid in trainers:  # so that no newer checkpoint replaces the damaged one
        os.kill(pid, signal.SIGSTOP)
    if halfway := stage.study.halfway():
        name = stage.rng.choice(halfway)
        content = stage.cluster.bucket.content(name)
        stage.cluster.bucket.write(name, content[: len(content) // 2])
        stage.repeatable += stage.study.intervals
    for pid in trainers:
        os.kill(pid, signal.SIGKILL)
    stage.repeatable += len(trainers)


def mirror_damaged(stage: Stage) -> None:
    """Every table of the mirror on the head is cut to a half. The next query rebuilds the mirror."""
    head = stage.cluster.head.host
    before = stage.study.asked("SELECT trial FROM trials ORDER BY trial")
    tables = [file for file in head.folder.rglob("mirror/**/*.parquet") if file.is_file()]
    assert tables, "no mirror on the head"
    for table in tables:
        os.truncate(table, table.stat().st_size // 2)
    after = stage.study.asked("SELECT trial FROM trials ORDER BY trial")
    assert len(after) >= len(before) > 0, (before, after)


def process_stopped(stage: Stage, seconds: float = 60) -> None:
    """Any process of any host stands still for a minute, and goes on as if nothing had been."""
    host = stage.host()
    victim = stage.rng.choice([pid for pid in host.pids() if pid != host.first])
    os.kill(victim, signal.SIGSTOP)
    time.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):  # Ray may have killed a process that does not answer
        os.kill(victim, signal.SIGCONT)
    stage.cluster.wait()
    stage.go_on()


def clock_moved(stage: Stage, seconds: float = 60) -> None:
    """The clock of any host is an hour fast or slow for a minute, and is then set right."""
    host = stage.host()
    host.move_clock(stage.rng.choice([-3600, 3600]))
    time.sleep(seconds)
    host.move_clock(0)


def disk_full(stage: Stage, seconds: float = 20) -> None:
    """The disk of a host is full, for Ray and for temporary files."""
    host = next(ray.host for ray in stage.cluster.workers if ray.host.disk)
    filling = host.folder / "full"
    with filling.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 65536)
        except OSError:
            pass
    time.sleep(seconds)
    filling.unlink()


def disk_slow(stage: Stage, seconds: float = 20) -> None:
    """Every fsync and every replaced file takes a second longer, and the link to the bucket is slow."""
    flag = Path(stage.cluster.network.root / "shared/slow")
    flag.write_text("1.0")
    stage.cluster.bucket.host.slow("400kbit")
    time.sleep(seconds)
    stage.cluster.bucket.host.fast()
    flag.unlink()


def _until_gone(stage: Stage, ray: Ray) -> None:
    until(
        lambda: ray.host.address not in (stage.cluster.alive() or [ray.host.address]),
        120,
        "Ray notices the dead host",
    )


_ON_HOSTS = (
    worker_killed,
    host_killed,
    host_cut_off,
    host_cut_off_briefly,
    disk_full,
    disk_slow,
    process_stopped,
    clock_moved,
)
_ON_DRIVERS = (driver_killed, head_killed, driver_killed_unheard, driver_killed_half_heard)
_ON_SERVERS = (tracking_away, database_restarted, database_failed_over, storage_full)
_ON_RECORDS = (checkpoint_truncated, mirror_damaged)
FAULTS: dict[str, Fault] = {
    fault.__name__: fault for fault in (*_ON_HOSTS, *_ON_DRIVERS, *_ON_SERVERS, *_ON_RECORDS)
}
