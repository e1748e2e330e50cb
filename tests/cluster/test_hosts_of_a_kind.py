"""What a plan knows of the hosts of each kind of cluster, and the remarks on GPUs."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from loopscale.cluster.base import Cluster, Submission, trials_on
from loopscale.cluster.files import load_cluster
from loopscale.cluster.preflight import known_hosts, remarks_on_hosts
from loopscale.cluster.ray import Ray
from loopscale.interface.planning import plan
from loopscale.studies.spec import Study
from tests.cluster.wanted import ROOT, request

ONE_CORE = {"cpu": 1.0, "gpu": 0.0, "memory": 0.0}
STUDY = {
    "question": "Does it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 100, "batch_size": 4, "loops": 2, "window": 2},
    },
    "replicates": 3,
    "evaluate": {"prompts": 16},
}


def example(name: str) -> Cluster:
    return load_cluster(ROOT / "cluster" / f"{name}.yaml")[1]


@pytest.mark.parametrize(
    ("name", "trials"), [("slurm", 2 * 8), ("kuberay", 8 * 8), ("aws", 8 * 8), ("gcp", 8 * 8)]
)
def test_a_plan_counts_the_trials_that_the_driver_will_start(name: str, trials: int):
    cluster = example(name)
    assert trials_on(cluster.hosts(name, ONE_CORE)) == trials
    words = cluster.render(name, request(resources=ONE_CORE)) if name in ("slurm", "kuberay") else ""
    words = words or " ".join(cluster.command(request(resources=ONE_CORE)))
    assert f"--workers {trials}" in words


def test_a_plan_has_both_sums_and_their_prices():
    made = Study.parse(STUDY | {"resources": {"cpu": 1, "gpu": 0.5}}, "mine")
    planned = plan(made, rate=1e6, cluster=str(ROOT / "cluster/slurm.yaml"))
    assert planned.workers == 4
    assert planned.held
    assert planned.cost
    assert planned.held_cost
    assert planned.held.core_hours[1] == pytest.approx(2 * 8 * planned.held.hours[1])
    assert planned.held.gpu_hours[1] == pytest.approx(2 * 1 * planned.held.hours[1])
    sums = planned.held.gpu_hours[1] * 0.9 + planned.held.core_hours[1] * 0.01
    assert planned.held_cost.high == pytest.approx(sums)
    assert planned.cost.high < planned.held_cost.high


@pytest.mark.parametrize("name", ["slurm", "kuberay", "aws", "gcp"])
def test_gpus_that_the_study_does_not_use_are_one_line(name: str):
    (remark,) = remarks_on_hosts(name, example(name), ONE_CORE)
    assert remark.startswith(f"the study asks for no GPU, and a host of {name} has 1")
    assert remarks_on_hosts(name, example(name), ONE_CORE | {"gpu": 0.5}) == []


def test_gpus_that_the_hosts_lack_are_one_line():
    cluster = example("slurm").model_copy(update={"gpus_per_node": 0})
    (remark,) = remarks_on_hosts("slurm", cluster, ONE_CORE | {"gpu": 1.0})
    assert remark.startswith("a trial asks for 1 GPU, and the hosts of slurm have none")
    (remark,) = remarks_on_hosts("slurm", cluster, ONE_CORE | {"cpu": 64.0})
    assert remark.startswith("no host of slurm holds a trial (64 CPU)")


def submission(cluster: str) -> Submission:
    return Submission("mine-1", "mine", cluster, "running")


class Head(http.server.BaseHTTPRequestHandler):
    """Answers as the head of a Ray cluster does."""

    nodes: list[dict] = []

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Bearer sesame"
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"data": {"result": {"result": self.nodes}}}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def head() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Head) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_running_ray_cluster_is_asked_for_its_hosts(head: str, monkeypatch: pytest.MonkeyPatch):
    gone = {"state": "DEAD", "resources_total": {"CPU": 64.0}}
    Head.nodes = [gone] + [
        {"state": "ALIVE", "node_name": f"h{cpus:g}", "resources_total": {"CPU": cpus, "memory": 8 * 2.0**30}}
        for cpus in (0.0, 4.0, 2.0)
    ]
    lab = Ray.model_validate({"address": head})
    monkeypatch.setenv("RAY_AUTH_TOKEN", "sesame")
    hosts, remarks = known_hosts("lab", lab, ONE_CORE)
    assert (trials_on(hosts), remarks) == (6, [])
    assert trials_on(lab.hosts("lab", {"cpu": 1.0, "memory": 4.0})) == 4
    assert [(host.name, host.state, host.holds) for host in lab.host_states(submission("lab"))] == [
        ("h0", "alive", "8 GiB"),
        ("h4", "alive", "4 CPUs, 8 GiB"),
        ("h2", "alive", "2 CPUs, 8 GiB"),
    ]
    planned = plan(Study.parse(STUDY, "mine"), rate=1e6, cluster=None)
    assert planned.held is None


def test_a_ray_cluster_that_does_not_answer_is_one_line(head: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    hosts, (remark,) = known_hosts("lab", Ray.model_validate({"address": head}), ONE_CORE)
    assert hosts == ()
    assert remark.startswith(f"lab: no list of nodes at {head} (HTTP Error 401")
    assert remark.endswith(
        "the plan counts one trial at a time; give --workers, or write workers: in the cluster's file"
    )
    named = Ray.model_validate({"address": head, "workers": 4})
    assert known_hosts("lab", named, ONE_CORE) == ((), [])
