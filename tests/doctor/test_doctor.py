"""The doctor of a store: damage is found, mended, and every answer is as before."""

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.core.temporary import FOLDER_PREFIX, MARKED, is_used
from tests.doctor.conftest import Place

pytestmark = pytest.mark.slow


def sql(place: Place, query: str, *values: object) -> list[tuple]:
    with sqlite3.connect(place.store / "mlflow.db") as database:
        rows = database.execute(query, values).fetchall()
    database.close()
    return rows


def examined(place: Place, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    """The JSON of the doctor."""
    capsys.readouterr()
    main(["doctor", "--json", *words, "--store", str(place.store)])
    return json.loads(capsys.readouterr().out)


def kept_key(place: Place) -> tuple[str, Path]:
    """A trial whose weights are kept, and the file of its recorded weights."""
    run, key = sql(
        place,
        "SELECT w.run_uuid, t.value FROM tags w JOIN tags t ON w.run_uuid = t.run_uuid"
        " WHERE w.key = 'weights' AND w.value = 'kept' AND t.key = 'trial' ORDER BY t.value",
    )[0]
    return key, place.store / "artifacts" / run / "artifacts" / "weights.safetensors"


def flip(file: Path, at: float = 0.5) -> None:
    """Damage one byte, and leave size and time as they were."""
    stat, content = file.stat(), bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 0xFF
    file.write_bytes(content)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def damage_everything(place: Place) -> None:
    """Each damage that a power cut, a kill, a disk or a person can do."""
    store = place.store
    # The curves of a baseline and of trials with weights. Without weights only `run` makes a curve again.
    curves = [
        file for file in place.artifacts("curve.parquet") if file.with_name("weights.safetensors").exists()
    ]
    query = "SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'baseline'"
    curves = [*curves[:4], store / "artifacts" / sql(place, query)[0][0] / "artifacts" / "curve.parquet"]
    os.truncate(curves[0], 0)
    curves[1].unlink()
    flip(curves[2])
    curves[3].unlink()
    curves[3].mkdir()
    curves[4].write_bytes(curves[4].read_bytes()[:-20])
    (description,) = place.artifacts("study.json")
    description.write_text(description.read_text()[:200])
    for file in store.glob("mirror/*/*/history-*.parquet"):
        flip(file)
    key, weights = kept_key(place)
    flip(store / "checkpoints" / f"{key}.safetensors")
    others = [file for file in (store / "checkpoints").glob("*.safetensors") if file.stem != key]
    kept = {path.parent.parent.name for path in place.artifacts("weights.safetensors")}
    (second,) = sql(
        place,
        "SELECT value FROM tags WHERE key = 'trial' AND run_uuid IN"
        f" ({','.join('?' * len(kept))}) AND value != ? ORDER BY value LIMIT 1",
        *kept,
        key,
    )[0]
    shutil.copyfile(
        next(file for file in others if file.stem != second), store / "checkpoints" / f"{second}.safetensors"
    )
    last = next(
        path for path in place.artifacts("weights.safetensors") if path != weights and second not in str(path)
    )
    (third,) = sql(
        place, "SELECT value FROM tags WHERE key = 'trial' AND run_uuid = ?", last.parent.parent.name
    )[0]
    if third != second:
        last.unlink()
    # All metrics of a trial with weights, and the last values of all other trials.
    (lost,) = sql(place, "SELECT run_uuid FROM tags WHERE key = 'trial' AND value = ?", key)[0]
    for table in ("metrics", "latest_metrics"):
        sql(place, f"DELETE FROM {table} WHERE run_uuid = ?", lost)
    sql(place, "DELETE FROM latest_metrics WHERE key LIKE 'evaluate/%'")
    sql(place, "DELETE FROM params WHERE run_uuid = ?", lost)
    sql(place, "UPDATE runs SET status = 'RUNNING', end_time = NULL")
    (store / "format.json").write_text("")
    (store / "locks" / "other.lock").mkdir(parents=True)
    part = curves[0].with_name(".curve.parquet.part")
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    (store / "ray" / "tiny").mkdir(parents=True)
    dropped = "SELECT t.value FROM tags w JOIN tags t ON w.run_uuid = t.run_uuid WHERE w.key = 'weights'"
    (gone,) = sql(place, f"{dropped} AND w.value = 'dropped' AND t.key = 'trial' ORDER BY t.value")[0]
    (store / "checkpoints" / f"{gone}.safetensors").write_bytes(b"\0" * 100)


def test_the_doctor_heals_every_damage_and_every_answer_is_as_before(
    place: Place, answers: Callable[[Place], dict], capsys: pytest.CaptureFixture[str]
):
    before = answers(place)
    assert examined(place, capsys)["remaining"] == 0
    damage_everything(place)
    report = examined(place, capsys, "--repair")
    broken = [each for each in report["findings"] if not each["mended"]]
    assert not broken, broken
    found = {each["check"] for each in report["findings"]}
    assert found == {
        "format",
        "curves",
        "descriptions",
        "last values",
        "metrics",
        "settings",
        "weights",
        "running",
        "places",
        "mirror",
        "partial files",
    }
    again = examined(place, capsys)
    assert again["findings"] == []
    assert answers(place) == before
    code, _, _ = place.call("run", "tiny.yaml", "--json")
    assert code == 0
    assert answers(place)["trials"] == before["trials"]


def test_without_repair_the_doctor_changes_nothing(place: Place, capsys: pytest.CaptureFixture[str]):
    os.truncate(place.artifacts("curve.parquet")[0], 0)

    def files() -> dict[Path, tuple[int, int]]:
        stats = {path: path.stat() for path in place.store.rglob("*") if path.is_file()}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}

    before = files()
    report = examined(place, capsys)
    assert files() == before
    (finding,) = report["findings"]
    assert finding["check"] == "curves"
    assert finding["repairable"]
    assert "loopscale run tiny" in finding["remedy"]


