"""One study's records as Parquet: `trials`, `study`, and `history-<n>`, `curves-<n>` of so many runs each.

Runs stay in the file that they were first put into, and a file is written anew only when one of its runs has
changed: a study that is under way touches its last files. Every file is replaced whole, so that readers need
no lock.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from loopscale.records.model import tables
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import CURVE, STUDY, STUDY_JSON
from loopscale.records.model.run import Run
from loopscale.records.stores.sources import Source
from loopscale.records.stores.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

RUNS_PER_FILE = 64


class Replica:
    """The files of one study. Who writes holds the mirror's lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sync(self, store: Store, source: Source, study: str, experiment: str) -> None:
        runs = source.runs(experiment)
        known = _placed(load_json(self.folder / "state.json"))
        state = {run.id: [run.fingerprint, file] for run, file in self._files(runs, known)}
        if state == known:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        changed = {run for run, seen in state.items() if known.get(run) != seen}
        touched = {state[run][1] for run in changed} | {known[run][1] for run in known.keys() - state.keys()}
        trials = [run for run in runs if tables.is_trial(run)]
        for file in sorted(touched - {None}):
            here = [run for run in trials if state[run.id][1] == file]
            fresh = [run for run in here if run.id in changed]
            kept = [run.id for run in here if run.id not in changed]
            self._merge(f"history-{file:04}", kept, history_table(source, fresh), tables.HISTORY)
            self._merge(f"curves-{file:04}", kept, curves_table(store, fresh), tables.CURVES)
        self._write("trials", [tables.trial_row(run, study) for run in trials], tables.RAW_TRIALS)
        parent = next((run for run in runs if run.tags.get("role") == STUDY), None)
        self._write("study", [tables.study_row(study, parent, description(store, parent))], tables.STUDIES)
        save_json(self.folder / "state.json", state)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """The rows of `trials` or `study`."""
        from pyarrow import parquet

        try:
            return parquet.read_table(self.folder / f"{name}.parquet").to_pylist()
        except FileNotFoundError:
            return []

    @property
    def sound(self) -> bool:
        """Whether every file has the shape that is written here; else it can all be made anew."""
        import pyarrow as pa
        from pyarrow import parquet

        shapes = {"trials": tables.RAW_TRIALS, "study": tables.STUDIES}
        shapes |= {"history": tables.HISTORY, "curves": tables.CURVES}
        try:
            return all(
                parquet.read_schema(file).equals(tables.schema(shapes[file.stem.split("-")[0]]))
                for file in self.folder.glob("*.parquet")
            )
        except (pa.ArrowException, OSError, KeyError):
            return False

    def files(self, name: str) -> list[str]:
        """The files of `history` or `curves`."""
        return sorted(str(file) for file in self.folder.glob(f"{name}-*.parquet"))

    def _files(self, runs: Sequence[Run], known: dict[str, list[Any]]) -> list[tuple[Run, int | None]]:
        """Which file every run belongs to; none for the parent run."""
        filled = Counter(file for _, file in known.values() if file is not None)
        last = max(filled, default=0)
        placed: list[tuple[Run, int | None]] = []
        for run in runs:
            file = known[run.id][1] if run.id in known else None
            if file is None and tables.is_trial(run):
                last += filled[last] >= RUNS_PER_FILE
                filled[last] += 1
                file = last
            placed.append((run, file))
        return placed

    def _merge(self, name: str, kept: list[str], fresh: "pa.Table", columns: dict[str, str]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        file = self.folder / f"{name}.parquet"
        if kept and file.exists():
            old = parquet.read_table(file, filters=[("run", "in", kept)], schema=tables.schema(columns))
            fresh = pa.concat_tables([old, fresh])
        self._replace(name, fresh)

    def _write(self, name: str, rows: list[dict[str, Any]], columns: dict[str, str]) -> None:
        import pyarrow as pa

        self._replace(name, pa.Table.from_pylist(rows, tables.schema(columns)))

    def _replace(self, name: str, table: "pa.Table") -> None:
        from pyarrow import parquet

        part = self.folder / f"{name}.part"
        parquet.write_table(table, part, compression="zstd")
        os.replace(part, self.folder / f"{name}.parquet")


def load_json(path: Path) -> dict[str, Any]:
    """What was saved; nothing if there is none or it cannot be read, since a mirror can be made anew."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _placed(state: dict[str, Any]) -> dict[str, list[Any]]:
    """Every run's fingerprint and file, as they were saved; nothing if that is something else."""
    sound = all(
        isinstance(seen, list) and len(seen) == 2 and isinstance(seen[1], int | None)
        for seen in state.values()
    )
    return state if sound else {}


def save_json(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    os.replace(part, path)


def history_table(source: Source, runs: Sequence[Run]) -> "pa.Table":
    import pyarrow as pa

    trial = {run.id: run.tags["trial"] for run in runs}
    points = [(run, trial[run], *rest) for run, *rest in source.histories(runs)]
    columns = list(zip(*points, strict=True)) or [()] * len(tables.HISTORY)
    return pa.table([pa.array(column) for column in columns], schema=tables.schema(tables.HISTORY))


def curves_table(store: Store, runs: Sequence[Run]) -> "pa.Table":
    import pyarrow as pa

    if store.exported:
        return store.exported.curves(runs)
    threads = 1 if store.root else 8
    with TemporaryDirectory(prefix="loopscale-") as folder, ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda run: _curve(store, run, Path(folder, run.id)), runs))
    shape = tables.schema(tables.CURVES)
    return pa.concat_tables([shape.empty_table(), *(table for table in found if table is not None)])


def _curve(store: Store, run: Run, folder: Path) -> "pa.Table | None":
    import pyarrow as pa
    from pyarrow import parquet

    folder.mkdir()
    file = store.artifact(run.id, CURVE, folder)
    if file is None:
        return None
    shape = tables.schema(tables.CURVES)
    try:
        table = tables.completed(parquet.read_table(file)).select(shape.names[2:])
        who = [pa.array([text] * len(table)) for text in (run.id, run.tags["trial"])]
        return pa.table([*who, *table.columns], names=shape.names).cast(shape)
    except (pa.ArrowException, OSError, KeyError) as problem:
        what = f"the curve of trial {run.tags['trial']} is damaged ({problem})"
        raise StoreError(what, "evaluate it again") from problem


def description(store: Store, parent: Run | None) -> str:
    with TemporaryDirectory(prefix="loopscale-") as folder:
        file = parent and store.artifact(parent.id, STUDY_JSON, Path(folder))
        if not file:
            return ""
        try:
            text = file.read_text()
            if not isinstance(json.loads(text), dict):
                raise ValueError("it is no JSON object")
        except (OSError, ValueError, RecursionError) as problem:
            what = f"the study's description {file} is damaged ({str(problem)[:200]})"
            raise StoreError(what, "`loopscale run` of the study writes it again") from problem
        return text
