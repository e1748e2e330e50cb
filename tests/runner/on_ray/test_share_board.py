"""Two studies with two drivers on one Ray cluster: shares by weight, and no study can block the other."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.ports import free_port
from tests.runner.drivers import TRACING, Driver, python_path

STUDY = """\
question: May I have some?
fixed:
  task: {{kind: linear_regression, dim: 2, points: 3}}
  model: {{kind: looped, width: 4, heads: 1}}
  training: {{steps: {steps}, eval_every: 25, batch_size: 4, loops: 1, window: 1}}
replicates: {trials}
evaluate: {{loops: 1, prompts: 4}}
"""
SECRET = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef0123456789abcdef"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a Ray cluster with four CPUs. Its workers write a line to `saves` for each checkpoint.

    A save lasts a second while the file `save-seconds` exists. So sleep paces the trials, on a machine of any speed.
    """
    port = free_port()
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--head", "--block", f"--port={port}", "--num-cpus=4", "--num-gpus=0"]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"]
    environment = os.environ | {"TRACE_SAVES": str(tmp_path / "saves"), "PYTHONPATH": python_path(TRACING)}
    (slow := tmp_path / "save-seconds").write_text("1")
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder,
        (tmp_path / "ray").open("w") as log,
    ):
        (tmp_path / "saves").touch()
        process = subprocess.Popen(
            [*command, f"--temp-dir={folder}"],
            text=True,
            env=environment | {"OMP_NUM_THREADS": "1", "SAVE_SECONDS": str(slow)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            processes.wait_until(lambda: "runtime started" in (tmp_path / "ray").read_text(), process)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


RECENT = 12
"""Saves from which the trials that train are read. Four trials save about three times each."""


class SaveTrace:
    """Trials of each study that are training, from the trace of saved checkpoints. The trace needs no clock."""

    def __init__(self, file: Path, drivers: dict[Driver, int]) -> None:
        """`drivers` with the steps of their trials."""
        self.file, self.drivers = file, drivers

    def lines(self) -> list[tuple[Driver, str, int]]:
        """Driver, trial and step of each save, in order."""
        found = []
        for line in self.file.read_text().split("\n")[:-1]:
            key, step, url = line.split(" ", 2)
            found += [(driver, key, int(step)) for driver in self.drivers if str(driver.store) in url]
        return found

    def saves(self, driver: Driver) -> Counter[tuple[str, int]]:
        return Counter((key, step) for each, key, step in self.lines() if each is driver)

    def training_trials(self) -> list[int]:
        """Number of trials of each driver among the last saves, without trials that have ended."""
        lines = self.lines()
        last = {key: step for _, key, step in lines}
        trials = {(driver, key) for driver, key, _ in lines[-RECENT:] if last[key] < self.drivers[driver]}
        return [sum(each is driver for each, _ in trials) for driver in self.drivers]


@pytest.mark.slow
@pytest.mark.hosts
@pytest.mark.long
@pytest.mark.timeout(2700)
def test_two_studies_share_a_cluster_by_weight_and_a_stopped_study_leaves_it_to_the_other(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    drivers: dict[Driver, int] = {}
    for name, steps, trials in (("light", 7000, 5), ("heavy", 5000, 12)):
        (file := tmp_path / f"{name}.yaml").write_text(STUDY.format(steps=steps, trials=trials))
        (tmp_path / name).mkdir()
        drivers[Driver(file, tmp_path / name, workers=4)] = steps
    light, heavy = drivers
    trace = SaveTrace(tmp_path / "saves", drivers)
    first = light.start("--address", cluster, "--weight", "1")
    processes.wait_until(lambda: trace.training_trials() == [4, 0], first)
    second = heavy.start("--address", cluster, "--weight", "3")
    processes.wait_until(lambda: trace.training_trials() == [1, 3], second)
    before = len(trace.lines())
    processes.wait_until(lambda: len(trace.lines()) >= before + 80, second)
    middle = [driver for driver, *_ in trace.lines()[before : before + 80]]
    os.kill(first.pid, signal.SIGINT)
    code, _, err = processes.outcome(first)
    assert code == 3, err
    processes.wait_until(
        lambda: trace.training_trials() == [0, 4], second
    )  # unused slots go to the other study
    (tmp_path / "save-seconds").unlink()
    code, _, err = processes.outcome(second)
    assert code == 0, err
    code, out, err = light.finish("--address", cluster, "--weight", "0.5")
    assert code == 0, out + err
    for driver, trials in ((light, 5), (heavy, 12)):
        driver.check(trials=trials, baselines=0)
        assert set(trace.saves(driver).values()) == {1}, "a step was trained twice"
    share = sum(each is light for each in middle) / len(middle)
    with capsys.disabled():
        print(f"\nshares of 1 and 3: {share:.2f} of the checkpoints are of the first study")
    assert 0.2 <= share <= 0.36, "a quarter"
