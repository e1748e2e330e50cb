"""Two studies with two drivers on one Ray cluster: shares by weight, and no study can block the other."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
    """Address of a Ray cluster with four CPUs. Its workers write a line to `saves` for each checkpoint."""
    port = free_port()
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--head", "--block", f"--port={port}", "--num-cpus=4", "--num-gpus=0"]
    command += ["--node-ip-address=127.0.0.1", "--include-dashboard=false", "--disable-usage-stats"]
    environment = os.environ | {"TRACE_SAVES": str(tmp_path / "saves"), "PYTHONPATH": python_path(TRACING)}
    with (
        tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder,
        (tmp_path / "ray").open("w") as log,
    ):
        (tmp_path / "saves").touch()
        process = subprocess.Popen(
            [*command, f"--temp-dir={folder}"],
            env=environment | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            _wait_until(lambda: "runtime started" in (tmp_path / "ray").read_text(), 60)
            yield f"127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.2)


@contextlib.contextmanager
def started(driver: Driver, address: str, weight: float) -> Iterator[subprocess.Popen[str]]:
    """The driver's process, which is killed at the end of the test."""
    process = driver.start("--address", address, "--weight", str(weight))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class SaveTrace:
    """Trials of each study that are training, from the trace of saved checkpoints."""

    def __init__(self, file: Path, *drivers: Driver) -> None:
        self.file, self.drivers, self.read = file, drivers, 0

    def saves(self, driver: Driver) -> Counter[tuple[str, int]]:
        saves = (line.split(" ", 2) for line in self.file.read_text().split("\n") if line)
        return Counter((key, int(step)) for key, step, url in saves if str(driver.store) in url)

    def training_trials(self, seconds: float) -> list[int]:
        """Number of trials of each driver that save a checkpoint within so many seconds."""
        before = [self.saves(driver) for driver in self.drivers]
        time.sleep(seconds)
        after = [self.saves(driver) for driver in self.drivers]
        return [len({key for key, _ in b - a}) for a, b in zip(before, after, strict=True)]


@pytest.mark.slow
@pytest.mark.hosts
@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_studies_share_a_cluster_by_weight_and_a_stopped_study_leaves_it_to_the_other(
    cluster: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    drivers = []
    for name, steps, trials in (("light", 7000, 5), ("heavy", 5000, 12)):
        (file := tmp_path / f"{name}.yaml").write_text(STUDY.format(steps=steps, trials=trials))
        (tmp_path / name).mkdir()
        drivers.append(Driver(file, tmp_path / name, workers=4))
    light, heavy = drivers
    trace = SaveTrace(tmp_path / "saves", light, heavy)
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(started(light, cluster, 1))
        _wait_until(lambda: trace.training_trials(2) == [4, 0], 120)
        second = stack.enter_context(started(heavy, cluster, 3))
        start = time.monotonic()
        _wait_until(lambda: trace.training_trials(4) == [1, 3], 120)
        settled = time.monotonic() - start
        middle = [trace.training_trials(4) for _ in range(6)]
        os.kill(first.pid, signal.SIGINT)
        out, err = first.communicate(timeout=60)
        assert first.returncode == 3, err
        _wait_until(lambda: trace.training_trials(3)[1] == 4, 60)  # unused slots go to the other study
        out, err = second.communicate(timeout=300)
        assert second.returncode == 0, err
        third = stack.enter_context(started(light, cluster, 0.5))
        out, err = third.communicate(timeout=300)
        assert third.returncode == 0, out + err
    for driver, trials in ((light, 5), (heavy, 12)):
        driver.check(trials=trials, baselines=0)
        assert set(trace.saves(driver).values()) == {1}, "a step was trained twice"
    means = [sum(each) / len(middle) for each in zip(*middle, strict=True)]
    with capsys.disabled():
        print(f"\nshares of 1 and 3 settled in {settled:.0f} s, then {middle}, on average {means}")
    assert 0.8 <= means[0] <= 1.4
    assert 2.5 <= means[1] <= 3.2