def test_a_store_in_use_is_only_read(place: Place, capsys: pytest.CaptureFixture[str]):
    from loopscale.runner.lease import lease

    os.truncate(place.artifacts("curve.parquet")[0], 0)
    with lease(place.store, "tiny"):
        report = examined(place, capsys, "--repair")
    assert f"process {os.getpid()}" in report["in_use"]
    (finding,) = report["findings"]
    assert finding["mended"] is None
    assert place.artifacts("curve.parquet")[0].stat().st_size == 0


def test_readers_skip_damaged_curves_and_run_makes_them_again(
    place: Place, answers: Callable[[Place], dict], capsys: pytest.CaptureFixture[str]
):
    """A kept net is evaluated again, and a trial without weights is trained again."""
    before = answers(place)
    curves = place.artifacts("curve.parquet")
    for number, file in enumerate(curves):
        os.truncate(file, 0) if number % 2 else file.unlink()
    shutil.rmtree(place.store / "mirror")
    for words in (
        ["list"],
        ["best", "tiny"],
        ["query", "SELECT count(*) AS n FROM curves"],
        ["report", "tiny"],
    ):
        assert main([*words, "--store", str(place.store)]) == 0
        warning = capsys.readouterr().err
        assert "the curve of trial" in warning
        assert f"and {len(curves) - 1} more of tiny cannot be read" in warning
        assert "; `loopscale doctor --repair` or `loopscale run tiny` makes" in warning
        assert warning.count("\n") == 1
    code, _, err = place.call("run", "tiny.yaml", "--workers", 2)
    assert code == 0
    assert f"the curves of {len(curves)} finished trials are damaged or missing:" in err
    assert "trained again" in err
    after = answers(place)
    for verb in ("list", "trials", "history"):
        assert after[verb] == before[verb]
    rows, earlier = json.loads(after["curves"]), json.loads(before["curves"])
    assert [(row["trial"], row["loop"], row["point"]) for row in rows] == [
        (row["trial"], row["loop"], row["point"]) for row in earlier
    ]
    assert [row["error"] for row in rows] == pytest.approx([row["error"] for row in earlier], rel=1e-4)
    doubled = "SELECT count(*) FROM metrics WHERE key = 'error' GROUP BY run_uuid, step HAVING count(*) > 1"
    assert sql(place, doubled) == []


def test_predict_uses_the_copy_of_damaged_weights_and_refuses_weights_of_another_trial(
    place: Place, capsys: pytest.CaptureFixture[str]
):
    key, copy = kept_key(place)
    words = ["predict", key, "--prompts", "16", "--json", "--store", str(place.store)]
    assert main(words) == 0
    before = capsys.readouterr().out
    file = place.store / "checkpoints" / f"{key}.safetensors"
    flip(file)
    assert main(words) == 0
    answer = capsys.readouterr()
    assert answer.out == before
    assert "is damaged" in answer.err
    other = next(other for other in file.parent.glob("*.safetensors") if other != file)
    shutil.copyfile(other, file)
    shutil.copyfile(other, copy)
    assert main(words) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert f"it is of trial {other.stem}, not of {key}" in answer.err
    assert answer.err.count("\n") == 1


def test_a_flipped_byte_of_the_mirror_is_noticed(place: Place, answers: Callable[[Place], dict]):
    before = answers(place)
    for file in place.store.glob("mirror/*/**/*.parquet"):
        flip(file)
    assert answers(place) == before


