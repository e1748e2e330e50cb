"""Load the results of a study: from a store, from an export beside the notebook, or from the study's file alone."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from loopscale.analysis.recorded.floors import FLOORS_FILE, save_floors
from loopscale.analysis.recorded.results import Results
from loopscale.notation.files import SHIPPED, find_study, recorded_name, studies_folder, study_name
from loopscale.notation.mistakes import Mistakes, one_of
from loopscale.notation.plugins import load_recorded_plugins
from loopscale.questions.claim import ClaimSpec, read_claims
from loopscale.questions.until import look_schedule
from loopscale.records.mirror import Mirror
from loopscale.records.model import DAMAGE, STUDY_FILE, NoRecords, StoreError, parse_description
from loopscale.records.stores.base import Store
from loopscale.records.stores.exported import ABOUT
from loopscale.records.stores.opening import DEFAULT, open_store
from loopscale.records.tables import CURVES, HISTORY, TRIALS

ANSWERING = """
metric = 'error' AND trial IN (
    WITH of_study AS (SELECT * FROM trials WHERE study = ?)
    SELECT trial FROM of_study WHERE role = 'replicate'
    UNION ALL
    SELECT arg_min(trial, error) FROM of_study WHERE role = 'tuning' AND outcome = 'finished' GROUP BY cell
)"""
"""SQL: the errors of replicates and of the best tuning trial of each cell."""


def load_results(store: Store, study: str, curves: bool = True) -> Results:
    """The results of one study in one store. The mirror of the store is updated first.

    Without `curves`, the table of curves stays empty, and unknown floors are not computed: torch is not imported. The
    table of histories then has only the errors of trials that may answer for a cell. Raises NoRecords, StoreError.
    """
    mirror = Mirror(store)
    mirror.sync(study)
    of_study = "trial IN (SELECT trial FROM trials WHERE study = ?)"
    queries = [
        "SELECT * FROM trials WHERE study = ?",
        f"SELECT * FROM curves WHERE {of_study if curves else 'trial = ? AND false'}",
        f"SELECT * FROM history WHERE {of_study if curves else ANSWERING}",
    ]
    with mirror.database() as connection:
        of_studies = 'SELECT json, source, "commit", started FROM studies WHERE study = ?'
        row = connection.execute(of_studies, [study]).fetchone()
        trials, curve_rows, history = (connection.execute(query, [study]).df() for query in queries)
    text = row[0] or described_by_file(store, study) if row else ""
    if row is None or not text:
        raise _unknown_study(mirror, study)
    provenance = {"source": row[1], "commit": row[2], "started": row[3], "store": store.name}
    return Results(
        _description(study, text) | {"name": study},
        trials,
        curve_rows,
        history,
        provenance,
        origin=_origin(store),
        store=store,
        compute_floors=curves,
    )


def with_claims(results: Results, study: str | Path) -> Results:
    """The results with the claims of the study's file. Without an own file of this study the recorded claims stay.

    Claims judge the records and change none, so the newest claims count, also for older records. `study` is the file,
    or the name of a study below `studies/`. Raises Mistakes for claims that cannot be read.
    """
    try:
        file = find_study(study)
        own = file.is_file() and not file.is_relative_to(SHIPPED)
        if not own or study_name(file) != results.name:
            return results
    except Mistakes:
        return results
    claims = read_claims(file)
    return replace(results, study={**results.study, "claims": claims})


def export_floors(store: Store, study: str, folder: Path) -> None:
    """Add the floors that a store knows of a study's tasks to an export, so that its readers need not compute them."""
    results = load_results(store, study, curves=False)
    if floors := results.floors.known(results.floor_keys()):
        save_floors(folder / FLOORS_FILE, floors)


def find_results(
    study: str | Path, store: Store | str | Path | None = None, beside: str | Path = "data"
) -> Results:
    """The results of a study from `store`, else from the default store, else from an export in the folder `beside`.

    The default store is the store of the command line, in the current folder or beside the nearest `studies/`. It is
    skipped if no trial of the study has finished there. If there are no records at all, the results have no trials, and
    `missing` says how to run the study.

    Parameters
    ----------
    study
        The name of a study or the path of its file.

    Raises
    ------
    StoreError
        If the records cannot be read.
    Mistakes
        If the study has neither records nor a file.
    """
    name = recorded_name(str(study))
    for place in _candidate_stores(name, store, beside):
        try:
            results = load_results(place, name)
        except NoRecords:
            continue
        load_recorded_plugins(study, name, results.study.get("plugins") or ())
        if store is not None or any(trial.outcome == "finished" for trial in results.trained):
            return with_claims(results, study)
    return _results_of_file(study, name, store)


