"""Records of a large simulated study, inserted into MLflow's tables in bulk, for benchmarks that read records.

The records have every setting and about 30 metrics per trial. With artifacts they also have the study's description,
the history of every validation, and the curve of every evaluated trial, at the size of real studies. The values are
made up. Writing the records note by note would take hours.

    python benchmarks/recorded_study.py FOLDER --trials 10000
"""

import argparse
import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loopscale.notation.files import study_name
from loopscale.records.model import CURVE, EVALUATE, STUDY, STUDY_FILE, STUDY_JSON, Record, encode
from loopscale.records.stores.opening import open_store
from loopscale.records.tables import encode_curve
from loopscale.runner.simulation.curves import LearningCurves
from loopscale.runner.simulation.simulate import MemoryRecords, SimulatedCluster, Simulation
from loopscale.studies.spec import Study

CELLS = {
    "training.loops": [5, 6, 8, 10, 12, 15, 20, 25, 30, 40],
    "training.batch_size": [32, 64, 128, 256, 512],
    "training.window": [1, 2, 3, 4, 5],
    "task.points": [11, 21],
}
HEAD = """\
question: How long does a large study take to resume and to read?
fixed:
  task: {{kind: linear_regression, dim: 4}}
  model: {{kind: looped, width: 16, heads: 2}}
  training: {{steps: 20000, eval_every: 500}}
nuisance:
  training.lr: {{real: [1.0e-4, 1.0e-2], scale: log}}
  training.warmup: {{choice: [0, 500, 2000]}}
search: {{kind: random, trials: {tuning}}}
scheduler: {{kind: asha, first_rung: 1000, reduction: 3}}
replicates: 2
evaluate: {{loops: 40}}
{more}scientific:
"""
QUESTIONS = "laws: [{of: error, along: training.loops}]\nbaselines: [least_squares, gradient_descent]\n"
"""Parts of a study that only its report reads."""
LOOPS = 40
"""Loops of the evaluation, as in the study."""
MEASURED = ("loss", "error", "error_last", "raw_error", "seconds", "grad_norm")
EVALUATED = ("error", "error_last", "raw_error", "excess")
BATCH = 200_000
"""Rows of one INSERT."""
Rows = dict[Any, list[dict[str, Any]]]
"""Rows to insert, by MLflow's table."""