def test_a_study_without_its_description_is_read_from_its_file(
    place: Place, answers: Callable[[Place], dict], capsys: pytest.CaptureFixture[str]
):
    before = answers(place)
    (description,) = place.artifacts("study.json")
    description.write_bytes(b"")
    shutil.rmtree(place.store / "mirror")
    after = answers(place)
    for verb in ("best", "claims", "trials", "curves", "history"):
        assert after[verb] == before[verb]
    assert examined(place, capsys, "--repair")["remaining"] == 0
    assert answers(place) == before


def test_a_killed_driver_leaves_folders_that_the_next_run_removes(place: Place):
    """The folder of the private Ray, and its mark. The folders of live processes and unmarked folders stay."""
    text = (place.folder / "tiny.yaml").read_text().replace("steps: 6", "steps: 4000")
    (place.folder / "long.yaml").write_text(text)
    process = place.start("run", "long.yaml", "--workers", 1)
    end = time.monotonic() + 300
    while not list((place.store / "checkpoints").glob("*.part")) and not sql(
        place,
        "SELECT 1 FROM metrics m JOIN runs r ON m.run_uuid = r.run_uuid WHERE r.status = 'RUNNING' AND m.step > 0",
    ):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.2)
    (mark,) = place.temporary.glob("loopscale-ray-*")
    private = Path((mark / MARKED).read_text())
    assert any(path.name.startswith("session_") for path in (private / "r").iterdir())
    process.kill()
    process.communicate()
    stranger = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=private.parent))
    alive = place.temporary / mark.name.replace(f"-{process.pid}.", f"-{os.getpid()}.")
    shutil.copytree(mark, alive)
    alive_start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    own = alive.rename(alive.with_name(alive.name.replace(alive.name.split(".")[1], alive_start)))
    (own / MARKED).write_text(str(stranger))
    while is_used(private):  # Ray's processes outlive the driver for seconds
        assert time.monotonic() < end
        time.sleep(0.2)
    code, _, err = place.call("run", "tiny.yaml")
    assert code == 0, err
    assert not private.exists()
    assert not mark.exists()
    assert stranger.exists(), "the folder of a live process's Ray"
    assert own.exists(), "the folder of a live process"
    shutil.rmtree(stranger)


def test_imported_records_without_weights_need_no_folder_of_checkpoints(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert sql(place, "SELECT count(*) FROM tags WHERE key = 'weights' AND value = 'kept'")[0][0] > 0
    assert main(["export", "tiny", "--to", str(tmp_path / "out"), "--store", str(place.store)]) == 0
    store = tmp_path / "imported"
    assert main(["import", str(tmp_path / "out"), "--store", str(store)]) == 0
    assert not (store / "checkpoints").exists()
    capsys.readouterr()
    assert main(["doctor", "--json", "--store", str(store)]) == 0
    assert json.loads(capsys.readouterr().out)["findings"] == []


@pytest.mark.parametrize("weights", [False, True])
def test_a_damaged_imported_curve_comes_from_the_imported_weights_or_from_the_export(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: bool
):
    export, store = tmp_path / "out", tmp_path / "imported"
    words = ["--weights"] if weights else []
    assert main(["export", "tiny", "--to", str(export), *words, "--store", str(place.store)]) == 0
    assert main(["import", str(export), "--store", str(store)]) == 0
    database = sqlite3.connect(f"file:{store}/mlflow.db?mode=ro", uri=True)
    [(run,)] = database.execute(
        "SELECT t.run_uuid FROM tags t JOIN tags w USING (run_uuid) WHERE t.key = 'role' AND t.value = 'replicate' "
        "AND w.key = 'weights' AND w.value = 'kept' LIMIT 1"
    ).fetchall()
    database.close()
    [curve] = store.rglob(f"{run}/artifacts/curve.parquet")
    before = curve.read_bytes()
    os.truncate(curve, 0)
    shutil.rmtree(store / "mirror", ignore_errors=True)
    capsys.readouterr()
    mended = main(["doctor", "--repair", "--json", "--store", str(store)]) == 0
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert "`loopscale import FOLDER`" in finding["remedy"]
    assert mended == weights
    if not weights:
        assert finding["failed"] == (
            "no weights were imported; `loopscale import FOLDER`, with the folder of the export, writes the curve again"
        )
        assert main(["import", str(export), "--json", "--store", str(store)]) == 0
        assert json.loads(capsys.readouterr().out)["mended"] == 1
        assert curve.read_bytes() == before
    assert main(["doctor", "--json", "--store", str(store)]) == 0
