"""The manifests for KubeRay, checked with the published schemas and hostile names; and KubeRay's answers."""

import copy
import json
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from loopscale.cluster.base import ClusterError, Request, trials_per_machine
from loopscale.cluster.commands import run_command
from loopscale.cluster.kuberay import NAME_CHARACTERS, KubeRay, rayjob_name, submission_of_rayjob
from tests.cluster.wanted import HOSTILE, TEXT, request

RAY_JOB = json.loads((Path(__file__).parent / "rayjob.json").read_text())


def kuberay(**settings: object) -> KubeRay:
    return KubeRay.model_validate({"image": "loopscale:1"} | settings)


def manifests(cluster: KubeRay, wanted: Request | None = None) -> tuple[dict, dict]:
    files, job = yaml.safe_load_all(cluster.render("kube", wanted or request()))
    return files, job


def check(cluster: KubeRay, wanted: Request | None = None) -> dict:
    """The RayJob, checked with Kubernetes' schemas and KubeRay's fields and rules."""
    files, job = manifests(cluster, wanted)
    kubernetes_validate.validate(files, "1.33", strict=True)
    jsonschema.validate(job, RAY_JOB)
    groups = [
        job["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job["spec"]["rayClusterSpec"]["workerGroupSpecs"],
    ]
    for number, group in enumerate(groups):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}"},
            "spec": group["template"]["spec"],
        }
        kubernetes_validate.validate(pod, "1.33", strict=True)
        mounted = {mount["name"] for mount in pod["spec"]["containers"][0].get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in pod["spec"].get("volumes", [])}
    return job


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keep": 60},
        {"keep": 60, "keep_on_failure": 600, "active_deadline": 9000, "start_deadline": 600},
        {
            "min_workers": 2,
            "max_workers": 2,
            "trials_on_head": True,
            "context": "c",
            "environment": {"A": "it's $(x)"},
        },
        {"pull_secrets": ["p"], "service_account": "s", "tracking_secret": "t", "storage_secret": "b"},
        {
            "worker": {
                "gpu": 2,
                "node_selector": {"a": "b"},
                "tolerations": [{"key": "k", "operator": "Exists"}],
            }
        },
    ],
)
def test_a_manifest_passes_the_schemas(settings: dict):
    check(kuberay(**settings))


def test_a_ray_cluster_is_deleted_by_exactly_one_of_two_rules():
    plain = check(kuberay(keep=60))["spec"]
    assert (plain["shutdownAfterJobFinishes"], plain["ttlSecondsAfterFinished"]) == (True, 60)
    assert "deletionStrategy" not in plain
    ruled = check(kuberay(keep=60, keep_on_failure=600))["spec"]
    assert ruled["shutdownAfterJobFinishes"] is False
    assert "ttlSecondsAfterFinished" not in ruled
    conditions = [rule["condition"] for rule in ruled["deletionStrategy"]["deletionRules"]]
    assert conditions == [
        {"jobStatus": "SUCCEEDED", "ttlSeconds": 60},
        {"jobStatus": "FAILED", "ttlSeconds": 600},
    ]


def test_the_schema_of_ray_jobs_finds_mistakes():
    job = check(kuberay(keep_on_failure=5))
    for spoil in (
        lambda spec: spec.update(shutdownAfterJobFinishes=True),
        lambda spec: spec.update(ttlSecondsAfterFinshed=1),
        lambda spec: spec["rayClusterSpec"].pop("headGroupSpec"),
        lambda spec: spec["rayClusterSpec"]["authOptions"].update(mode="on"),
        lambda spec: spec["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
    ):
        spoiled = copy.deepcopy(job)
        spoil(spoiled["spec"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoiled, RAY_JOB)


def test_any_text_of_a_study_arrives_unchanged(tmp_path: Path):
    for text in (TEXT, "a: 1", "x: é\n\n\n", "\ttab\r\n  end ", "# only\n", "a" * 200_000):
        assert manifests(kuberay(), request(text=text))[0]["data"]["study.yaml"] == text
    with pytest.raises(ClusterError, match="has more than 250 kB"):
        kuberay().render("kube", request(text="a" * 300_000))


def test_the_driver_gets_its_command_unchanged_through_two_shells(tmp_path: Path):
    cluster = kuberay(store=HOSTILE[3], storage=HOSTILE[1], workers=3)
    overrides = {f"a.b{number}": value for number, value in enumerate(HOSTILE)}
    files, job = manifests(cluster, request(overrides=overrides))
    assert job["spec"]["entrypoint"] == "bash /loopscale/run.sh", "no quoting of Ray or KubeRay can spoil it"
    script = (
        files["data"]["run.sh"]
        .replace("cd /loopscale", f"cd '{tmp_path}'")
        .replace("exec python", "printf '%s\\0'")
    )
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split(
        "\0"
    )[:-1]
    assert said == cluster.command(request(overrides=overrides))[1:]
    assert not (tmp_path / "was-here").exists()


def test_only_the_driver_gets_the_secret_of_the_records():
    spec = check(kuberay(tracking_secret="records", storage_secret="bucket"))["spec"]["rayClusterSpec"]
    head, worker = (
        [each["secretRef"]["name"] for each in group["template"]["spec"]["containers"][0]["envFrom"]]
        for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])
    )
    assert (sorted(head), worker) == (["bucket", "records"], ["bucket"])


