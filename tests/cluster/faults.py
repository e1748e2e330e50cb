"""What can go wrong on a cluster, done for real: each strikes, lasts a while, and is mended as an operator would."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.hosts import Process, until
from tests.cluster.servers import Cluster, Ray
from tests.cluster.studies import Study


@dataclass
class Stage:
    """A study under way on a cluster, and whoever drives it now."""

    study: Study
    driver: Process
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def cluster(self) -> Cluster:
        return self.study.cluster

    def worker(self) -> Ray:
        return self.rng.choice(self.cluster.workers)


Fault = Callable[[Stage], None]


def worker_killed(stage: Stage) -> None:
    """A process that trains is killed."""
    victims = until(stage.worker().host.trainers, 60, "a trial is trained on the host")
    os.kill(stage.rng.choice(victims), signal.SIGKILL)


def host_killed(stage: Stage) -> None:
    """A host that trains loses power, and is switched on again when everybody has noticed."""
    ray = stage.worker()
    ray.host.kill()
    _until_gone(stage, ray)
    ray.host.up()
    ray.start()
    stage.cluster.wait()


def host_cut_off(stage: Stage) -> None:
    """A host that trains is cut off until the others think it dead, then comes back and finds itself forgotten."""
    ray = stage.worker()
    ray.host.cut()
    _until_gone(stage, ray)
    ray.host.mend()
    stage.cluster.wait()


def host_cut_off_briefly(stage: Stage) -> None:
    """A host cannot be reached for a moment that nobody need notice."""
    ray = stage.worker()
    ray.host.cut()
    time.sleep(stage.rng.uniform(0.5, 3))
    ray.host.mend()


def driver_killed(stage: Stage) -> None:
    """The driver is killed, and the study run again."""
    stage.driver.kill()
    stage.driver = stage.study.drive()


def head_killed(stage: Stage) -> None:
    """The head's host is lost with its disk; another takes its place, and the study is run again there."""
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
    """The tracking server goes away, and then the driver is killed with all that it could not say."""
    stage.cluster.tracking.kill()
    time.sleep(seconds)
    stage.driver.kill()
    stage.cluster.tracking.start()
    stage.cluster.tracking.wait()
    stage.driver = stage.study.drive()


def driver_killed_half_heard(stage: Stage, seconds: float = 10) -> None:
    """The driver is killed while it says what has gathered, the tracking server having been away for a while."""
    stage.cluster.tracking.kill()
    time.sleep(seconds)
    stage.cluster.tracking.start()
    stage.cluster.tracking.wait()
    time.sleep(stage.rng.uniform(0, seconds))
    stage.driver.kill()
    stage.driver = stage.study.drive()


def database_restarted(stage: Stage) -> None:
    """PostgreSQL is stopped in the middle of everything, and started again."""
    stage.cluster.database.restart()


def disk_full(stage: Stage, seconds: float = 20) -> None:
    """A host has no byte left on its disk, neither for Ray nor for temporary files."""
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
    """Every fsync and every replaced file takes a second longer, and little comes through to the bucket."""
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
        "the host is missed",
    )


FAULTS: dict[str, Fault] = {
    each.__name__: each
    for each in (
        worker_killed, host_killed, host_cut_off, host_cut_off_briefly, driver_killed, head_killed, tracking_away,
        driver_killed_unheard, driver_killed_half_heard,
        database_restarted, disk_full, disk_slow,
    )
}  # fmt: skip
