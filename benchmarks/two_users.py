"""Two users with permissions of their own on one Ray cluster and one tracking server. Prints each act and each study.

    python benchmarks/two_users.py --minutes 60

Each user runs studies, one after another. At random moments a user's driver is killed and started again, or the user
tries to change the other user's records, with the verbs of loopscale and with requests of the server. Every attempt
must be refused. Every study must end with the results of the first one. The program measures no speed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.machine import describe
from tests.ports import free_port
from tests.records.conftest import ADMIN, Guarded, password

USERS = ("anna", "bob")
STUDY = """\
question: Does a study survive another user?
source: nowhere
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: looped, width: 16, heads: 2}
  training: {steps: 300, loops: 4, window: 2, batch_size: 8, eval_every: 30}
scientific: {training.window: [1, 4]}
replicates: 6
evaluate: {loops: 6, prompts: 64}
baselines: [least_squares]
"""
TRIALS = 12
RESULT = "evaluate/error"
PAUSE = (5, 45)
"""Seconds between two acts. A driver that is killed faster than it starts would never end."""
Ends = dict[str, float]


@contextmanager
def ray_cluster(folder: Path) -> Iterator[str]:
    """The address of a Ray cluster with two CPUs."""
    address = f"127.0.0.1:{free_port()}"
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--num-cpus=2"]
    command += ["--num-gpus=0", f"--port={address.split(':')[1]}", "--node-ip-address=127.0.0.1"]
    command += ["--include-dashboard=false", "--disable-usage-stats", "--object-store-memory=100000000"]
    with (folder / "ray.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, f"--temp-dir={folder}/ray"], stdout=log, stderr=log, start_new_session=True
        )
    try:
        while "Ray runtime started" not in (folder / "ray.log").read_text():
            assert process.poll() is None, (folder / "ray.log").read_text()
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


class User:
    """A user with a folder, and with a driver that can be killed."""

    def __init__(self, name: str, server: Guarded, root: Path, ray: str) -> None:
        self.name, self.server, self.ray, self.studies = name, server, ray, 0
        self.folder = root / name
        self.folder.mkdir()
        self.driver: subprocess.Popen[bytes] | None = None
        self.killed = 0

    @property
    def study(self) -> str:
        return f"{self.name}{self.studies}"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.study}.log"

    def begin(self) -> None:
        """Start the next study."""
        self.studies += 1
        (self.folder / f"{self.study}.yaml").write_text(STUDY)
        self.drive()

    def drive(self) -> None:
        with self.log.open("ab") as log:
            self.driver = subprocess.Popen(
                self._command("run", f"{self.study}.yaml", "--address", self.ray),
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        assert self.driver
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()
        self.killed += 1

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*words),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def ask(self, method: str, path: str, **what: object) -> int:
        """The status of a request of this user."""
        auth = (self.name, password(self.name))
        return requests.request(
            method, f"{self.server.uri}/api/{path}", auth=auth, timeout=120, **what
        ).status_code

    @property
    def _environment(self) -> dict[str, str]:
        login = {"MLFLOW_TRACKING_USERNAME": self.name, "MLFLOW_TRACKING_PASSWORD": password(self.name)}
        return os.environ | login | {"OMP_NUM_THREADS": "1"}

    def _command(self, *words: str) -> list[str]:
        place = ["--store", self.server.uri, "--storage", str(self.folder / "storage")]
        return [sys.executable, "-m", "loopscale", *words, *place]


class Attempts:
    """Attempts of one user to change the records of the other user."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.refused = rng, 0

    def verb(self, user: User, other: User) -> str:
        """One verb on the other user's study. It must end with one line and code 2."""
        (user.folder / f"{other.study}.yaml").write_text(STUDY)
        verbs = [
            ("run", f"{other.study}.yaml", "--address", user.ray),
            ("rename", other.study, "mine"),
            ("delete", other.study, "--yes"),
            ("stop", other.study),
        ]
        words = self.rng.choice(verbs)
        done = user.call(*words)
        lines = done.stderr.splitlines()
        assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), (words, done)
        assert other.name not in lines[0].replace(other.study, ""), lines[0]
        self.refused += 1
        return f"loopscale {' '.join(words[:2])}: {lines[0]}"

    def request(self, user: User, other: User) -> str:
        """Every changing request on the other user's experiment and on one of its runs. All must be refused."""
        place = experiment(user.server, other.study)
        if place is None:
            return "no experiment yet"
        run = next(iter(runs(user.server, place)), None)
        v2 = "2.0/mlflow"
        asked: list[tuple[str, str, dict[str, object]]] = [
            ("POST", f"{v2}/experiments/update", {"experiment_id": place, "new_name": "mine"}),
            ("POST", f"{v2}/experiments/delete", {"experiment_id": place}),
            (
                "POST",
                f"{v2}/experiments/set-experiment-tag",
                {"experiment_id": place, "key": "a", "value": "b"},
            ),
            ("POST", f"{v2}/runs/create", {"experiment_id": place}),
            ("POST", f"{v2}/runs/search", {"experiment_ids": [place]}),
        ]
        if run:
            of_run = {"run_id": run["info"]["run_id"]}
            asked += [
                ("POST", f"{v2}/runs/set-tag", of_run | {"key": "outcome", "value": "finished"}),
                ("POST", f"{v2}/runs/delete-tag", of_run | {"key": "outcome"}),
                ("POST", f"{v2}/runs/log-metric", of_run | {"key": RESULT, "value": 0.0, "timestamp": 0}),
                ("POST", f"{v2}/runs/log-parameter", of_run | {"key": "a", "value": "b"}),
                ("POST", f"{v2}/runs/log-batch", of_run | {"tags": [{"key": "a", "value": "b"}]}),
                ("POST", f"{v2}/runs/update", of_run | {"status": "FAILED"}),
                ("POST", f"{v2}/runs/delete", of_run),
            ]
        for method, path, what in asked:
            status = user.ask(method, path, json=what)
            seen = (
                path.endswith("search") and status == 200
            )  # the server answers with the user's own runs: none
            assert seen or status in (403, 404), (path, status)
            self.refused += 1
        if run:
            path = f"2.0/mlflow-artifacts/artifacts/{place}/{run['info']['run_id']}/artifacts/curve.parquet"
            for method in ("PUT", "DELETE", "GET"):
                status = user.ask(method, path, data=b"nothing")
                assert status in (403, 404), (method, path, status)
                self.refused += 1
        return f"{len(asked) + 3 * bool(run)} requests on {other.study}"


