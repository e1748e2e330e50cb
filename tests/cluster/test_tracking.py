"""The tracking server for many users: the refusals of start.sh, the access that it gives, and its manifests."""

import http.client
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from loopscale.records.model import Note, StoreError
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing.mlflow_writer import MlflowWriter
from tests.ports import free_port
from tests.records.conftest import postgres, trials  # noqa: F401

FOLDER = Path(__file__).parents[2] / "cluster/tracking"
START = FOLDER / "start.sh"
PASSWORD, ANNA = "correct horse $(battery) 'staple'", "another long passphrase"
SECRETS = {
    "PGPASSWORD": "unused",
    "MLFLOW_AUTH_ADMIN_PASSWORD": PASSWORD,
    "MLFLOW_FLASK_SERVER_SECRET_KEY": "x" * 40,
}
MANIFESTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}")
    for path in sorted((FOLDER / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]


def environment(**more: str) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("MLFLOW_", "TRACKING_", "PG"))
    }
    return kept | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"} | more


def refusal(*words: str, **more: str) -> str:
    done = subprocess.run(
        [START, *words], env=environment(**more), capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_missing_setting_is_one_line(tmp_path: Path):
    url = ("--database", "postgresql+psycopg://mlflow@localhost/mlflow")
    assert "no database; give --database" in refusal(**SECRETS)
    assert "must be a postgresql+psycopg:// URL" in refusal(
        "--database", "postgresql://localhost/x", **SECRETS
    )
    assert "there is no option --databse" in refusal("--databse", "x")
    assert "--port has no value" in refusal("--port")
    assert "MLFLOW_AUTH_ADMIN_PASSWORD is not set" in refusal(*url)
    assert "MLFLOW_FLASK_SERVER_SECRET_KEY is not set" in refusal(*url, MLFLOW_AUTH_ADMIN_PASSWORD=PASSWORD)
    assert "at 0.0.0.0, HTTP shows passwords to the network; give --tls" in refusal(
        *url, "--host", "0.0.0.0", **SECRETS
    )
    assert "--certificate needs --key" in refusal(*url, "--certificate", "c.pem", **SECRETS)
    place = ("--folder", str(tmp_path / "made"))
    assert "give --names" in refusal(*url, *place, "--tls", **SECRETS)
    absent = ("--certificate", str(tmp_path / "no.pem"), "--key", str(tmp_path / "no.pem"))
    assert "no.pem cannot be read" in refusal(*url, *place, *absent, **SECRETS)
    missing = str(tmp_path / "not here")
    assert "cannot be read" in refusal(*url, **SECRETS | {"PGPASSWORD_FILE": missing})


def test_the_help_names_options_and_secrets():
    done = subprocess.run([START, "--help"], env=environment(), capture_output=True, text=True, timeout=20)
    assert done.returncode == 0
    for word in ("--names", "PGPASSWORD", "MLFLOW_AUTH_ADMIN_PASSWORD", "_FILE"):
        assert word in done.stdout


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_passes_the_schema_of_kubernetes(manifest: dict):
    kubernetes_validate.validate(manifest, "1.33", strict=True)


def test_manifests_and_compose_file_hold_no_secret():
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    given = dict(compose["services"]["tracking"]["environment"])
    for manifest in (param.values[0] for param in MANIFESTS):
        for container in manifest["spec"].get("template", {}).get("spec", {}).get("containers", []):
            for variable in container["env"]:
                given[variable["name"]] = variable.get("value", "")
    for name, value in given.items():
        if any(word in name for word in ("PASSWORD", "SECRET", "ACCESS_KEY")):
            assert value == "" or value.startswith(("/run/secrets/", "${")), name
    assert not any(
        "@" in value and ":" in value.split("//")[1].split("@")[0]
        for value in given.values()
        if "//" in value
    )


def test_the_compose_file_is_consistent():
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    for service in compose["services"].values():
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
        assert set(service.get("depends_on", {})) <= set(compose["services"])
        assert service["restart"] == "unless-stopped"
    secrets = {
        Path(value).name
        for value in compose["services"]["tracking"]["environment"].values()
        if "/run/" in value
    }
    assert secrets == set(compose["services"]["tracking"]["secrets"])
    usage = subprocess.run([START, "--help"], capture_output=True, text=True, check=True).stdout
    for name in compose["services"]["tracking"]["environment"]:
        assert name.removesuffix("_FILE") in usage


def test_the_compose_file_publishes_the_plain_port_on_loopback_only():
    tracking = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]["tracking"]
    assert tracking["ports"] == ["${TRACKING_PUBLISH:-127.0.0.1}:5000:5000"]
    assert tracking["cap_drop"] == ["ALL"]


