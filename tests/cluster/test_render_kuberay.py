"""The manifests for KubeRay, checked with the published schemas and hostile names; and KubeRay's answers."""

import copy
import json
import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from loopscale.cluster.base import ClusterError, Request
from loopscale.cluster.commands import run_command
from loopscale.cluster.kuberay import KubeRay, pod_states, submission_of_rayjob, waiting_reasons
from loopscale.cluster.kuberay_manifests import NAME_CHARACTERS, rayjob_name
from tests.cluster.wanted import HOSTILE, TEXT, request

RAY_JOB = json.loads((Path(__file__).parent / "rayjob.json").read_text())


def kuberay(**settings: object) -> KubeRay:
    return KubeRay.model_validate({"image": "loopscale:1"} | settings)


def manifests(cluster: KubeRay, wanted: Request | None = None) -> tuple[dict, dict]:
    files, *_, job = yaml.safe_load_all(cluster.render("kube", wanted or request()))
    return files, job


def check(cluster: KubeRay, wanted: Request | None = None) -> dict:
    """The RayJob, checked with Kubernetes' schemas and KubeRay's fields and rules."""
    files, *policies, job = yaml.safe_load_all(cluster.render("kube", wanted or request()))
    for plain in (files, *policies):
        kubernetes_validate.validate(plain, "1.33", strict=True)
    assert len(policies) == cluster.network_policy
    jsonschema.validate(job, RAY_JOB)
    groups = [
        job["spec"]["rayClusterSpec"]["headGroupSpec"],
        *job["spec"]["rayClusterSpec"]["workerGroupSpecs"],
        {"template": job["spec"]["submitterPodTemplate"]},
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
        {"keep_seconds": 60},
        {"run_as_user": None, "network_policy": False},
        {
            "keep_seconds": 60,
            "keep_on_failure_seconds": 600,
            "active_deadline_seconds": 9000,
            "start_deadline_seconds": 600,
        },
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
    plain = check(kuberay(keep_seconds=60))["spec"]
    assert (plain["shutdownAfterJobFinishes"], plain["ttlSecondsAfterFinished"]) == (True, 60)
    assert "deletionStrategy" not in plain
    ruled = check(kuberay(keep_seconds=60, keep_on_failure_seconds=600))["spec"]
    assert ruled["shutdownAfterJobFinishes"] is False
    assert "ttlSecondsAfterFinished" not in ruled
    conditions = [rule["condition"] for rule in ruled["deletionStrategy"]["deletionRules"]]
    assert conditions == [
        {"jobStatus": "SUCCEEDED", "ttlSeconds": 60},
        {"jobStatus": "FAILED", "ttlSeconds": 600},
    ]


def test_the_schema_of_ray_jobs_finds_mistakes():
    job = check(kuberay(keep_on_failure_seconds=5))
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


def test_the_driver_gets_the_rate_that_was_submitted():
    words = kuberay().command(request(rate=2e12))
    assert words[words.index("--rate") + 1] == "2000000000000.0"
    assert "--rate" not in kuberay().command(request())


def test_the_driver_gets_its_command_unchanged_through_two_shells(tmp_path: Path):
    cluster = kuberay(store=HOSTILE[3], storage=HOSTILE[1], workers=3)
    overrides = {f"a.b{number}": value for number, value in enumerate(HOSTILE)}
    files, job = manifests(cluster, request(overrides=overrides))
    assert job["spec"]["entrypoint"] == "bash /loopscale/run.sh", "no quoting of Ray or KubeRay can spoil it"
    whole = files["data"]["run.sh"]
    (check,) = [line for line in whole.splitlines() if "job_check" in line]
    assert check.endswith("|| exit"), "the driver starts only if the check of its pod passes"
    script = (
        whole.replace(check, "")
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
    worker = {"cpu": 8, "memory_gib": 32, "gpu": 1}
    words = kuberay(worker=worker, max_workers=3).driver(request())
    assert words[words.index("--workers") + 1] == "6", "half a GPU each"
    words = kuberay(worker=worker, max_workers=3).driver(request(resources={"cpu": 1.0, "memory": 16.0}))
    assert words[words.index("--workers") + 1] == "6", "16 GiB each"


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


def test_no_pod_runs_as_root_or_without_limits():
    _, policy, job = yaml.safe_load_all(kuberay().render("kube", request()))
    cluster = job["spec"]["rayClusterSpec"]
    templates = [
        cluster["headGroupSpec"]["template"],
        *(group["template"] for group in cluster["workerGroupSpecs"]),
        job["spec"]["submitterPodTemplate"],
    ]
    for template in templates:
        rights = template["spec"]["securityContext"]
        assert (rights["runAsNonRoot"], rights["runAsUser"], rights["fsGroup"]) == (True, 1000, 1000)
        (container,) = template["spec"]["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert set(container["resources"]) == {"requests", "limits"}
        selected = policy["spec"]["podSelector"]["matchLabels"]
        assert selected.items() <= template["metadata"]["labels"].items(), "the policy covers every pod"
    own, operator = policy["spec"]["ingress"]
    assert own["from"] == [{"podSelector": policy["spec"]["podSelector"]}]
    assert [port["port"] for port in operator["ports"]] == [8265]


KUBECTL = """\
#!/bin/sh
cat > "$SAID/stdin"
echo "$*" >> "$SAID/words"
case "$*" in
  *apply*) [ ! -f "$SAID/apply" ] || { cat "$SAID/apply" >&2; exit 1; } ;;
  *create*) [ ! -f "$SAID/create" ] || { cat "$SAID/create" >&2; exit 1; } ;;
  *"get secret "*) echo "Error from server (NotFound): secrets \\"t\\" not found" >&2; exit 1 ;;
  *resourcequotas*) cat "$SAID/quotas" ;;
esac
"""


@pytest.fixture
def answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the answers of kubectl, which has no API server here."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").write_text(KUBECTL)
    (tmp_path / "bin/kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    monkeypatch.setenv("SAID", str(tmp_path))
    (tmp_path / "quotas").write_text('{"items": []}')
    return tmp_path


def problems(**settings: object) -> list[tuple[bool, str]]:
    cluster = kuberay(store="http://mlflow:5000", storage="s3://b/c", **settings)
    return [(each.fatal, each.text) for each in cluster.queue_problems("kube", request())]


def test_the_api_server_judges_the_manifests_and_the_pods_without_creating_them(answers: Path):
    assert problems(namespace="lab") == []
    asked = (answers / "words").read_text().splitlines()
    assert [line.split()[:3] for line in asked[:3]] == [
        ["--namespace=lab", "apply", "--dry-run=server"],
        ["--namespace=lab", "create", "--dry-run=server"],
        ["--namespace=lab", "create", "--dry-run=server"],
    ]


def test_a_missing_namespace_account_or_secret_is_one_line_before_anything_is_queued(answers: Path):
    (answers / "apply").write_text('Error from server (NotFound): namespaces "lab" not found\n')
    (line,) = problems(namespace="lab")
    assert line == (
        True,
        'kubectl says: Error from server (NotFound): namespaces "lab" not found; '
        "check the context, the namespace and KubeRay",
    )
    (answers / "apply").unlink()
    (answers / "create").write_text('pods "x" is forbidden: serviceaccount "s" not found\n')
    fatal, text = problems(service_account="s", tracking_secret="t")[0]
    assert (fatal, 'serviceaccount "s" not found' in text) == (True, True)
    assert problems(tracking_secret="t")[-1][1].startswith(
        "kubectl says: Error from server (NotFound): secrets"
    )
    unplaced = kuberay().queue_problems("kube", request())
    assert [each.text.partition(";")[0] for each in unplaced[:2]] == [
        "the cluster has no store",
        "the cluster has no storage",
    ]


def test_a_quota_that_is_too_small_is_one_line(answers: Path):
    def quota(cpu: str) -> None:
        status = {"hard": {"requests.cpu": cpu, "limits.memory": "1Ti"}, "used": {"requests.cpu": "1500m"}}
        items = [{"metadata": {"name": "team"}, "status": status}]
        (answers / "quotas").write_text(json.dumps({"items": items}))

    worker = {"cpu": 4, "memory_gib": 16}
    quota("5")
    ((fatal, text),) = problems(worker=worker, max_workers=3)
    assert fatal
    assert text.startswith("the quota team leaves requests.cpu 3.5, and the head and one worker need 6")
    quota("10")
    ((fatal, text),) = problems(worker=worker, max_workers=3)
    assert not fatal
    assert "all 3 workers need 14; some of them will not start" in text
    quota("100")
    assert problems(worker=worker, max_workers=3) == []


def test_the_reason_of_a_waiting_pod_is_the_detail_of_the_study():
    waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image\n "loopscale:1"'}
    pods = [
        {
            "metadata": {"name": "head-1", "labels": {"ray.io/cluster": "one"}},
            "spec": {"nodeName": "metal-7"},
            "status": {"containerStatuses": [{"state": {"waiting": waiting}}]},
        },
        {
            "metadata": {"name": "worker-2", "labels": {"ray.io/cluster": "two"}},
            "status": {
                "phase": "Pending",
                "conditions": [{"reason": "Unschedulable", "message": "0/3 nodes are available"}],
            },
        },
    ]
    assert waiting_reasons(pods) == {
        "one": 'ImagePullBackOff: Back-off pulling image "loopscale:1"',
        "two": "Unschedulable: 0/3 nodes are available",
    }
    head, worker = pod_states(pods)
    assert (head.name, head.state, head.holds) == ("head-1", "unknown", "on metal-7")
    assert head.reason == 'ImagePullBackOff: Back-off pulling image "loopscale:1"'
    assert (worker.name, worker.state, worker.holds) == ("worker-2", "pending", "")
    assert worker.reason == "Unschedulable: 0/3 nodes are available"
