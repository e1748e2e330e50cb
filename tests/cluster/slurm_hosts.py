"""A Slurm of several hosts in namespaces: real munged, slurmctld and slurmd, each on its own address."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.hosts import Host, Network, Process, until
from tests.cluster.slurm_parts import COMMON, make_key, munged

SETTINGS = (
    COMMON
    + """\
ClusterName=there
SlurmctldHost=control({control})
AuthInfo=socket={socket}
SlurmUser=root
SlurmdUser=root
StateSaveLocation={shared}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
SlurmdTimeout=10
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
{nodes}
PartitionName=driver Nodes=control MaxTime=UNLIMITED State=UP
PartitionName=work Nodes={workers} Default=YES MaxTime=60 State=UP
"""
)
"""A host that is cut off counts as down after 10 s. A real site waits for minutes."""
KEY = "shared/munge.key"


@dataclass
class Site:
    """Slurm on the hosts of a network: `control` has slurmctld and a slurmd, and each worker starts when told."""

    network: Network
    workers: tuple[str, ...]
    conf: Path
    hosts: dict[str, Host] = field(default_factory=dict)

    def start(self, name: str) -> Host:
        """Boot a host with its slurmd."""
        host = self.hosts[name] = self.network.hosts.get(name) or self.network.host(name)
        host.take_own_tmp()
        self.start_on(host, *munged(host.home, self.network.root / KEY))
        until(lambda: (host.folder / "munge.socket").exists(), 60, f"munged of {name}")
        if name == "control":
            self.start_on(host, "slurmctld", "-D", "-f", str(self.conf))
        self.start_on(host, "slurmd", "-D", "-N", name, "-f", str(self.conf))
        return host

    def start_on(self, host: Host, *command: str) -> Process:
        return host.start(command[0], *command)

    def idle(self) -> set[str]:
        words = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return {line.split()[0] for line in done.stdout.splitlines() if line.split()[1:] == ["idle"]}

    def jobs(self, user_format: str = "%i|%j|%T|%N") -> list[list[str]]:
        words = ["squeue", "--array", "--noheader", f"--format={user_format}"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return [line.split("|") for line in done.stdout.splitlines()]


def scontrol(*words: str) -> None:
    subprocess.run(["scontrol", *words], check=True, capture_output=True)


@contextmanager
def site(network: Network, workers: tuple[str, ...]) -> Iterator[Site]:
    """Run Slurm with the controller only. $SLURM_CONF lets this process use it."""
    shared, home = network.root / "shared", network.root / "home"
    (shared / "state").mkdir()
    key = network.root / KEY
    make_key(key)
    names = ("control", *workers)
    addresses = {name: f"{network.prefix}.{10 + number}" for number, name in enumerate(names)}
    nodes = [
        f"NodeName={name} NodeHostname={name} NodeAddr={address} CPUs=1 RealMemory=1000 State=UNKNOWN"
        for name, address in addresses.items()
    ]
    values = {"control": addresses["control"], "shared": shared, "home": home, "nodes": "\n".join(nodes)}
    text = SETTINGS.format(socket="{socket}", workers=",".join(workers), **values)
    conf, client = shared / "slurm.conf", network.root / "client.conf"
    conf.write_text(text.format(socket=home / "munge.socket"))
    client.write_text(text.format(socket=network.root / "munge.socket"))
    with (network.root / "logs/client-munged.log").open("wb") as log:
        authority = subprocess.Popen(
            munged(network.root, key), stdout=log, stderr=log, start_new_session=True
        )
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = str(client)
    try:
        made = Site(network, workers, conf)
        made.start("control")
        until(lambda: "control" in made.idle(), 120, "slurmctld answers")
        yield made
    finally:
        os.environ.pop("SLURM_CONF")
        if before:
            os.environ["SLURM_CONF"] = before
        authority.terminate()
        authority.wait(20)