def test_no_pod_of_the_tracking_server_runs_as_root_or_without_limits_or_policy():
    documents = [param.values[0] for param in MANIFESTS]
    policies = [each["spec"] for each in documents if each["kind"] == "NetworkPolicy"]
    workloads = [each for each in documents if each["kind"] in ("Deployment", "StatefulSet")]
    assert len(workloads) == 2
    for workload in workloads:
        pod = workload["spec"]["template"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["runAsUser"] > 0
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert {"cpu", "memory"} == set(container["resources"]["limits"])
        labels = pod["metadata"]["labels"].items()
        assert any(each["podSelector"]["matchLabels"].items() <= labels for each in policies)


def test_a_starting_server_has_half_a_minute_before_the_first_probe():
    deployment = next(param.values[0] for param in MANIFESTS if param.values[0]["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["initialDelaySeconds"] >= 30


@dataclass
class Server:
    uri: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "server/certificate.pem"

    def status(self, path: str, host: str) -> int:
        request = urllib.request.Request(self.uri + path, headers={"Host": host})
        trust = ssl.create_default_context(cafile=self.certificate)
        try:
            with urllib.request.urlopen(request, timeout=20, context=trust) as answer:
                return answer.status
        except urllib.error.HTTPError as answer:
            return answer.code


@pytest.fixture(scope="module")
def tracking(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:  # noqa: F811
    folder = tmp_path_factory.mktemp("it's a $(folder)")
    port = free_port()
    (folder / "admin").write_text(PASSWORD + "\n")
    secrets = {key: value for key, value in SECRETS.items() if key != "MLFLOW_AUTH_ADMIN_PASSWORD"}
    words = ["--database", postgres, "--folder", str(folder / "server"), "--names", "mlflow,mlflow.example"]
    words += ["--port", str(port), "--workers", "1", "--tls"]
    env = environment(**secrets, MLFLOW_AUTH_ADMIN_PASSWORD_FILE=str(folder / "admin"))
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [START, *words], env=env, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    server = Server(f"https://127.0.0.1:{port}", port, process, folder)
    given = pytest.MonkeyPatch()
    given.setenv("MLFLOW_TRACKING_SERVER_CERT_PATH", str(server.certificate))
    try:
        until = time.monotonic() + 540
        while not _answers(server):
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.3)
        yield server
    finally:
        given.undo()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(server: Server) -> bool:
    try:
        return server.status("/health", "probe.of.kubernetes:5000") == 200
    except OSError:
        return False


@pytest.mark.slow
def test_only_listed_names_are_answered_with_and_without_port(tracking: Server):
    search = "/api/2.0/mlflow/experiments/search?max_results=1"
    for host in (
        "mlflow",
        f"mlflow:{tracking.port}",
        "mlflow.example",
        "localhost",
        f"127.0.0.1:{tracking.port}",
    ):
        assert tracking.status(search, host) == 401, f"{host} is known, and asked for a password"
    for host in ("evil.example", "mlflow:1", "mlflow.example.evil"):
        assert tracking.status(search, host) == 403, host


@pytest.mark.slow
def test_the_server_speaks_tls_at_loopback_only(tracking: Server):
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(tracking.uri + "/health", timeout=20)
    with pytest.raises(
        (OSError, http.client.HTTPException), match=r".*"
    ):  # no HTTP, with or without an answer
        urllib.request.urlopen(tracking.uri.replace("https", "http") + "/health", timeout=20)
    assert tracking.certificate.with_name("key.pem").stat().st_mode & 0o777 == 0o600
    words = ["openssl", "x509", "-in", tracking.certificate, "-noout", "-ext", "subjectAltName"]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert all(f"DNS:{name}" in names for name in ("mlflow", "mlflow.example", "localhost"))
    assert "IP Address:127.0.0.1" in names
    listening = Path("/proc/net/tcp").read_text().splitlines()[1:]
    places = {line.split()[1] for line in listening if line.split()[3] == "0A"}
    ours = {place for place in places if place.endswith(f":{tracking.port:04X}")}
    assert ours == {f"0100007F:{tracking.port:04X}"}, "only 127.0.0.1"


@pytest.mark.slow
def test_the_process_list_shows_no_secret_and_the_settings_are_private(tracking: Server):
    shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert PASSWORD not in shown
    assert SECRETS["MLFLOW_FLASK_SERVER_SECRET_KEY"] not in shown
    assert (tracking.folder / "server/auth.ini").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_records_need_a_password(
    tracking: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    trials,  # noqa: F811
):
    def login(user: str, password: str) -> None:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", user)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)

    login("admin", "wrong")
    with pytest.raises(StoreError) as told:
        _ = open_store(tracking.uri, storage=tmp_path / "no", create=True).client
    assert "\n" not in str(told.value)
    login("admin", PASSWORD)
    _make_user(tracking, "anna", ANNA)
    login("anna", ANNA)
    store = open_store(tracking.uri, storage=tmp_path / "storage", create=True)
    with MlflowWriter(store, "one", {}) as writer:
        for note in [*trials.whole("a"), *trials.whole("b", 0.5)]:
            writer.write(note)
        writer.write(Note("a", artifacts=(("note.txt", b"kept by the server"),)))
        assert writer.flush(60)
        assert writer.refused == []
    login("admin", PASSWORD)
    again = open_store(tracking.uri, storage=tmp_path / "admin")
    records = list(recorded_trials(again, "one"))
    assert [record.outcome for record in records] == ["finished"] * 2
    found = again.artifact(records[0].run, "note.txt", tmp_path)
    assert found is not None
    assert found.read_text() == "kept by the server"
    assert any((tracking.folder / "server/artifacts").rglob("note.txt"))


def _make_user(tracking: Server, name: str, password: str) -> None:
    import requests

    done = requests.post(
        f"{tracking.uri}/api/2.0/mlflow/users/create",
        json={"username": name, "password": password},
        auth=("admin", PASSWORD),
        verify=str(tracking.certificate),
        timeout=20,
    )
    assert done.status_code == 200, done.text
