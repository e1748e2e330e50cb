"""One study's records as Parquet files: `trials`, `study`, and `history-<n>`, `curves-<n>` of up to 64 runs each.

A run stays in its first file, and a file is written anew only if one of its runs has changed. So a
study under way changes only its last files. Every file is replaced as a whole, and readers need no lock.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loopscale.records.deferred_imports import pa, parquet
from loopscale.records.model import tables
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import STUDY_JSON
from loopscale.records.model.run import Run, parent_among
from loopscale.records.stores.base import Store

RUNS_PER_FILE = 64


class StudyMirror:
    """The files of one study. A writer holds the mirror's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sync(self, store: Store, study: str) -> None:
        runs = store.runs(store.require_experiment(study))
        known = _sound_state(load_json(self.folder / "state.json"))
        state = {run.id: [run.fingerprint, file] for run, file in self._assign_files(runs, known)}
        if state == known:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        changed = {run for run, entry in state.items() if known.get(run) != entry}
        touched = {state[run][1] for run in changed} | {known[run][1] for run in known.keys() - state.keys()}
        trials = [run for run in runs if run.is_trial]
        for file in sorted(touched - {None}):
            members = [run for run in trials if state[run.id][1] == file]
            fresh = [run for run in members if run.id in changed]
            kept = [run.id for run in members if run.id not in changed]
            self._merge(f"history-{file:04}", kept, store.history_table(fresh), tables.HISTORY)
            self._merge(f"curves-{file:04}", kept, store.curve_table(fresh), tables.CURVES)
        self._write("trials", [tables.trial_row(run, study) for run in trials], tables.RAW_TRIALS)
        parent = parent_among(runs)
        description = study_description(store, study, parent) if parent else ""
        self._write("study", [tables.study_row(study, parent, description)], tables.STUDIES)
        save_json(self.folder / "state.json", state)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of `trials` or `study`."""
        try:
            return parquet.read_table(self.folder / f"{name}.parquet").to_pylist()
        except FileNotFoundError:
            return []

    @property
    def sound(self) -> bool:
        """True if every file has the columns of this version. Otherwise the mirror is made anew."""
        columns = {"trials": tables.RAW_TRIALS, "study": tables.STUDIES}
        columns |= {"history": tables.HISTORY, "curves": tables.CURVES}
        try:
            return all(
                parquet.read_schema(file).equals(tables.arrow_schema(columns[file.stem.split("-")[0]]))
                for file in self.folder.glob("*.parquet")
            )
        except (pa.ArrowException, OSError, KeyError):
            return False

    def files(self, name: str) -> list[str]:
        """The files of `history` or `curves`."""
        return sorted(str(file) for file in self.folder.glob(f"{name}-*.parquet"))

    def _assign_files(self, runs: Sequence[Run], known: dict[str, list[Any]]) -> list[tuple[Run, int | None]]:
        """The number of every run's file; None for the parent run."""
        filled = Counter(file for _, file in known.values() if file is not None)
        last = max(filled, default=0)
        assigned: list[tuple[Run, int | None]] = []
        for run in runs:
            file = known[run.id][1] if run.id in known else None
            if file is None and run.is_trial:
                last += filled[last] >= RUNS_PER_FILE
                filled[last] += 1
                file = last
            assigned.append((run, file))
        return assigned

    def _merge(self, name: str, kept: list[str], fresh: "pa.Table", columns: dict[str, str]) -> None:
        file = self.folder / f"{name}.parquet"
        if kept and file.exists():
            old = parquet.read_table(file, filters=[("run", "in", kept)], schema=tables.arrow_schema(columns))
            fresh = pa.concat_tables([old, fresh])
        self._replace(name, fresh)

    def _write(self, name: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
        self._replace(name, pa.Table.from_pylist(rows, tables.arrow_schema(columns)))

    def _replace(self, name: str, table: "pa.Table") -> None:
        part = self.folder / f"{name}.part"
        parquet.write_table(table, part, compression="zstd")
        os.replace(part, self.folder / f"{name}.parquet")


def load_json(path: Path) -> dict[str, Any]:
    """The saved object; empty if the file is absent or damaged, because a mirror can be made anew."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def save_json(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    os.replace(part, path)


def _sound_state(state: dict[str, Any]) -> dict[str, list[Any]]:
    """Fingerprint and file of every run, as saved; empty if the state is malformed."""
    entries = state.values()
    sound = all(isinstance(e, list) and len(e) == 2 and isinstance(e[1], int | None) for e in entries)
    return state if sound else {}


def study_description(store: Store, study: str, parent: Run) -> str:
    """The text of the study's description (study.json), or an empty text. Raises StoreError for damage."""
    try:
        content = store.read_artifact(parent.id, STUDY_JSON)
        if content is None:
            return ""
        text = content.decode()
        if not isinstance(json.loads(text), dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as problem:
        what = f"the description {STUDY_JSON} of {study} in {store.name} is damaged ({str(problem)[:200]})"
        raise StoreError(what, "`loopscale run` of the study writes it again") from problem
    return text
