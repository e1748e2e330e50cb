"""Stores from untrusted people: reading runs no code, leaves no files, and fails with at most one line."""

import json
import os
import pickle
import re
import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from loopscale.cli.main import main
from loopscale.records.mirror import Mirror
from loopscale.records.stores.opening import open_store
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record
from tests.named_cases import named

MARKER = "run-by-a-pickle"
ESCAPE = "\x1b[2J\x1b]0;title\x07"
SCRIPT = "<script>alert(1)</script>"
DEEP = "[" * 100_000 + "]" * 100_000
KEY = "0123456789abcdef"
READING = [
    ["list"],
    ["best", "tiny"],
    ["query", "SELECT * FROM trials"],
    ["query", "SELECT * FROM studies"],
    ["query", "SELECT count(*) AS n, avg(error) AS mean FROM curves"],
    ["query", "SELECT count(*) AS n FROM history"],
    ["report", "tiny"],
    ["predict", KEY],
    ["export", "tiny", "--to", "exported"],
]
"""Every verb that reads a store."""
QUICK = [words for words in READING if words[0] in ("list", "best", "predict", "export")]


class Bomb:
    """Leaves a folder in the working directory when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (MARKER,)


PICKLE = pickle.dumps(Bomb())


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after a whole study, with its mirror. Tests do not write to it."""
    folder = tmp_path_factory.mktemp("good")
    (folder / "tiny.yaml").write_text(TINY)
    with record(folder / "store", Study.load(folder / "tiny.yaml")) as recording:
        recording.whole()
    Mirror(open_store(folder / "store")).sync()
    return folder / "store"


class Victim:
    """A person who reads a store, and checks the output of the program and the files that it leaves."""

    def __init__(self, store: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.store, self.capfd = store, capfd

    def call(self, *words: str) -> tuple[int, str]:
        """The exit code and all output of one verb, after checks that the output is safe and well formed."""
        before = self._around()
        code = main([*words, "--store", str(self.store)])
        out, err = self.capfd.readouterr()
        assert not Path(MARKER).exists(), f"{words} has run a pickle"
        assert self._around() - before <= {"exported"}, f"{words} has written outside the store"
        assert code in (0, 1, 2)
        assert "Traceback" not in out + err
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", (out + err).replace("\r\n", "\n")), words
        if code:
            assert out == ""
            lines = err.splitlines()
            assert 1 <= len(lines) <= 3, err
            assert len(err) < 2000
            for line in lines:  # warnings of damage stand before the error
                assert re.search(r"; \S", line), f"no remedy in {line}"
        return code, out + err

    def _around(self) -> set[str]:
        return {
            str(path.relative_to("."))
            for path in Path().rglob("*")
            if not path.is_relative_to(self.store.relative_to(Path.cwd()))
            and not path.is_relative_to("exported")
        } | {"exported"} & set(os.listdir())

    def sql(self, query: str, *values: Any) -> None:
        with sqlite3.connect(self.store / "mlflow.db") as database:
            database.execute(query, values)
        database.close()

    def fresh(self) -> None:
        """Delete the mirror, so that everything is read again."""
        shutil.rmtree(self.store / "mirror", ignore_errors=True)

    def artifacts(self, name: str) -> list[Path]:
        return list(self.store.glob(f"artifacts/*/artifacts/{name}"))


@pytest.fixture
def victim(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> Victim:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    shutil.copytree(good, inner / "store")
    return Victim(inner / "store", capfd)


def everything_is_read(victim: Victim, verbs: list[list[str]] = READING) -> dict[str, tuple[int, str]]:
    return {" ".join(words): victim.call(*words) for words in verbs}


def test_an_unharmed_store_is_read_without_errors(victim: Victim):
    answers = everything_is_read(victim)
    codes = {verb: code for verb, (code, _) in answers.items()}
    assert codes == dict.fromkeys(codes, 0) | {f"predict {KEY}": 2}


def wrong_columns() -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({"loop": ["x", ESCAPE], "json": [SCRIPT, DEEP]}), sink)
    return sink.getvalue().to_pybytes()


def wrong_types() -> bytes:
    sink = pa.BufferOutputStream()
    words = ["not", "numbers"]
    names = ("run", "trial", "loop", "point", "error", "sem", "raw", "step", "metric", "value", "settings")
    parquet.write_table(pa.table(dict.fromkeys(names, words)), sink)
    return sink.getvalue().to_pybytes()


FILES = {
    "pickle": PICKLE,
    "nothing": b"",
    "columns": wrong_columns(),
    "types": wrong_types(),
    "cut": b"PAR1" + b"\xff" * 60 + b"PAR1",
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", named(FILES))
def test_an_answer_names_the_trial_of_a_damaged_curve(victim: Victim, content: bytes):
    victim.fresh()
    for file in victim.artifacts("curve.parquet"):
        file.write_bytes(content)
    answers = everything_is_read(victim)
    assert "the curve of trial" in answers["query SELECT * FROM trials"][1]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", named(FILES))
def test_a_damaged_mirror_is_made_again(victim: Victim, content: bytes):
    for file in victim.store.glob("mirror/*/*/*.parquet"):
        file.write_bytes(content)
    everything_is_read(victim)
    assert victim.call("query", "SELECT count(*) AS n FROM trials")[0] == 0, "the mirror is made anew"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "text", ["[]", "3", '{"layout": 1, "stamps": 5}', DEEP, '{"layout": 1, "stamps": {"*": []}}']
)
def test_a_mirror_with_a_damaged_state(victim: Victim, text: str):
    for file in victim.store.glob("mirror/**/state.json"):
        file.write_text(text)
    answers = everything_is_read(victim, QUICK)
    assert answers["list"][0] == 0


STUDIES = {
    "pickle": PICKLE,
    "text": b"\xff\xfe\x00",
    "list": b"[1]",
    "deep": DEEP.encode(),
    "empty": b"{}",
    "cells": b'{"name": "tiny", "cells": 5}',
    "cells of text": b'{"name": "tiny", "cells": ["x"]}',
    "huge": json.dumps({"name": "tiny", "question": "x" * 2**21, "cells": []}).encode(),
    "numbers": b'{"name": "tiny", "cells": [], "planned": 1e999, "question": {"a": 1}}',
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", named(STUDIES))
def test_a_damaged_description_of_a_study(victim: Victim, content: bytes):
    victim.fresh()
    (file,) = victim.artifacts("study.json")
    file.write_bytes(content)
    everything_is_read(victim)


@pytest.mark.slow
def test_a_study_name_that_is_a_path_gives_access_to_no_file(victim: Victim):
    victim.fresh()
    (file,) = victim.artifacts("study.json")
    for name in ("../../../out", str(Path.cwd() / "out"), "..", "a\x00b"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"name": name}))
        victim.fresh()
        everything_is_read(victim)


