"""A Slurm of two hosts on this machine: real munged, slurmctld and slurmd, with their own ports and folder."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.slurm_parts import COMMON, make_key, munged
from tests.ports import free_port

SETTINGS = (
    COMMON
    + """\
ClusterName=here
FirstJobId={first}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
MinJobAge=2
JobRequeue=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=1000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
)
"""Slurm forgets jobs after seconds and keeps no accounts, as the poorest site may do.

The numbers of jobs start at a number of this process, because a job makes the folder `/tmp/loopscale-NUMBER`.
"""


@contextmanager
def slurm(folder: Path) -> Iterator[Path]:
    """Run Slurm in `folder`, which needs a short path. Yields the slurm.conf for $SLURM_CONF."""
    for name in ("state", "spool-n1", "spool-n2"):
        (folder / name).mkdir()
    folder.chmod(0o755)
    settings = folder / "slurm.conf"
    text = SETTINGS.format(
        first=10 * os.getpid(),
        host=socket.gethostname(),
        ports=[free_port() for _ in range(3)],
        folder=folder,
        user=_user(),
    )
    settings.write_text(text)
    key = folder / "munge.key"
    make_key(key)
    started = [_start(munged(folder, key), folder, "munged")]
    try:
        _until(lambda: (folder / "munge.socket").exists(), folder)
        started.append(_start(["slurmctld", "-D", "-f", str(settings)], folder, "slurmctld"))
        for host in ("n1", "n2"):
            started.append(_start(["slurmd", "-D", "-N", host, "-f", str(settings)], folder, host))
        _until(lambda: _idle(settings) == 2, folder)
        yield settings
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def missing() -> list[str]:
    """The commands that are not installed."""
    return [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]


def _start(command: list[str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.out").open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def _idle(settings: Path) -> int:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%T"],
        env=os.environ | {"SLURM_CONF": str(settings)},
        capture_output=True,
        text=True,
    )
    return done.stdout.split().count("idle")


def _until(true, folder: Path, seconds: float = 180) -> None:
    until = time.monotonic() + seconds
    while not true():
        logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
        assert time.monotonic() < until, logs
        time.sleep(0.2)


def _user() -> str:
    return "root" if os.getuid() == 0 else os.environ["USER"]