def _candidate_stores(study: str, store: Store | str | Path | None, beside: str | Path) -> Iterator[Store]:
    """Stores that may hold the study, in the order of preference."""
    for where in _default_stores() if store is None else [store]:
        try:
            yield where if isinstance(where, Store) else open_store(where)
        except NoRecords:
            continue
    if store is not None:
        return
    beside = Path(beside)
    for about in sorted([*beside.glob(ABOUT), *beside.glob(f"*/{ABOUT}")]):
        exported = open_store(about.parent)
        if exported.find_experiment(study):
            yield exported


def _default_stores() -> list[Path | None]:
    """The default store, and the store beside the nearest `studies/`: notebooks lie in a folder beside it."""
    folder = studies_folder()
    given = any(os.environ.get(name) for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"))
    return [None] if given or not folder else [None, folder.parent / DEFAULT]


def _origin(store: Store) -> str:
    """The store's name; a folder of this project as a relative path, so that notebooks hold no path of a machine."""
    folder = studies_folder()
    near = (Path.cwd(), *([folder.parent] if folder else []))
    if "://" in store.name or not any(Path(store.name).is_relative_to(each) for each in near):
        return store.name
    return os.path.relpath(store.name)


def _results_of_file(study: str | Path, name: str, store: Store | str | Path | None) -> Results:
    """Results without trials, from the study's file. Raises Mistakes."""
    from loopscale.studies.spec import Study  # imports torch, which reading records does not need

    description = Study.load(study).document() | {"name": name}
    where = store.name if isinstance(store, Store) else store
    option = f" --store {where}" if where is not None else ""
    missing = f"No trial of {name} has finished yet: `loopscale run {name}{option}` trains them, then run this again."
    trials, curves, history = (
        pd.DataFrame(columns=[column for column in columns if column != "run"])
        for columns in (TRIALS, CURVES, HISTORY)
    )
    return Results(description, trials, curves, history, missing=missing)


def _description(name: str, text: str) -> dict[str, Any]:
    """A study's recorded description. Raises StoreError unless the text has the form that `Study.document` writes."""
    try:
        description = parse_description(text)
        for claim in description.get("claims") or []:
            ClaimSpec.model_validate(claim)
        if description.get("until"):
            look_schedule(description)
    except DAMAGE as problem:
        damage = f"the description of {name} in the records is damaged ({str(problem)[:200]})"
        raise StoreError(damage, f"`loopscale run {name}` writes it again") from problem
    return description


def described_by_file(store: Store, study: str) -> str:
    """The description that the recorded file of a study gives, as JSON; empty if there is no such file.

    Steps that a budget of training pays for are derived at the prices of today.
    """
    parent = store.parent_run(study)
    content = store.read_artifact(parent.id, STUDY_FILE) if parent else None
    if not content:
        return ""
    from loopscale.studies.spec import Study, cell_counts  # imports torch, which a whole store does not need

    try:
        described = Study.parse(content.decode(), study)
        return json.dumps(described.document() | {"plan": cell_counts(described)}, indent=1)
    except (Mistakes, ValueError):
        return ""


def _unknown_study(mirror: Mirror, name: str) -> NoRecords:
    # A server omits studies without permission from lists. Asked for by name, it raises the refusal.
    mirror.store.find_experiment(name)
    mirror.sync()
    known = [row["study"] for row in mirror.query("SELECT study FROM studies ORDER BY 1").to_pylist()]
    remedy = f"`loopscale run {name}` makes them"
    if name in known:
        deleted = mirror.store.deleted_parent_run(name)
        restore = f"`mlflow runs restore --run-id {deleted.id}` brings the run back, or " if deleted else ""
        what = f"the parent run of {name} in {mirror.store.name} is missing, which describes the study"
        return NoRecords(what, f"{restore}`loopscale run {name}` writes a new one")
    return NoRecords(
        f"no records of {name} in {mirror.store.name} yet",
        f"{remedy}, or {one_of(name, known)}" if known else remedy,
    )