def test_scripts_and_escape_codes_in_texts_reach_neither_the_page_nor_the_terminal(victim: Victim):
    bad = ESCAPE + SCRIPT
    (file,) = victim.artifacts("study.json")

    def spoilt(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: spoilt(value) for name, value in part.items()} | {"x" + bad: bad}
        return [spoilt(one) for one in part] if isinstance(part, list) else part

    about = spoilt(json.loads(file.read_text())) | {"question": bad, "source": bad}
    for cell in about["cells"]:
        cell["label"] += bad
    file.write_text(json.dumps(about))
    for key in ("label", "detail", "mlflow.runName", "host"):
        victim.sql("UPDATE tags SET value = value || ? WHERE key = ?", bad, key)
    victim.sql(
        "UPDATE tags SET value = 'failed' WHERE key = 'outcome' AND run_uuid IN"
        " (SELECT run_uuid FROM tags WHERE key = 'number' AND value = '0')"
    )
    victim.sql("INSERT INTO tags SELECT 'detail', ?, run_uuid FROM runs WHERE status != 'X'", bad)
    victim.sql("INSERT INTO params (key, value, run_uuid) SELECT ?, ?, run_uuid FROM runs", "p" + bad, bad)
    victim.fresh()
    answers = everything_is_read(victim)
    assert answers["report tiny"][0] == 0, answers["report tiny"]
    page = (victim.store / "reports/tiny.html").read_text()
    assert "alert(1)" in page, "the text is there, harmless"
    assert SCRIPT not in page
    assert "\x1b" not in page


TAGS = {
    "number": ["x", "1e400", "9" * 5000],
    "seed": ["x", "9" * 30],
    "point": ["x", DEEP, "[]", "5"],
    "role": ["", "study", SCRIPT],
    "outcome": [ESCAPE, "finished" * 500],
    "trial": ["", "../../../out", ESCAPE],
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("key", "value"), sorted((key, value) for key in TAGS for value in TAGS[key]))
def test_tags_of_the_wrong_kind(victim: Victim, key: str, value: str):
    victim.fresh()
    victim.sql(
        "UPDATE tags SET value = ? WHERE key = ? AND run_uuid IN (SELECT run_uuid FROM tags"
        " WHERE key = 'role' AND value = 'tuning')",
        value,
        key,
    )
    everything_is_read(victim, QUICK)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("value", [DEEP, "1" * 5000, "1e999", "NaN", '{"a": 1}'])