def test_every_study_has_its_own_name_in_kubernetes():
    studies = [
        "a",
        "A",
        "a-b",
        "a/b",
        "a.b",
        "a_b",
        "1",
        "x" * 60,
        "x" * 61,
        "x/" * 40,
        "a-0123456789",
        rayjob_name("a/b")[3:],
    ]
    names = [rayjob_name(study) for study in studies]
    assert len(set(names)) == len(studies)
    for name in names:
        assert len(name) <= NAME_CHARACTERS
        assert name[0].isalpha()
        assert name[-1].isalnum()
        assert all(each.islower() or each.isdigit() or each == "-" for each in name)


def test_trials_at_a_time_are_the_capacity_of_the_pods():
    worker = {"cpu": 8, "memory": 32, "gpu": 1}
    words = kuberay(worker=worker, max_workers=3).driver(request())
    assert words[words.index("--workers") + 1] == "6", "half a GPU each"
    words = kuberay(worker=worker, max_workers=3).driver(request(resources={"cpu": 1.0, "memory": 16.0}))
    assert words[words.index("--workers") + 1] == "6", "16 GiB each"


def test_a_shared_gpu_takes_whole_trials():
    assert trials_per_machine({"gpu": 0.4}, cpus=8, gpus=3, memory=None) == 6
    assert trials_per_machine({"gpu": 2.0, "cpu": 1.0}, cpus=8, gpus=3, memory=None) == 1
    assert trials_per_machine({"gpu": 1.0}, cpus=8, gpus=0, memory=None) == 0
    assert trials_per_machine({"cpu": 0.1}, cpus=1, gpus=0, memory=None) == 10


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, "pending"),
        ({"jobDeploymentStatus": "Initializing"}, "pending"),
        ({"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}, "running"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}, "succeeded"),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, "stopped"),
        ({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed"}, "failed"),
        ({"jobDeploymentStatus": "Retrying", "jobStatus": "FAILED"}, "pending"),
        ({"jobDeploymentStatus": "Suspended"}, "stopped"),
    ],
)
def test_the_status_of_a_ray_job_becomes_a_state(status: dict, state: str):
    job = manifests(kuberay())[1]
    job["metadata"]["creationTimestamp"] = "2026-11-21T10:00:00Z"
    found = submission_of_rayjob(job | {"status": status | {"startTime": "2026-11-21T11:00:00Z"}}, "kube")
    assert (found.study, found.state, found.cluster) == ("algoformer/figure3", state, "kube")
    assert found.started == 1795258800.0
    assert found.detail == status.get("reason", "")


def test_a_missing_kubectl_or_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no kubectl here; install it"):
        kuberay().submissions("kube")
    (tmp_path / "kubectl").write_text(
        "#!/bin/sh\necho 'E1121 noise' >&2\necho 'The connection was refused.' >&2\nexit 1\n"
    )
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ClusterError, match="kubectl says: The connection was refused; check the context"):
        kuberay().submissions("kube")


def test_a_command_that_hangs_or_fails_silently_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("loopscale.cluster.commands.ANSWER_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"sleep has not answered within 0\.2 s; try again"):
        run_command(["sleep", "5"])
    with pytest.raises(ClusterError, match="false says: nothing, with exit code 1"):
        run_command(["false"])
