"""`loopscale run` through real Ray, with checkpoints in a bucket or on a full disk."""

import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.training import checkpoint
from tests.buckets import CREDENTIALS, Bucket
from tests.disks import small_disk
from tests.processes import outcome, wait_until
from tests.runner.drivers import BASELINES, SAVES, TRIALS, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = Bucket(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_killed_study_resumes_from_its_bucket(tmp_path: Path, bucket: Bucket, capsys):
    driver = survival_driver(tmp_path, storage=bucket.url)
    driver.kill_after_saves(SAVES // 3)
    assert driver.finish()[0] == 0
    driver.check(TRIALS, BASELINES)
    assert sum(times - 1 for times in driver.saves().values()) <= 2, (
        "two workers repeated more than two intervals"
    )
    assert not (driver.store / "checkpoints").exists()
    keys = checkpoint.keys(driver.checkpoints)
    assert len(keys) == TRIALS
    checkpoints = [checkpoint.load(driver.checkpoints, key) for key in keys]
    assert all(saved and saved.state is None for saved in checkpoints), "an optimizer was kept"
    kept = {
        key
        for (key,) in driver.query(
            "SELECT t.value FROM tags t JOIN tags w ON t.run_uuid = w.run_uuid "
            "WHERE t.key = 'trial' AND w.key = 'weights' AND w.value = 'kept'"
        )
    }
    assert len(kept) == 2 * (1 + 2)
    for key in kept:
        checkpoint.load_net(driver.checkpoints, key, checkpoint.load_trial(driver.checkpoints, key))
    options = ["--store", str(driver.store), "--storage", bucket.url]
    assert main(["predict", min(kept), *options, "--loops", "2", "--prompts", "16"]) == 0
    assert f"trial {min(kept)}" in capsys.readouterr().out


def test_a_bucket_that_does_not_answer_for_a_while_costs_no_training(tmp_path: Path, bucket: Bucket):
    driver = survival_driver(tmp_path, storage=bucket.url)
    process = driver.start()
    wait_until(lambda: (tmp_path / "saves").exists(), process)
    bucket.hang()
    time.sleep(20)  # less than a worker's patience with a bucket, which is minutes
    bucket.go_on()
    code, _, err = outcome(process)
    assert code == 0, err
    driver.check(TRIALS, BASELINES)
    assert max(driver.saves().values()) == 1


def test_a_full_disk_costs_no_trial_after_it_has_space_again(tmp_path: Path):
    driver = survival_driver(tmp_path)
    driver.overrides = ("search.trials=1", "replicates=1")
    reasons: list[str] = []

    def lost() -> list[str]:
        with suppress(sqlite3.OperationalError):  # the driver has not made the tables yet
            reasons[:] = [
                value for (value,) in driver.query("SELECT value FROM tags WHERE key = 'lost_reason'")
            ]
        return reasons

    with small_disk(driver.store / "checkpoints", "16k") as disk:
        process = driver.start()
        wait_until(lost, process)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        code, _, err = outcome(process)
        assert code == 0, err
        driver.check(2 * 2, BASELINES)
    reason = reasons[0]
    assert reason.startswith("StorageUnavailable: ")
    assert "No space left on device" in reason
    assert "\n" not in reason
    assert {value for (value,) in driver.query("SELECT value FROM tags WHERE key = 'retries'")} == {"0"}
