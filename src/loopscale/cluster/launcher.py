"""Ray's cluster launcher: `ray up` makes a Ray cluster of machines of AWS or GCP, or of your own machines by SSH.

    loopscale submit STUDY --cluster NAME --render > NAME.ray.yaml
    ray up NAME.ray.yaml          start or change the cluster; `ray down` ends it
    ray dashboard NAME.ray.yaml   open a tunnel to its job server, the `address` of the cluster

The cluster asks for the token in the file `token`. `ray get-auth-token --generate` makes a token.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import override

from loopscale.cluster.base import HostGroup, OneLine, Request, trials_on
from loopscale.cluster.former_names import Former
from loopscale.cluster.ray import Ray
from loopscale.core.config import Config
from loopscale.core.machine_share import trials_per_machine

HEAD, WORKER = "head", "worker"
USAGE = """\
# Made by `loopscale submit --render`. To change this file, change the cluster's settings and render again.
# ray up FILE starts the cluster, ray dashboard FILE opens a tunnel to it, ray down FILE ends it.
"""
TOKEN = "~/.ray/auth_token"
"""Ray's default file of the token."""


class Node(Config):
    """A type of machine in a cloud."""

    former_names: ClassVar[dict[str, Former]] = {"disk": Former("disk_gb")}

    machine: OneLine
    """The cloud's name of the type: m5.xlarge, n1-standard-4."""
    cpu: PositiveInt
    gpu: NonNegativeInt = 0
    image: OneLine | None = None
    """AWS: an AMI. GCP: the path of an image."""
    disk_gb: PositiveInt = 100
    spot: bool = False
    """Cheaper, but the cloud may take the machine away. A trial then loses at most one checkpoint interval."""
    options: dict[str, Any] = {}
    """More settings of the cloud for a machine: IamInstanceProfile, guestAccelerators."""


class Provider(Config, ABC):
    """A cloud."""

    @abstractmethod
    def node_config(self, node: Node) -> dict[str, Any]:
        """The cloud's own description of a machine."""


class AWS(Provider):
    type: Literal["aws"]
    region: OneLine
    availability_zone: OneLine | None = None
    """One zone, or several with commas."""

    @override
    def node_config(self, node: Node) -> dict[str, Any]:
        disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": node.disk_gb, "VolumeType": "gp3"}}
        config: dict[str, Any] = {"InstanceType": node.machine, "BlockDeviceMappings": [disk]}
        config |= {"ImageId": node.image} if node.image else {}
        return (
            config | ({"InstanceMarketOptions": {"MarketType": "spot"}} if node.spot else {}) | node.options
        )


