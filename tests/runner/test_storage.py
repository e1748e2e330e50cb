"""`loopscale run` through real Ray, with its checkpoints in a bucket, or on a disk that is full."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from loopscale.cli.main import main
from loopscale.training import checkpoint
from tests.buckets import CREDENTIALS, Bucket
from tests.disks import small_disk
from tests.runner.drivers import Driver
from tests.runner.test_killed import BASELINES, TREE, TRIALS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = Bucket(tmp_path)
    server.start()
    yield server
    server.kill()


def driver(folder: Path, **more: str) -> Driver:
    study = folder / "survival.yaml"
    study.write_text(yaml.safe_dump(TREE))
    return Driver(study, folder, **more)  # pyright: ignore[reportArgumentType]


def test_a_study_killed_once_goes_on_from_its_bucket(tmp_path: Path, bucket: Bucket, capsys):
    one = driver(tmp_path, storage=bucket.url)
    assert one.killed_after(18), "the study was over before it was killed"
    assert one.finish()[0] == 0
    one.check(TRIALS, BASELINES)
    assert sum(times - 1 for times in one.saves().values()) <= 2, "more than an interval of two workers"
    assert not (one.store / "checkpoints").exists()
    keys = checkpoint.keys(one.checkpoints)
    assert len(keys) == TRIALS
    ended = [checkpoint.load(one.checkpoints, key) for key in keys]
    assert all(end and end.state is None for end in ended), "an optimiser was kept"
    kept = {key for (key,) in one.query(
        "SELECT t.value FROM tags t JOIN tags w ON t.run_uuid = w.run_uuid "
        "WHERE t.key = 'trial' AND w.key = 'weights' AND w.value = 'kept'"
    )}  # fmt: skip
    assert len(kept) == 2 * (1 + 2)
    for key in kept:
        checkpoint.load_net(one.checkpoints, key, checkpoint.load_trial(one.checkpoints, key))
    where = ["--store", str(one.store), "--storage", bucket.url]
    assert main(["predict", min(kept), *where, "--loops", "2", "--prompts", "16"]) == 0
    assert f"trial {min(kept)}" in capsys.readouterr().out


def test_a_bucket_that_stops_answering_for_a_while_costs_nothing(tmp_path: Path, bucket: Bucket):
    one = driver(tmp_path, storage=bucket.url)
    process = one.start()
    while not (tmp_path / "saves").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    bucket.hang()
    time.sleep(20)
    assert process.poll() is None
    bucket.go_on()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    one.check(TRIALS, BASELINES)
    assert max(one.saves().values()) == 1


def test_a_disk_that_is_full_costs_no_trial_once_there_is_room(tmp_path: Path):
    one = driver(tmp_path)
    one.overrides = ("search.trials=1", "replicates=1")
    reasons = "SELECT value FROM tags WHERE key = 'lost_reason'"
    with small_disk(one.store / "checkpoints", "16k") as disk:
        process = one.start()
        while not ((one.store / "mlflow.db").exists() and one.query(reasons)):
            assert process.poll() is None, process.communicate()
            time.sleep(1)
        ((reason,), *_) = one.query(reasons)
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
        _, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        one.check(2 * 2, BASELINES)
    assert reason.startswith("StorageUnavailable: ")
    assert "No space left on device" in reason
    assert "\n" not in reason
    assert {value for (value,) in one.query("SELECT value FROM tags WHERE key = 'retries'")} == {"0"}
