"""Run one tiny study in odd surroundings: variables of other tools, files, limits, locales, places, groups.

Each case comes from a public report of a user of Ray, MLflow, Optuna or Python, or is a change of such a case. A case
passes if all trials are recorded as finished, or if the run refuses within seconds and says why in one line. A
traceback, a hang, or a run that says finished with fewer records fails.

Prints a row for each case, and ends with the number of cases that failed.
"""

import argparse
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

STUDY = """
question: Does it run?
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 2}
  training: {steps: 20, batch_size: 16, loops: 2, window: 2}
nuisance:
  training.lr: {real: [1e-3, 1e-2], scale: log}
search: {kind: random, trials: 2}
replicates: 2
"""
TRIALS = 4
PROGRAM = str(Path(sys.executable).with_name("loopscale"))
HANG_SECONDS = 300
REFUSAL_SECONDS = 30
"""The longest time until a refusal."""
NOWHERE = "/nonexistent"


@dataclass(frozen=True)
class Case:
    """One kind of odd surroundings."""

    name: str
    variables: Mapping[str, str | None] = field(default_factory=dict)
    """Variables to set, or to unset (None)."""
    files: tuple[str, ...] = ()
    """Files of the working folder that end every program that imports them."""
    shell: str = ""
    """What the shell does before it becomes the run."""