class GCP(Provider):
    type: Literal["gcp"]
    region: OneLine
    availability_zone: OneLine
    project_id: OneLine

    @override
    def node_config(self, node: Node) -> dict[str, Any]:
        start = {"diskSizeGb": node.disk_gb}
        start |= {"sourceImage": node.image} if node.image else {}
        disk = {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": start}
        config: dict[str, Any] = {"machineType": node.machine, "disks": [disk]}
        scheduling: list[dict[str, Any]] = [{"preemptible": True}] if node.spot else []
        # A running machine with a GPU cannot be moved.
        scheduling += [{"onHostMaintenance": "TERMINATE"}] if node.gpu else []
        return config | ({"scheduling": scheduling} if scheduling else {}) | node.options


class OnPremises(Config):
    """Your own machines, by address."""

    type: Literal["local"]
    head_ip: OneLine
    worker_ips: tuple[OneLine, ...] = ()


class Launcher(Ray, kind="launcher"):
    """A Ray cluster at `address`, with the settings for `ray up`."""

    example = {**Ray.example, "provider": {"type": "local", "head_ip": "10.0.0.1"}, "ssh_user": "me"}
    provider: Annotated[AWS | GCP | OnPremises, Field(discriminator="type")]
    ssh_user: OneLine
    ssh_key: OneLine | None = None
    """The file of the private key. By default the launcher makes a key for a cloud."""
    head: Node | None = None
    worker: Node | None = None
    min_workers: NonNegativeInt = 0
    max_workers: PositiveInt = 1
    idle_minutes: PositiveInt = 10
    """Minutes without a trial, after which a machine is given back."""
    trials_on_head: bool = False
    docker_image: OneLine | None = None
    setup: tuple[OneLine, ...] = ()
    """Shell commands that install the packages of constraints.txt on every machine (or in its container)."""
    token: OneLine = TOKEN
    """The file with Ray's token on this machine."""

    @model_validator(mode="after")
    def _is_complete(self) -> "Launcher":
        own = isinstance(self.provider, OnPremises)
        if own == bool(self.head or self.worker) or bool(self.head) != bool(self.worker):
            raise ValueError(
                "head and worker do not fit the provider; describe both for aws and gcp, and neither for local"
            )
        if self.min_workers > self.max_workers:
            raise ValueError(f"min_workers {self.min_workers} is more than max_workers {self.max_workers}")
        return self

    @override
    def command(self, request: Request, python: str = "python", address: str | None = "auto") -> list[str]:
        """The driver's command. By default, `workers` is the capacity of the cluster at its largest size."""
        workers = self.workers
        if not workers and self.head and self.worker:
            workers = trials_on(self.hosts("", request.resources))
        return Ray.command(self.model_copy(update={"workers": workers}), request, python, address)

    @override
    def hosts(self, name: str, trial: Mapping[str, float]) -> tuple[HostGroup, ...]:
        """The machines of the cloud. The head stays until `ray down`, and idle machines go after a while."""
        if not (self.head and self.worker):
            return super().hosts(name, trial)
        head, worker = self.head, self.worker
        on_head, on_worker = (trials_per_machine(trial, node.cpu, node.gpu) for node in (head, worker))
        least, idle = self.min_workers, 60.0 * self.idle_minutes
        return (
            HostGroup(1, head.cpu, head.gpu, on_head if self.trials_on_head else 0, least=1),
            HostGroup(self.max_workers, worker.cpu, worker.gpu, on_worker, least, idle, outlives=True),
        )

    @override
    def render(self, name: str, request: Request) -> str:
        """The launcher's file."""
        return USAGE + yaml.safe_dump(
            self.launcher_config(name), sort_keys=False, allow_unicode=True, width=1000
        )

    def launcher_config(self, name: str) -> dict[str, Any]:
        """The launcher's file as plain data."""
        no_trials = not self.trials_on_head and not isinstance(self.provider, OnPremises)
        start = "ulimit -n 65536; RAY_AUTH_MODE=token ray start --disable-usage-stats"
        head = f"{start} --head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
        head += " --num-cpus=0 --num-gpus=0" if no_trials else ""
        docker = {"image": self.docker_image, "container_name": "loopscale", "pull_before_run": True}
        return {
            "cluster_name": name,
            **self._machines(),
            "idle_timeout_minutes": self.idle_minutes,
            "auth": {"ssh_user": self.ssh_user} | ({"ssh_private_key": self.ssh_key} if self.ssh_key else {}),
            **({"docker": docker} if self.docker_image else {}),
            "file_mounts": {TOKEN: self.token},
            "cluster_synced_files": [],
            "setup_commands": list(self.setup),
            "head_start_ray_commands": ["ray stop", head],
            "worker_start_ray_commands": ["ray stop", f"{start} --address=$RAY_HEAD_IP:6379"],
        }

    def _machines(self) -> dict[str, Any]:
        provider = self.provider.model_dump(mode="json", exclude_none=True)
        if isinstance(self.provider, OnPremises) or not (self.head and self.worker):
            count = len(provider["worker_ips"])
            least, most = min(self.min_workers or count, count), count
            return {"min_workers": least, "max_workers": most, "provider": provider}
        kinds = {HEAD: (self.head, 0, 0), WORKER: (self.worker, self.min_workers, self.max_workers)}
        types = {
            kind: {
                "min_workers": least,
                "max_workers": most,
                "resources": {"CPU": node.cpu} | ({"GPU": node.gpu} if node.gpu else {}),
                "node_config": self.provider.node_config(node),
            }
            for kind, (node, least, most) in kinds.items()
        }
        return {
            "max_workers": self.max_workers,
            "provider": provider,
            "available_node_types": types,
            "head_node_type": HEAD,
        }