def test_settings_of_the_wrong_kind(victim: Victim, value: str):
    victim.fresh()
    victim.sql("UPDATE params SET value = ? WHERE key = 'training.lr'", value)
    everything_is_read(victim, QUICK)


def test_every_verb_survives_runs_with_paths_as_names(victim: Victim):
    victim.fresh()
    victim.sql("PRAGMA foreign_keys = OFF")
    for table in ("tags", "params", "metrics", "latest_metrics", "runs"):
        victim.sql(f"UPDATE {table} SET run_uuid = '../../../../../../{Path.cwd().name}/out-' || run_uuid")
    everything_is_read(victim)


def test_artifacts_are_not_written_to_folders_that_the_database_names(victim: Victim):
    victim.fresh()
    outside = Path.cwd() / "outside"
    victim.sql("UPDATE experiments SET artifact_location = ?", outside.as_uri())
    victim.sql("UPDATE runs SET artifact_uri = ? || '/' || run_uuid", outside.as_uri())
    answers = everything_is_read(victim)
    assert answers["report tiny"][0] == 0
    assert victim.artifacts("report.html"), answers["report tiny"]


@pytest.mark.parametrize("text", [DEEP, "[]", '{"format": "x"}', '{"format": 1e400, "made_by": 1}', "\x00"])
def test_a_damaged_format_file(victim: Victim, text: str):
    (victim.store / "format.json").write_text(text)
    everything_is_read(victim, QUICK)


def test_a_database_that_is_a_pickle(victim: Victim):
    (victim.store / "mlflow.db").write_bytes(PICKLE)
    everything_is_read(victim)


def packed(header: Any, body: bytes = b"", length: int | None = None) -> bytes:
    text = header.encode() if isinstance(header, str) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def ours(header: Any, **tensors: Any) -> bytes:
    """A file with a valid checksum of its header."""
    text = header if isinstance(header, str) else json.dumps(header)
    about = {"loopscale": text, "sum": str(zlib.crc32(text.encode()))}
    return packed({"__metadata__": about, **tensors}, b"\0" * 16)