def variables() -> Iterator[Case]:
    """Variables of Ray, Tune, MLflow, Optuna, torch, Python, the system, and services."""
    yield Case("nothing")
    for name, value in (
        ("RAY_ADDRESS", "auto"),
        ("RAY_ADDRESS", "127.0.0.1:6399"),
        ("RAY_ADDRESS", "http://127.0.0.1:8265"),
        ("RAY_TMPDIR", NOWHERE),
        ("RAY_RUNTIME_ENV_HOOK", "some.module.hook"),
        ("RAY_RUNTIME_ENV_HOOK", "ray._private.runtime_env.uv_runtime_env_hook.hook"),
        ("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"working_dir": "/nonexistent"}}'),
        ("RAY_LOG_TO_STDERR", "1"),
        ("RAY_BACKEND_LOG_LEVEL", "debug"),
        ("RAY_CHDIR_TO_TRIAL_DIR", "1"),
        ("RAY_AIR_LOCAL_CACHE_DIR", NOWHERE),
        ("RAY_OVERRIDE_RESOURCES", '{"CPU": 0}'),
        ("RAY_USE_TLS", "1"),
        ("RAY_AUTH_MODE", "token"),
        ("RAY_CLIENT_MODE", "1"),
        ("RAY_PROFILING", "1"),
        ("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "0"),
        ("TUNE_RESULT_DIR", NOWHERE),
        ("TUNE_GLOBAL_CHECKPOINT_S", "abc"),
        ("MLFLOW_RUN_ID", "abc"),
        ("MLFLOW_EXPERIMENT_NAME", "other"),
        ("MLFLOW_DEFAULT_ARTIFACT_ROOT", "s3://nobody"),
        ("MLFLOW_ENABLE_ASYNC_LOGGING", "true"),
        ("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true"),
        ("MLFLOW_REGISTRY_URI", "databricks"),
        ("MLFLOW_ENABLE_WORKSPACES", "true"),
        ("MLFLOW_SQLALCHEMYSTORE_POOL_SIZE", "abc"),
        ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "abc"),
        ("MLFLOW_TRACKING_TOKEN", "x"),
        ("OPTUNA_STORAGE", "sqlite:///x"),
        ("TORCH_LOGS", "bogus"),
        ("TORCHDYNAMO_DISABLE", "1"),
        ("PYTORCH_JIT", "0"),
        ("OMP_NUM_THREADS", "abc"),
        ("OMP_NUM_THREADS", "0"),
        ("MKL_NUM_THREADS", "64"),
        ("CUDA_VISIBLE_DEVICES", "abc"),
        ("PYTHONPATH", NOWHERE),
        ("PYTHONWARNINGS", "error"),
        ("PYTHONOPTIMIZE", "2"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONSAFEPATH", "1"),
        ("PYTHONHASHSEED", "0"),
        ("PYTHONMALLOC", "debug"),
        ("PYTHONIOENCODING", "ascii"),
        ("PYTHONFAULTHANDLER", "1"),
        ("LC_ALL", "C"),
        ("LC_ALL", "tr_TR.UTF-8"),
        ("LC_ALL", "xx_YY.bogus"),
        ("TZ", "Nowhere/Bogus"),
        ("COLUMNS", "abc"),
        ("TERM", "bogus"),
        ("HOME", None),
        ("HOME", "/"),
        ("HOME", f"{NOWHERE}/home"),
        ("PATH", NOWHERE),
        ("SHELL", "/bin/false"),
        ("LD_PRELOAD", f"{NOWHERE}.so"),
        ("GIT_DIR", NOWHERE),
        ("http_proxy", "garbage"),
        ("ALL_PROXY", "socks5://127.0.0.1:1"),
        ("SSL_CERT_FILE", NOWHERE),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("SLURM_JOB_ID", "1"),
        ("WANDB_MODE", "online"),
    ):
        yield Case(f"{name} {'unset' if value is None else '= ' + value}", {name: value})


def other_cases() -> Iterator[Case]:
    """Files named like modules, limits of the shell, and places."""
    for file in ("timeit.py", "torch.py", "ray.py", "numpy.py", "random.py", "typing.py", "loopscale.py"):
        yield Case(f"a file {file} in the working folder", files=(file,))
    for limit in (
        "-v 2000000",
        "-v 4500000",
        "-f 100",
        "-f 10000",
        "-f 200000",
        "-n 64",
        "-n 1024",
        "-s 256",
        "-l 0",
        "-c 0",
    ):
        yield Case(f"ulimit {limit}", shell=f"ulimit {limit};")
    deep = "x" * 74
    yield Case("a long TMPDIR", shell=f"mkdir {deep}; export TMPDIR=$PWD/{deep};")
    yield Case("TMPDIR that is absent", {"TMPDIR": NOWHERE})
    yield Case("a working folder of 600 MB", shell="truncate -s 600M large.bin;")
    yield Case(
        "a working folder with spaces, quotes and letters",
        shell='mkdir "a b\'ü"; cd "a b\'ü"; cp ../s.yaml .;',
    )
    yield Case(
        "a working folder that was deleted", shell='cp s.yaml "$HOLD"; mkdir gone; cd gone; rmdir ../gone;'
    )
    yield Case("umask 777", shell="umask 777;")
    yield Case("umask 077", shell="umask 077;")
    yield Case("no standard input", shell="exec 0<&-;")
    yield Case("no standard output", shell="exec 1>&-;")
    yield Case("no standard error", shell="exec 2>&-;")
    yield Case("nohup", shell='set -- nohup "$@";')
    yield Case("nice 19", shell='set -- nice -n 19 "$@";')
    yield Case("one CPU by taskset", shell='set -- taskset -c 0 "$@";')
    yield Case(
        "a read-only /dev/shm", shell="mount --bind /dev/shm /dev/shm; mount -o remount,ro,bind /dev/shm;"
    )
    yield Case("a /dev/shm of 1 MiB", shell="mount -t tmpfs -o size=1m tmpfs /dev/shm;")
    yield Case("a /tmp without execution", shell="mount -t tmpfs -o noexec tmpfs /tmp;")
    yield Case("a /tmp of 1 MiB", shell="mount -t tmpfs -o size=1m tmpfs /tmp;")
    yield Case("a read-only home", shell="mount --bind $HOME $HOME; mount -o remount,ro,bind $HOME;")


@dataclass(frozen=True)
class Result:
    code: int | None
    """The exit code; None for a hang."""
    seconds: float
    finished: int
    """Trials that the store holds as finished."""
    text: str

    @property
    def verdict(self) -> str:
        """`runs`, `refused`, or what went wrong."""
        if self.code is None:
            return "HANGS"
        if "Traceback" in self.text:
            return "TRACEBACK"
        if self.code == 0:
            return "runs" if self.finished == TRIALS else f"LOST: {self.finished} of {TRIALS} recorded"
        if self.code < 0 or self.code > 2:
            return f"DIES with code {self.code}"
        return "refused" if self.seconds <= REFUSAL_SECONDS else "REFUSED LATE"

    @property
    def last_line(self) -> str:
        lines = [line for line in self.text.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


def attempt(case: Case) -> Result:
    """Run the study in a folder of its own, with mounts of its own (root)."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as place:
        folder, store = Path(place) / "work", Path(place) / "store"
        for part in (folder, Path(place) / "home"):
            part.mkdir()
        (folder / "s.yaml").write_text(STUDY)
        for file in case.files:
            (folder / file).write_text("raise SystemExit('a file of the working folder was imported')\n")
        clean = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("RAY_", "TUNE_", "MLFLOW_"))
        }
        environment = clean | {"HOME": f"{place}/home", "HOLD": place}
        for name, value in case.variables.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value
        study = "s.yaml" if "gone" not in case.shell else f"{place}/s.yaml"
        run = [PROGRAM, "run", study, "--store", str(store), "--workers", "2"]
        # The shell is no part of the case: LD_PRELOAD and its like are set for the run alone.
        command = [
            shutil.which("unshare") or "unshare",
            "-m",
            shutil.which("sh") or "sh",
            "-c",
            f'cd {folder}; {case.shell} exec "$@"',
            "sh",
            *run,
        ]
        started = time.monotonic()
        with (Path(place) / "output").open("wb") as output:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
            try:
                code: int | None = process.wait(HANG_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
        seconds = time.monotonic() - started
        text = (Path(place) / "output").read_text(errors="replace")
        return Result(code, seconds, finished_trials(store), text)


def finished_trials(store: Path) -> int:
    """The finished trials that SQLite itself reads in the store."""
    if not (store / "mlflow.db").exists():
        return 0
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        [found] = database.execute(
            "SELECT count(*) FROM tags WHERE key = 'outcome' AND value = 'finished'"
        ).fetchone()
    return found


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--only", default="", help="a regular expression for the names of cases")
    options.add_argument(
        "--lines", action="store_true", help="print the last line of every run, not of refusals alone"
    )
    chosen = options.parse_args()
    failed = 0
    print("| surroundings | result | seconds | last line |\n|---|---|---|---|")
    for case in (*variables(), *other_cases()):
        if re.search(chosen.only, case.name):
            result = attempt(case)
            failed += result.verdict not in ("runs", "refused")
            line = result.last_line if chosen.lines or result.verdict != "runs" else ""
            print(f"| {case.name} | {result.verdict} | {result.seconds:.0f} | {line} |", flush=True)
    print(f"\n{failed} cases failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
