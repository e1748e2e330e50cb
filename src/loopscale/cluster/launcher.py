"""Ray's cluster launcher: machines of AWS or GCP, or one's own by SSH, that `ray up` makes into a Ray cluster.

    loopscale submit STUDY --cluster NAME --render > NAME.ray.yaml
    ray up NAME.ray.yaml          start, or change, the cluster; `ray down` ends it
    ray dashboard NAME.ray.yaml   a tunnel to its job server, and the address that studies are submitted to

The cluster's own machines ask for the token that is in `token`: make it with `ray get-auth-token --generate`.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from typing_extensions import override

from loopscale.cluster.base import Request
from loopscale.cluster.ray import Ray
from loopscale.cluster.room import fitting
from loopscale.cluster.tool import Line
from loopscale.core.config import Config

HEAD, WORKER = "head", "worker"
USE = """\
# Made by `loopscale submit --render`: change the cluster's settings, and render again.
# ray up FILE, ray dashboard FILE (the way in), ray down FILE.
"""
TOKEN = "~/.ray/auth_token"
"""Where Ray looks for its token by default."""


class Node(Config):
    """A kind of machine of a cloud."""

    machine: Line
    """m5.xlarge, n1-standard-4."""
    cpu: PositiveInt
    gpu: NonNegativeInt = 0
    image: Line | None = None
    """AWS: an AMI. GCP: an image's path."""
    disk: PositiveInt = 100
    """GB."""
    spot: bool = False
    """Cheaper, and taken away at any moment: what a trial loses then is a checkpoint interval."""
    options: dict[str, Any] = {}
    """More of the cloud's own settings of a machine: IamInstanceProfile, guestAccelerators."""


class Provider(Config, ABC):
    """Who has the machines."""

    @abstractmethod
    def node(self, node: Node) -> dict[str, Any]:
        """A machine in the cloud's own words."""


class AWS(Provider):
    type: Literal["aws"]
    region: Line
    availability_zone: Line | None = None
    """One or several, with commas between."""

    @override
    def node(self, node: Node) -> dict[str, Any]:
        disk = {"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": node.disk, "VolumeType": "gp3"}}
        found: dict[str, Any] = {"InstanceType": node.machine, "BlockDeviceMappings": [disk]}
        found |= {"ImageId": node.image} if node.image else {}
        return found | ({"InstanceMarketOptions": {"MarketType": "spot"}} if node.spot else {}) | node.options


class GCP(Provider):
    type: Literal["gcp"]
    region: Line
    availability_zone: Line
    project_id: Line

    @override
    def node(self, node: Node) -> dict[str, Any]:
        start = {"diskSizeGb": node.disk}
        start |= {"sourceImage": node.image} if node.image else {}
        disk = {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": start}
        found: dict[str, Any] = {"machineType": node.machine, "disks": [disk]}
        # A machine with a GPU cannot be moved while it runs.
        fixed: list[dict[str, Any]] = [{"preemptible": True}] if node.spot else []
        fixed += [{"onHostMaintenance": "TERMINATE"}] if node.gpu else []
        return found | ({"scheduling": fixed} if fixed else {}) | node.options


class OnPremises(Config):
    """Machines that are there, by address."""

    type: Literal["local"]
    head_ip: Line
    worker_ips: tuple[Line, ...] = ()


class Launcher(Ray, kind="launcher"):
    """A Ray cluster that is reached as any other (`address`), and knows how it is made."""

    provider: Annotated[AWS | GCP | OnPremises, Field(discriminator="type")]
    ssh_user: Line
    ssh_key: Line | None = None
    """The private key's file; by default the launcher makes one, for a cloud."""
    head: Node | None = None
    worker: Node | None = None
    min_workers: NonNegativeInt = 0
    max_workers: PositiveInt = 1
    idle_minutes: PositiveInt = 10
    """Without a trial, after which a machine is given back."""
    trials_on_head: bool = False
    docker_image: Line | None = None
    setup: tuple[Line, ...] = ()
    """Shell commands that install what constraints.txt lists, on every machine (in the container, if there is one)."""
    token: Line = TOKEN
    """The file with Ray's token, here."""

    @model_validator(mode="after")
    def _is_whole(self) -> "Launcher":
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
        """As for every cluster; trials at a time are by default as many as the largest cluster has room for."""
        workers = self.workers
        if not workers and self.head and self.worker:
            nodes = [self.worker] * self.max_workers + [self.head] * self.trials_on_head
            workers = max(1, sum(fitting(request.resources, node.cpu, node.gpu, None) for node in nodes))
        return Ray.command(self.model_copy(update={"workers": workers}), request, python, address)

    @override
    def render(self, name: str, request: Request) -> str:
        """The launcher's file."""
        return USE + yaml.safe_dump(self.launched(name), sort_keys=False, allow_unicode=True, width=1000)

    def launched(self, name: str) -> dict[str, Any]:
        """The launcher's file, as plain data."""
        alone = (
            ""
            if self.trials_on_head or isinstance(self.provider, OnPremises)
            else " --num-cpus=0 --num-gpus=0"
        )
        start = "ulimit -n 65536; RAY_AUTH_MODE=token ray start --disable-usage-stats"
        head = f"{start} --head --port=6379 --dashboard-host=127.0.0.1 --autoscaling-config=~/ray_bootstrap_config.yaml"
        docker = {"image": self.docker_image, "container_name": "loopscale", "pull_before_run": True}
        found: dict[str, Any] = {
            "cluster_name": name,
            **self._machines(),
            "idle_timeout_minutes": self.idle_minutes,
            "auth": {"ssh_user": self.ssh_user} | ({"ssh_private_key": self.ssh_key} if self.ssh_key else {}),
            "docker": docker if self.docker_image else {},
            "file_mounts": {TOKEN: self.token},
            "cluster_synced_files": [],
            "setup_commands": list(self.setup),
            "head_start_ray_commands": ["ray stop", head + alone],
            "worker_start_ray_commands": ["ray stop", f"{start} --address=$RAY_HEAD_IP:6379"],
        }
        return found if found["docker"] else {key: value for key, value in found.items() if key != "docker"}

    def _machines(self) -> dict[str, Any]:
        provider = {
            key: value for key, value in self.provider.model_dump(mode="json").items() if value is not None
        }
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
                "node_config": self.provider.node(node),
            }
            for kind, (node, least, most) in kinds.items()
        }
        return {
            "max_workers": self.max_workers,
            "provider": provider,
            "available_node_types": types,
            "head_node_type": HEAD,
        }