def study_file(folder: Path, cells: int, tuning: int = 18, more: str = "") -> Path:
    """The file of a study with about `cells` cells, 50 to 500, of `tuning` + 2 trials."""
    tasks = 1 if cells <= 250 else 2
    windows = max(1, cells // (50 * tasks))
    axes = CELLS | {
        "training.window": CELLS["training.window"][:windows],
        "task.points": CELLS["task.points"][:tasks],
    }
    file = folder / "large.yaml"
    head = HEAD.format(tuning=tuning, more=more)
    file.write_text(head + "".join(f"  {path}: {values}\n" for path, values in axes.items()))
    return file


def create_store(
    file: Path,
    where: str,
    database: str | None = None,
    storage: Path | str | None = None,
    artifacts: Path | None = None,
) -> int:
    """Create a store with the study's records. Returns the number of trials.

    `database` is the address of a server's database. With `artifacts`, the store's folder of artifacts, the records
    also have histories, curves and the study's description.
    """
    store = open_store(where, storage=storage, create=True)
    return _fill(database or store.uri, int(store.make_experiment(study_name(file))), file, artifacts)


def _fill(uri: str, experiment: int, file: Path, artifacts: Path | None) -> int:
    import sqlalchemy

    study = Study.load(file)
    records = _conduct(study)
    params = {note.key: note.params for note in records.notes if note.params}
    trials = records.records()
    engine = sqlalchemy.create_engine(uri)
    rows: Rows = {}
    if artifacts:
        _merge(rows, _parent_rows(study, experiment, file, artifacts))
    for number, record in enumerate(trials, start=1):
        _merge(rows, _trial_rows(study, record, params[record.key], experiment, number, artifacts))
        if number == len(trials) or max(map(len, rows.values())) > BATCH:
            with engine.begin() as connection:
                for table in sorted(rows, key=lambda table: table.__tablename__ != "runs"):
                    connection.execute(sqlalchemy.insert(table), rows[table])
            rows = {}
    engine.dispose()
    return len(trials)


def _conduct(study: Study) -> MemoryRecords:
    """The notes of the study's conductor in simulated time."""
    whole = Simulation(study, LearningCurves(study, []), SimulatedCluster(slots=200))
    whole.run()
    return whole.records


def _merge(rows: Rows, more: Rows) -> None:
    for table, values in more.items():
        rows.setdefault(table, []).extend(values)


def _run_rows(
    experiment: int, run: str, name: str, status: str, start: int, tags: dict[str, str], place: str
) -> Rows:
    from mlflow.store.tracking.dbmodels import models

    row = {"run_uuid": run, "experiment_id": experiment, "name": name, "status": status, "start_time": start}
    row |= {"end_time": start + 1, "lifecycle_stage": "active", "artifact_uri": place, "source_type": "LOCAL"}
    row |= {"source_name": "", "user_id": "", "entry_point_name": "", "source_version": ""}
    tags = tags | {"mlflow.runName": name}
    return {
        models.SqlRun: [row],
        models.SqlTag: [{"run_uuid": run, "key": k, "value": v} for k, v in tags.items()],
    }


def _parent_rows(study: Study, experiment: int, file: Path, artifacts: Path) -> Rows:
    run = uuid.uuid4().hex
    folder = artifacts / run / "artifacts"
    folder.mkdir(parents=True)
    (folder / STUDY_JSON).write_text(json.dumps(study.document()))
    (folder / STUDY_FILE).write_text(file.read_text())
    tags = {
        "trial": STUDY,
        "role": STUDY,
        "study": study.name,
        "question": study.question,
        "git_commit": "0" * 40,
    }
    return _run_rows(experiment, run, STUDY, "FINISHED", _now() - 1, tags, folder.as_uri())


def _trial_rows(
    study: Study, record: Record, params: dict[str, Any], experiment: int, number: int, artifacts: Path | None
) -> Rows:
    from mlflow.store.tracking.dbmodels import models

    run, start = uuid.uuid4().hex, _now() + number
    evaluated = record.outcome == "finished"
    tags = record.tags | {
        "trial": record.key,
        "study": study.name,
        "git_commit": "0" * 40,
        "git_changed": "no",
    }
    tags |= {"host": "host-1", "hardware": "a processor", "weights": "dropped"}
    tags |= {"evaluation": study.evaluate.key} if evaluated else {}
    settings = {k: float(v) for k, v in params.items() if isinstance(v, int | float) and v is not True}
    curve = _errors(record, params)
    last = settings | dict.fromkeys(MEASURED if record.step else (), 0.5) | record.metrics
    if evaluated:
        last |= {EVALUATE + name: float(curve[-1].mean()) for name in EVALUATED}
    place = artifacts / run / "artifacts" if artifacts else Path("/nowhere", run)
    if artifacts and evaluated:
        place.mkdir(parents=True)
        (place / CURVE).write_bytes(encode_curve(curve, curve / 30, curve * 4, curve * 0.8))
    points = [(name, value, 0 if name in settings else record.step) for name, value in last.items()]
    if artifacts:
        points += _history(study, record)
    metrics = [
        {"run_uuid": run, "key": k, "value": v, "timestamp": start, "step": step, "is_nan": False}
        for k, v, step in points
    ]
    rows = _run_rows(experiment, run, record.key, record.status, start, tags, place.as_uri())
    rows[models.SqlParam] = [{"run_uuid": run, "key": k, "value": encode(v)} for k, v in params.items()]
    rows[models.SqlLatestMetric] = metrics[: len(last)]
    rows[models.SqlMetric] = metrics
    return rows


def _errors(record: Record, params: dict[str, Any]) -> np.ndarray:
    """Errors after every loop at every query that fall towards the trial's error at T, [loops, points]."""
    error = record.error if np.isfinite(record.error) else 0.5
    trained = params.get("training.loops") or LOOPS
    loops = np.minimum(np.arange(1, LOOPS + 1), trained)
    points = np.arange(params["task.points"])
    return error * np.exp(-loops / 30)[:, None] * np.exp(-points / 10)


def _history(study: Study, record: Record) -> Iterator[tuple[str, float, int]]:
    """Name, value and step of every validation before the last."""
    interval = study.fixed["training"]["eval_every"]
    for step in range(interval, record.step, interval):
        for name in MEASURED:
            yield name, 0.5 + 1 / step, step


def _now() -> int:
    return int(time.time() * 1000)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("--trials", type=int, default=10_000)
    chosen = options.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    cells = min(500, max(50, chosen.trials // 20))
    file = study_file(chosen.folder, cells, chosen.trials // cells - 2, QUESTIONS)
    store = chosen.folder / "store"
    print(create_store(file, str(store), artifacts=store / "artifacts"), "trials and baselines")


if __name__ == "__main__":
    main()
