"""Runs among the variables of other tools, files named like modules, and limits of the shell.

Each case ended a plain run with a traceback, or changed the run, before private Rays had surroundings of their own.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from loopscale.core.ray_environment import QUIET, private_variables
from tests import processes

FOREIGN = {
    "RAY_ADDRESS": "http://127.0.0.1:8265",
    "RAY_AIR_LOCAL_CACHE_DIR": "/nonexistent",
    "RAY_CHDIR_TO_TRIAL_DIR": "1",
    "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {"working_dir": "/nonexistent"}}',
    "RAY_LOG_TO_STDERR": "1",
    "RAY_BACKEND_LOG_LEVEL": "debug",
    "RAY_OVERRIDE_RESOURCES": '{"CPU": 0}',
    "RAY_RUNTIME_ENV_HOOK": "some.module.hook",
    "RAY_TMPDIR": "/nonexistent",
    "RAY_USE_TLS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "0",
    "TUNE_RESULT_DIR": "/nonexistent",
}
"""Variables of Ray that other tools, or other studies, set."""
SHADOWS = ("numpy.py", "random.py", "ray.py", "timeit.py", "torch.py", "typing.py")
"""Files of a working folder that have the names of modules."""
STUDY = {
    "question": "Does it run?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 20, "batch_size": 16, "loops": 2, "window": 2},
    },
    "nuisance": {"training.lr": {"real": [1e-3, 1e-2], "scale": "log"}},
    "search": {"kind": "random", "trials": 2},
    "replicates": 2,
}
PROGRAM = str(Path(sys.executable).with_name("loopscale"))


def test_a_private_ray_inherits_the_named_variables_alone(monkeypatch: pytest.MonkeyPatch):
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.9")
    before = dict(os.environ)
    with private_variables():
        inside = {name: text for name, text in os.environ.items() if name.startswith(("RAY_", "TUNE_"))}
    assert inside == QUIET | {"RAY_memory_usage_threshold": "0.9"}
    assert dict(os.environ) == before


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("variables", "files", "limit"),
    [
        (FOREIGN, (), "true"),
        ({}, SHADOWS, "true"),
        ({}, (), "ulimit -v 4500000"),
    ],
    ids=["variables", "files", "limit of addresses"],
)
def test_a_run_takes_nothing_from_its_surroundings(
    tmp_path: Path, variables: dict[str, str], files: tuple[str, ...], limit: str
):
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    temporary.mkdir()
    for name in files:
        (tmp_path / name).write_text("raise SystemExit('a file of the working folder was imported')\n")
    (tmp_path / "question.yaml").write_text(yaml.safe_dump(STUDY))
    command = ["sh", "-c", f'cd {tmp_path} && {limit} && exec "$@"', "sh"]
    command += [PROGRAM, "run", "question.yaml", "--store", "records", "--workers", "1"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("RAY_", "TUNE_"))}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"} | variables
    code, out, err = processes.outcome(processes.start(command, environment))
    assert code == 0, err
    assert "trials: 4 finished" in out
    assert "Traceback" not in out + err
    assert "(raylet)" not in out + err
    left = {path.name for path in tmp_path.iterdir()} - {"home", "tmp", "records", "question.yaml", *files}
    assert not left
    assert not [*home.iterdir(), *temporary.iterdir()], "the run leaves nothing behind"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("limit", "line"),
    [
        (
            "ulimit -v 3500000",
            "this shell allows processes of at most 3,500,000 KiB, and Ray needs 4,194,304; raise the limit",
        ),
        ("ulimit -f 10000", "this shell allows files of at most"),
    ],
    ids=["addresses", "files"],
)
def test_a_limit_that_ray_does_not_survive_is_one_line(limit: str, line: str):
    program = (
        "from loopscale.errors import ResourcesError\n"
        "from loopscale.runner.machine import require_resources\n"
        "from loopscale.studies.schema import Resources\n"
        "try: require_resources(Resources(), None)\n"
        "except ResourcesError as problem: print(problem)\n"
    )
    command = ["sh", "-c", f'{limit} && exec "$@"', "sh", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(line)
    assert done.stdout.count("\n") == 1
