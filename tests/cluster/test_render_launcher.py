"""The file of Ray's launcher: Ray accepts it, and every setting reaches it unchanged."""

import copy
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from loopscale.cluster.files import load_cluster
from loopscale.cluster.launcher import Launcher
from tests.cluster.wanted import EXAMPLES, HOSTILE, request


def launcher(**settings: object) -> Launcher:
    provider = {"type": "local", "head_ip": "10.0.0.1", "worker_ips": ["10.0.0.2"]}
    return Launcher.model_validate({"provider": provider, "ssh_user": "anna"} | settings)


@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if load_cluster(path)[1].kind == "launcher"],
    ids=lambda path: path.stem,
)
def test_the_launcher_accepts_its_file(path: Path):
    from ray.autoscaler._private.util import prepare_config, validate_config

    name, cluster = load_cluster(path)
    assert isinstance(cluster, Launcher)
    document = yaml.safe_load(cluster.render(name, request()))
    prepared = prepare_config(copy.deepcopy(document))
    validate_config(prepared)
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "RAY_AUTH_MODE=token ray start" in prepared[commands][-1]
    assert prepared["file_mounts"] == {"~/.ray/auth_token": cluster.token}
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepared | {"max_wokers": 1})


@pytest.mark.parametrize("value", HOSTILE)
def test_settings_reach_the_launcher_unchanged(value: str):
    document = yaml.safe_load(launcher(setup=[value], ssh_key=value, ssh_user=value).render("own", request()))
    assert document["setup_commands"] == [value]
    assert document["auth"] == {"ssh_user": value, "ssh_private_key": value}


def test_machines_that_do_not_fit_the_provider_are_refused():
    node = {"machine": "m5.large", "cpu": 2}
    for settings in (
        {"head": node, "worker": node},
        {"provider": {"type": "aws", "region": "r"}, "head": node},
        {"provider": {"type": "aws", "region": "r"}},
    ):
        with pytest.raises(ValidationError, match="head and worker do not fit the provider"):
            launcher(**settings)