HEADER = {
    "format": 1,
    "key": KEY,
    "trial": {},
    "step": 4,
    "history": [],
    "seconds": 1.0,
    "param_groups": [],
    "stripped": False,
    "sums": {},
}
TENSOR = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
CHECKPOINTS = {
    "pickle": PICKLE,
    "nothing": b"",
    "huge length": struct.pack("<Q", 2**63 - 1) + b"{}",
    "cut": struct.pack("<Q", 100) + b"{",
    "deep": packed(DEEP),
    "list": packed([1]),
    "metadata of numbers": packed({"__metadata__": {"loopscale": 5, "sum": []}}),
    "metadata of text": packed({"__metadata__": "loopscale"}),
    "no metadata": packed({"a": TENSOR}, b"\0" * 8),
    "deep header": ours(DEEP),
    "list header": ours([1]),
    "history of a number": ours(HEADER | {"history": 5}),
    "history of numbers": ours(HEADER | {"history": [1, 2]}),
    "no sums": ours({**HEADER, "sums": 5}),
    "format of text": ours(HEADER | {"format": "x"}),
    "empty trial": ours(HEADER),
    "trial of text": ours(HEADER | {"trial": "x"}),
    "step of text": ours(HEADER | {"step": "x", "stripped": []}),
    "overlapping": ours(HEADER | {"sums": {"a": 1, "b": 1}}, a=TENSOR, b=TENSOR),
    "beyond the end": ours(
        HEADER | {"sums": {"a": 1}}, a=TENSOR | {"data_offsets": [0, 2**40], "shape": [2**38]}
    ),
    "backwards": ours(HEADER | {"sums": {"a": 1}}, a=TENSOR | {"data_offsets": [16, 8]}),
    "overflowing": ours(HEADER | {"sums": {"a": 1}}, a=TENSOR | {"shape": [2**33, 2**33]}),
    "wrong sum": ours(HEADER | {"sums": {"a": 1}}, a=TENSOR, b=TENSOR | {"data_offsets": [8, 16]}),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("content", CHECKPOINTS.values(), ids=CHECKPOINTS.keys())
def test_damaged_checkpoints_and_weights(victim: Victim, content: bytes):
    from loopscale.training import checkpoint
    from loopscale.training.checkpoint_stores import open_checkpoint_store

    folder = victim.store / "checkpoints"
    folder.mkdir()
    (folder / f"{KEY}.safetensors").write_bytes(content)
    assert victim.call("predict", KEY)[0] == 2
    with pytest.raises((checkpoint.CorruptCheckpoint, checkpoint.NewerFormat)):
        checkpoint.load(open_checkpoint_store(folder), KEY)
    with pytest.raises((checkpoint.CorruptCheckpoint, checkpoint.NewerFormat)):
        checkpoint.strip(open_checkpoint_store(folder), KEY, keep_weights=True)


def spoil(folder: Path, table: str, **columns: Any) -> None:
    file = folder / f"{table}.parquet"
    rows = [row | columns for row in parquet.read_table(file).to_pylist()]
    parquet.write_table(pa.Table.from_pylist(rows), file)


IMPORTS: dict[str, Callable[[Path], Any]] = {
    "pickles": lambda folder: [file.write_bytes(PICKLE) for file in folder.glob("*.parquet")],
    "pickled curves": lambda folder: (folder / "curves.parquet").write_bytes(PICKLE),
    "a pickle for a description": lambda folder: spoil(folder, "studies", **{"study.json": PICKLE}),
    "deep about": lambda folder: (folder / "export.json").write_text(DEEP),
    "about that is a list": lambda folder: (folder / "export.json").write_text("[1]"),
    "names that are paths": lambda folder: [
        spoil(folder, table, study="../../../out") for table in ("studies", "trials")
    ],
    "trials that are paths": lambda folder: spoil(folder, "trials", trial="../../../out", run="../../out"),
    "tags that are deep": lambda folder: spoil(folder, "trials", tags=DEEP),
    "tags that are a list": lambda folder: spoil(folder, "trials", tags="[1]"),
    "no outcome": lambda folder: spoil(folder, "trials", tags="{}"),
    "tags that are script": lambda folder: spoil(
        folder, "trials", tags=json.dumps({"outcome": "finished", "label": ESCAPE + SCRIPT, ESCAPE: SCRIPT})
    ),
    "settings that are numbers": lambda folder: spoil(folder, "trials", settings="5", metrics="5"),
    "times that are text": lambda folder: spoil(folder, "trials", start="x", end=SCRIPT),
    "steps that are text": lambda folder: spoil(folder, "history", step="x"),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("harm", named(IMPORTS))
def test_every_verb_survives_the_import_of_a_damaged_export(victim: Victim, harm: Callable[[Path], Any]):
    assert victim.call("export", "tiny", "--to", "exported")[0] == 0
    harm(Path("exported"))
    victim.sql("UPDATE experiments SET name = 'another' WHERE name = 'tiny'")
    victim.fresh()
    victim.call("import", "exported")
    everything_is_read(victim, QUICK)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_trial_whose_checkpoint_has_become_a_pickle_is_trained_again(tmp_path: Path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    small = TINY.replace("training.loops: [1, 2]", "training.loops: [1]").replace("trials: 2", "trials: 1")
    Path("tiny.yaml").write_text(small.replace("replicates: 3", "replicates: 1"))
    study = Study.load(Path("tiny.yaml"))
    (cell,) = study.cells()
    folder = tmp_path / "store/checkpoints"
    folder.mkdir(parents=True)
    key = study.at(cell, {"training.lr": 5e-3}, 1).key
    with record(tmp_path / "store", study) as recording:
        recording.parent("KILLED")
        recording.trial(cell, "tuning", 0, 0, {"training.lr": 5e-3}, 0.5)
        trial = recording.trial(cell, "replicate", 1, 1, {"training.lr": 5e-3}, 0.5, outcome="interrupted")
    assert trial.key == key
    (folder / f"{key}.safetensors").write_bytes(PICKLE)
    code = main(["run", "tiny.yaml", "--store", "store", "--workers", "1"])
    output = capfd.readouterr()
    assert code == 0, output.err
    assert not list(tmp_path.rglob(MARKER))
    assert main(["predict", key, "--store", "store", "--prompts", "4"]) == 0, "the trial has weights again"
