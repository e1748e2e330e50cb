"""The state of the page from the records: of a study under way, of failures, of old records and of hostile texts."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loopscale.live import recorded_study
from loopscale.live.recorded_study import MOST_STEPS, RecordedStudy
from loopscale.records.decisions import Decision, Step, decision_note
from loopscale.records.model import STUDY, NoRecords, Note, flatten
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import SPENT
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, Recording, record

EXPORTS = sorted((Path(__file__).parents[2] / "notebooks/data").glob("*/export.json"))


@pytest.fixture(scope="module")
def study() -> Study:
    return Study.parse(TINY, "tiny")


def begin(recording: Recording, cell: Any, number: int, lr: float, validations: dict[int, float]) -> str:
    """Write a tuning trial that still runs, as its driver does."""
    trial = recording.study.at(cell, {"training.lr": lr}, 0)
    tags = {"cell": cell.key, "label": cell.label, "role": "tuning", "number": str(number), "seed": "0"}
    tags |= {"point": json.dumps({"training.lr": lr}), "outcome": "running"}
    recording.writer.write(Note(trial.key, 0, {}, flatten(trial.settings), tags, "RUNNING"))
    validate(recording, trial.key, validations)
    return trial.key


def validate(recording: Recording, key: str, validations: dict[int, float]) -> None:
    for step, error in validations.items():
        metrics = {"error": error, "error_last": error / 2, "loss": error, "step": step}
        recording.writer.write(Note(key, step, metrics))


def test_a_finished_study_shows_its_cells_curves_points_and_hours(tmp_path: Path, study: Study):
    with record(tmp_path / "store", study) as recording:
        recording.whole()
        spent = {"used": {"core_hours": 1.25, "hours": 0.5}, "budget": {"core_hours": 4}}
        recording.writer.write(Note(STUDY, tags={SPENT: json.dumps(spent)}))
    recorded = RecordedStudy(open_store(tmp_path / "store"), "tiny")
    parts = recorded.parts()
    assert parts
    summary = parts["records"]
    assert (summary["state"], summary["work"]) == ("over", 1.0)
    assert (summary["over"], summary["planned"]) == (10, 10)
    assert (summary["baselines over"], summary["baselines"]) == (2, 2)
    assert summary["budget"] == [
        {"unit": "core-hours", "used": 1.25, "limit": 4.0, "left": 2.75},
        {"unit": "h of wall clock", "used": 0.5, "limit": None, "left": None},
    ]
    assert [cell["label"] for cell in parts["cells"]] == ["loops=1", "loops=2"]
    assert {cell["state"] for cell in parts["cells"]} == {"done"}
    assert [(cell["tuned"], cell["replicates"]) for cell in parts["cells"]] == [("2 of 2", "3 of 3")] * 2
    assert parts["cells"][1]["best"] == pytest.approx(0.31)
    assert len([name for name in parts if name.startswith("curve ")]) == 10
    assert parts["points"]["settings"] == [{"path": "training.lr", "log": True}]
    assert sorted(row[4] for row in parts["points"]["rows"]) == [[0.002], [0.002], [0.005], [0.005]]
    assert parts["failures"] == {"rows": [], "left out": 0}
    assert parts["recorded workers"] == []
    assert recorded.parts() is None, "nothing has changed"


def test_a_curve_grows_with_the_records_and_only_changed_histories_are_read(tmp_path: Path, study: Study):
    first, second = study.cells()
    with record(tmp_path / "store", study) as recording:
        recording.parent("RUNNING")
        keys = [
            begin(recording, first, 0, 2e-3, {2: 0.5}),
            begin(recording, second, 0, 3e-3, {2: 0.6}),
        ]
        recording.writer.write(Note(keys[1], tags={"host": "gpu\x1b[31m-7"}))
        assert recording.writer.flush(60)
        store = open_store(tmp_path / "store")
        asked: list[list[str]] = []
        read = store.histories

        def counted(runs: Any) -> Any:
            asked.append([run.tags["trial"] for run in runs])
            return read(runs)

        store.histories = counted
        recorded = RecordedStudy(store, "tiny")
        parts = recorded.parts()
        assert parts
        assert parts[f"curve {keys[0]}"] | {"x": [2], "y": [0.5]} == parts[f"curve {keys[0]}"]
        assert [worker["does"] for worker in parts["recorded workers"]] == ["trains", "trains"]
        assert [cell["state"] for cell in parts["cells"]] == ["tunes", "tunes"]
        assert parts["records"]["work"] == pytest.approx((2 / 4 + 2 / 4) / 10, abs=1e-3)
        assert [worker["host"] for worker in parts["recorded workers"]] == ["", "gpu\\u001b[31m-7"]
        validate(recording, keys[0], {4: 0.25})
        assert recording.writer.flush(60)
        parts = recorded.parts()
    assert parts
    assert (parts[f"curve {keys[0]}"]["x"], parts[f"curve {keys[0]}"]["y"]) == ([2, 4], [0.5, 0.25])
    assert [worker["does"] for worker in parts["recorded workers"]] == ["evaluates", "trains"]
    assert sorted(asked[0]) == sorted(keys)
    assert asked[1:] == [[keys[0]]]


def test_failures_and_lost_workers_are_listed_with_their_reasons(tmp_path: Path, study: Study):
    first, second = study.cells()
    trace = "Traceback (most recent call last):\n  File x\nValueError: <b>the</b> \x1b[31mreason"
    with record(tmp_path / "store", study) as recording:
        recording.parent("RUNNING")
        recording.trial(first, "tuning", 0, 0, {"training.lr": 2e-3}, math.nan, "failed", trace)
        recording.trial(first, "tuning", 1, 0, {"training.lr": 3e-3}, math.nan, "pruned")
        key = begin(recording, second, 0, 2e-3, {2: math.nan})
        recording.writer.write(Note(key, tags={"retries": "2", "lost_hosts": "0", "lost_reason": "a\ndied"}))
    parts = RecordedStudy(open_store(tmp_path / "store"), "tiny").parts()
    assert parts
    rows = {row["name"] + row["cell"]: row for row in parts["failures"]["rows"]}
    assert sorted(rows) == ["tuning 0loops=1", "tuning 0loops=2"]
    failed, lost = rows["tuning 0loops=1"], rows["tuning 0loops=2"]
    assert (failed["what"], failed["reason"]) == ("failed", "ValueError: <b>the</b> \\u001b[31mreason")
    assert "Traceback" in failed["detail"]
    assert (lost["what"], lost["reason"]) == ("worker died 2 times, tried again", "died")
    assert parts["recorded workers"][0]["attempt"] == 3
    assert parts["recorded workers"][0]["error"] is None
    assert [(cell["pruned"], cell["without"]) for cell in parts["cells"]] == [(1, 1), (0, 0)]
    json.dumps(parts, allow_nan=False)


def test_long_curves_are_thinned_and_keep_their_last_validation(tmp_path: Path, study: Study):
    cell = study.cells()[0]
    with record(tmp_path / "store", study) as recording:
        recording.parent("RUNNING")
        key = begin(recording, cell, 0, 2e-3, {step: 1 / step for step in range(1, 3 * MOST_STEPS)})
    parts = RecordedStudy(open_store(tmp_path / "store"), "tiny").parts()
    assert parts
    steps = parts[f"curve {key}"]["x"]
    assert len(steps) <= MOST_STEPS + 1
    assert (steps[0], steps[-1]) == (1, 3 * MOST_STEPS - 1)


def test_every_cell_of_a_large_study_shows_its_best_curves(
    tmp_path: Path, study: Study, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recorded_study, "MOST_CURVES", 4)
    first, second = study.cells()
    with record(tmp_path / "store", study) as recording:
        recording.parent("RUNNING")
        running = begin(recording, second, 9, 9e-3, {2: 0.9})
        good = [
            recording.trial(first, "tuning", n, 0, {"training.lr": n / 1e3}, n / 100) for n in (1, 2, 3, 4)
        ]
        poor = [
            recording.trial(second, "tuning", n, 0, {"training.lr": n / 1e3}, n / 10) for n in (1, 2, 3, 4)
        ]
    parts = RecordedStudy(open_store(tmp_path / "store"), "tiny").parts()
    assert parts
    shown = {name.removeprefix("curve ") for name in parts if name.startswith("curve ")}
    assert shown == {running, good[0].key, good[1].key, poor[0].key}
    assert parts["omitted curves"] == 5


@pytest.mark.parametrize("export", EXPORTS[:6], ids=lambda export: export.parent.name)
def test_recorded_families_of_any_age_have_a_page(export: Path, tmp_path: Path):
    store = open_store(export.parent, storage=tmp_path)
    (name,) = store.studies()
    recorded = RecordedStudy(store, name)
    parts = recorded.parts()
    assert parts
    assert parts["records"]["state"] == "over"
    assert parts["records"]["question"]
    assert parts["cells"]
    json.dumps(parts, allow_nan=False)
    assert recorded.parts() is None, "an export never changes"


def test_a_study_without_records_raises_one_line(tmp_path: Path, study: Study):
    with record(tmp_path / "store", study) as recording:
        recording.parent()
    with pytest.raises(NoRecords, match="no records of other"):
        RecordedStudy(open_store(tmp_path / "store"), "other").parts()


def test_the_decisions_of_the_looks_are_shown_newest_first(tmp_path: Path, study: Study):
    def look(seeds: int, step: Step, word: str) -> Decision:
        return Decision(
            "q1", "claim", "a is better than <b>", seeds, seeds, 0.5, 0.4, 0.6, 0.01, 0.02, word, 0.8, step, 5,
            ("a", "b"), 4, 0.0, "family", at=seeds,
        )  # fmt: skip

    with record(tmp_path / "store", study) as recording:
        recording.whole()
        recording.writer.write(decision_note([look(3, "train", "undecided")]))
        recording.writer.write(decision_note([look(5, "decided", "holds")]))
    parts = RecordedStudy(open_store(tmp_path / "store"), "tiny").parts()
    assert parts
    shown = [(row["question"], row["look"], row["word"], row["end"]) for row in parts["decisions"]]
    assert shown == [
        ("a is better than <b>", 5, "holds", "decided at the look of 5 replicates"),
        (
            "a is better than <b>",
            3,
            "undecided",
            "open after the look of 3 replicates, which ordered 4 more trainings",
        ),
    ]
    assert replace(look(3, "train", "undecided"), ordered=1).end.endswith(" ordered 1 more training")