def experiment(server: Guarded, name: str) -> str | None:
    """The identity of a study's experiment, as the administrator sees it."""
    asked = {"experiment_name": name}
    path = f"{server.uri}/api/2.0/mlflow/experiments/get-by-name"
    answer = requests.get(path, params=asked, auth=ADMIN, timeout=120)
    return answer.json()["experiment"]["experiment_id"] if answer.ok else None


def runs(server: Guarded, place: str) -> list[dict]:
    """The runs of an experiment that are trials, as the administrator sees them."""
    asked = {"experiment_ids": [place], "max_results": 1000}
    answer = requests.post(f"{server.uri}/api/2.0/mlflow/runs/search", json=asked, auth=ADMIN, timeout=120)
    found = answer.json().get("runs", [])
    return [run for run in found if "trial" in tags(run)]


def tags(run: dict) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags", ())}


def ends(server: Guarded, study: str) -> Ends:
    """The result of every trial of a finished study. Fails if a trial has two runs, or is not finished."""
    place = experiment(server, study)
    assert place, f"no records of {study}"
    found: Ends = {}
    for run in runs(server, place):
        about = tags(run)
        if about.get("role") == "baseline":
            continue
        name = f"{about['label']} seed {about['seed']}"
        assert (run["info"]["status"], about["outcome"]) == ("FINISHED", "finished"), (study, name)
        assert name not in found, f"{study}: {name} has two runs"
        found[name] = {each["key"]: each["value"] for each in run["data"]["metrics"]}[RESULT]
    assert len(found) == TRIALS, (study, len(found))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    print(describe(), flush=True)
    rng = random.Random(asked.seed)
    attempts, first, finished = Attempts(rng), Ends(), 0
    with tempfile.TemporaryDirectory(prefix="users-", dir="/tmp") as name:
        root = Path(name)
        server = Guarded(root)
        server.start()
        users = list[User]()
        try:
            for user in USERS:
                server.ask("2.0/mlflow/users/create", username=user, password=password(user))
            with ray_cluster(root) as ray:
                users = [User(user, server, root, ray) for user in USERS]
                until = time.monotonic() + asked.minutes * 60
                for user in users:
                    user.begin()
                while any(user.driver for user in users):
                    time.sleep(rng.uniform(*PAUSE))
                    for user in users:
                        if user.driver is None or user.driver.poll() is None:
                            continue
                        assert user.driver.returncode == 0, user.log.read_text()[-3000:]
                        came = ends(server, user.study)
                        first = first or came
                        assert came == first, (user.study, came, first)
                        finished += 1
                        print(f"{user.study} is complete: {TRIALS} trials, as in the first study", flush=True)
                        user.driver = None
                        if time.monotonic() < until:
                            user.begin()
                    running = [user for user in users if user.driver]
                    if not running or time.monotonic() > until:
                        continue  # the last studies end without another act
                    user, act = rng.choice(running), rng.choice(("kill", "verb", "request"))
                    other = users[1 - users.index(user)]
                    if act == "kill":
                        user.kill()
                        user.drive()
                        print(f"{user.name}: killed and started again", flush=True)
                    elif other.driver:
                        print(f"{user.name}: {getattr(attempts, act)(user, other)}", flush=True)
        finally:
            for user in users:
                if user.driver and user.driver.poll() is None:
                    user.kill()
            server.kill()
    killed = sum(user.killed for user in users)
    print(
        f"\n{asked.minutes:.0f} minutes, {finished} studies complete, {killed} kills of drivers, "
        f"{attempts.refused} attempts refused, none succeeded; seed {asked.seed}"
    )


if __name__ == "__main__":
    main()
