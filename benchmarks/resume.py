"""Seconds and memory to resume a study of 10,000 recorded trials, from a folder and from a server.

    python benchmarks/resume.py --cells 500 --servers
    python benchmarks/resume.py --cells 500 --tuning 198 --servers --bucket

The second command has 100,000 trials, and the server's study has its checkpoints in a bucket. The records come from
`recorded_study.py`.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

from machine import describe
from recorded_study import create_store, study_file

RESUME = """
import sys, time, json, resource
times, mark = {}, [time.monotonic(), 0.0]
def lap(name):
    now = [time.monotonic(), time.process_time()]
    times[name] = [now[0] - mark[0], now[1] - mark[1]]; mark[:] = now
from loopscale.records.writing.run_account import recall_runs
from loopscale.records.study_records import as_records
from loopscale.records.stores.opening import open_store
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.simulation.simulate import MemoryRecords
from loopscale.studies.spec import Study
lap("imports")
study = Study.load(sys.argv[1]); lap("study")
store = open_store(sys.argv[2], storage=sys.argv[3]); store.client; lap("open")
account = recall_runs(store, study.name) if store.shared else None
runs = account.in_order if account else store.runs(store.require_experiment(study.name), params=False)
records = list(as_records(runs)); lap("load")
conductor = Conductor(study, records, MemoryRecords()); lap("conductor")
first = conductor.start_next(); lap("next")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
with MlflowWriter(store, study.name, {}, account=account) as writer:
    writer.renew_run_file()
print(json.dumps({"trials": len(records), "first": str(first), "times": times, "MiB": peak}))
"""


def resume(file: Path, store: str, storage: Path | str) -> dict:
    """The measurements of a new process that resumes the study."""
    command = [sys.executable, "-c", RESUME, str(file), store, str(storage)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


@contextmanager
def tracking_server(folder: Path, workers: int):
    """Run `cluster/tracking/start.sh` on PostgreSQL. Yields the addresses of the server and the database."""
    root = Path(__file__).parent.parent
    sys.path.insert(0, str(root))
    from tests.ports import free_port
    from tests.postgres import running_postgres

    port, word = free_port(), uuid.uuid4().hex
    os.environ |= {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": word}
    secrets = {"MLFLOW_AUTH_ADMIN_PASSWORD": word, "MLFLOW_FLASK_SERVER_SECRET_KEY": word}
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with running_postgres() as database:
        command = [str(root / "cluster/tracking/start.sh"), "--database", database, "--folder", str(folder)]
        command += ["--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | secrets | path, start_new_session=True
            )
        try:
            uri = f"http://127.0.0.1:{port}"
            wait(f"{uri}/health", server)
            yield uri, database
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


@contextmanager
def bucket_storage(folder: Path):
    """Run an S3 server. Yields the address of its bucket, as `--storage` takes it."""
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from tests.buckets import CREDENTIALS, Bucket

    os.environ |= CREDENTIALS
    bucket = Bucket(folder)
    bucket.start()
    try:
        yield bucket.url
    finally:
        bucket.kill()


def wait(url: str, server: subprocess.Popen) -> None:
    """Wait until the server answers."""
    while server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the tracking server has ended")


def show(name: str, trials: int, found: dict) -> None:
    total = [sum(times[n] for times in found["times"].values()) for n in (0, 1)]
    print(f"{name}: {trials:,} trials, then {found['first']}")
    for part, (wall, cpu) in found["times"].items():
        print(f"  {part:10} {wall:6.2f} s, {cpu:6.2f} of processor")
    print(f"  all        {total[0]:6.2f} s, {total[1]:6.2f} of processor, {found['MiB']:.0f} MiB at the peak")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cells", type=int, default=500, help="50 to 500")
    options.add_argument("--tuning", type=int, default=18, help="trials of a cell before its two replicates")
    options.add_argument("--servers", action="store_true", help="also MLflow's server on PostgreSQL")
    options.add_argument("--workers", type=int, default=2, help="processes of that server")
    options.add_argument(
        "--bucket", action="store_true", help="the server's study has checkpoints in a bucket"
    )
    chosen = options.parse_args()
    print(describe(), flush=True)
    with tempfile.TemporaryDirectory(prefix="resume-") as name, ExitStack() as stack:
        folder = Path(name)
        file = study_file(folder, chosen.cells, chosen.tuning)
        places = [("SQLite", str(folder / "store"), None)]
        storage = folder / "storage"
        if chosen.servers:
            (folder / "server").mkdir()
            places.append(
                (
                    "MLflow server on PostgreSQL",
                    *stack.enter_context(tracking_server(folder / "server", chosen.workers)),
                )
            )
        for kind, where, database in places:
            if database and chosen.bucket:
                storage = stack.enter_context(bucket_storage(folder))
            trials = create_store(file, where, database, storage)
            if database:
                show(f"{kind}, no file of ended runs", trials, resume(file, where, storage))
            show(kind, trials, resume(file, where, storage))


if __name__ == "__main__":
    main()
