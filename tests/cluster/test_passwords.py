"""No command, script or manifest of a cluster shows the password of the store."""

import pytest

from loopscale.cluster.base import ClusterError
from loopscale.cluster.kuberay import KubeRay
from loopscale.cluster.local import Local
from loopscale.cluster.ray import Ray
from loopscale.cluster.slurm import Slurm
from loopscale.records.stores import opening
from loopscale.records.stores.database import DatabaseStore
from tests.cluster.wanted import request

STORE, PASSWORD = "postgresql://me:tr0ub4dor%263@db/x", "tr0ub4dor&3"


def test_a_batch_script_shows_no_password_and_its_job_gets_the_password_by_the_environment():
    cluster = Slurm.model_validate({"folder": "/shared", "store": STORE})
    text = cluster.render("slurm", request())
    assert "tr0ub4dor" not in text
    assert "postgresql://me@db/x" in text
    assert cluster.secrets == {"LOOPSCALE_STORE_PASSWORD": PASSWORD}


def test_a_process_on_this_machine_shows_no_password():
    cluster = Local.model_validate({"store": STORE})
    assert "tr0ub4dor" not in " ".join(cluster.command(request()))


def test_a_store_takes_its_password_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("LOOPSCALE_STORE_PASSWORD", PASSWORD)
    monkeypatch.setattr(DatabaseStore, "check_reachable", staticmethod(lambda uri, create: None))
    store = opening.open_store("postgresql://me@db/x", tmp_path)
    assert (store.uri, store.name) == (STORE, "postgresql://me@db/x")
    assert opening.open_store("postgresql://me:own@db/x", tmp_path).uri == "postgresql://me:own@db/x"
    assert opening.open_store("postgresql://db/x", tmp_path).uri == "postgresql://db/x"


def test_a_rayjob_with_a_password_is_refused():
    cluster = KubeRay.model_validate({"image": "x", "store": STORE})
    with pytest.raises(ClusterError, match="everyone who can read the RayJob could read the password"):
        cluster.render("k", request())


def test_a_job_of_a_ray_cluster_with_a_password_is_refused_unless_its_variable_is_given():
    with pytest.raises(ClusterError, match="take the password out of the store's address"):
        Ray.model_validate({"store": STORE}).runtime(request())
    given = Ray.model_validate({"store": STORE, "environment": {"LOOPSCALE_STORE_PASSWORD": "x"}})
    assert given.runtime(request())["env_vars"]["LOOPSCALE_STORE_PASSWORD"] == "x"
    assert "tr0ub4dor" not in " ".join(given.command(request()))
