"""A study as the mirror has it: what `best`, `report` and the end of `run` are made from."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    import pandas as pd

    from loopscale.records.mirror import Mirror
    from loopscale.records.store import Store


PARTS = {"question": str, "source": str, "cells": list, "search": dict, "scheduler": dict, "laws": list,
         "baselines": list, "evaluate": dict, "nuisance": dict, "replicates": int, "planned": int,
         "plan": list}  # fmt: skip
"""What a study's description has, and of which kind, where it is not left out."""


@dataclass(frozen=True)
class Recorded:
    """`study` is its description (study.json); the tables are those of `loopscale query`, of it alone."""

    study: dict[str, Any]
    trials: "pd.DataFrame"
    curves: "pd.DataFrame"
    history: "pd.DataFrame"
    provenance: dict[str, Any]
    """Where it comes from, for the report."""


def name_of(study: str) -> str:
    """A study's name in the records, given its file or that name. The file need not be there any more."""
    from loopscale.studies.find import SUFFIXES, find
    from loopscale.studies.find import name_of as named
    from loopscale.studies.mistakes import Mistakes

    if not study.strip():
        raise Wrong("the study's name is empty; give its file, or its name below studies/")
    path = Path(study)
    try:
        path = find(study)
    except Mistakes:
        return named(path) if path.suffix in SUFFIXES else study
    return study if path.is_dir() else named(path)


def recorded(store: "Store", study: str, where: str = "", curves: bool = True) -> Recorded:
    """The study's tables, brought up to date; only trials of which `where` is true, an SQL condition.

    `curves` and `history` are left empty unless asked for. Raises Wrong, QueryError, StoreError.
    """
    from loopscale.records.mirror import Mirror

    mirror, name = Mirror(store), name_of(study)
    mirror.sync(name)
    of_study = "trial IN (SELECT trial FROM trials WHERE study = ?)" if curves else "trial = ? AND false"
    wanted = [
        "SELECT * FROM trials WHERE study = ?",
        f"SELECT * FROM curves WHERE {of_study}",
        f"SELECT * FROM history WHERE {of_study}",
    ]
    with mirror.connect() as connection:
        about = 'SELECT json, source, "commit", started FROM studies WHERE study = ?'
        row = connection.execute(about, [name]).fetchone()
        trials, curve, history = (connection.execute(sql, [name]).df() for sql in wanted)
    if row is None or not row[0]:
        raise Wrong(_unknown(mirror, name))
    if where:
        kept = mirror.query(f"SELECT trial FROM trials WHERE role = 'baseline' OR ({where}\n)")
        trials = trials.loc[trials["trial"].isin(kept["trial"].to_pylist())]
    origin = {"source": row[1], "commit": row[2], "started": row[3], "store": store.name}
    return Recorded(_shaped(name, row[0]) | {"name": name}, trials, curve, history, origin)


def _shaped(name: str, text: str) -> dict[str, Any]:
    """A study's description. StoreError unless it is one as `Study.document` makes it: it comes with the store."""
    from loopscale.records.errors import StoreError

    try:
        found = json.loads(text)
        for part, kind in PARTS.items():
            if not isinstance(found.get(part) or kind(), kind):
                raise ValueError(f"its {part} are of the wrong kind")
        for cell in found["cells"]:
            if not (isinstance(cell["key"], str) and isinstance(cell["label"], str) and cell["values"].items):
                raise ValueError("its cells are of the wrong kind")
        for cell in found.get("plan") or []:
            amounts = (cell["tuning"], cell["replicates"], cell["trained_share"], *cell["flops"])
            if (
                len(amounts) != 5
                or not all(isinstance(each, int | float) for each in amounts)
                or not cell["key"]
            ):
                raise ValueError("its plan is of the wrong kind")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        what = f"the description of {name} in the records is damaged ({str(problem)[:200]})"
        raise StoreError(what, f"`loopscale run {name}` writes it again") from problem
    return found


def _unknown(mirror: "Mirror", name: str) -> str:
    from loopscale.studies.mistakes import one_of

    if not mirror.store.root:
        mirror.store.find(name)  # a server hides what one may not see; asked for by name, it says so
    mirror.sync()
    known = [row["study"] for row in mirror.query("SELECT study FROM studies ORDER BY 1").to_pylist()]
    what = f"no records of {name} in {mirror.store.name} yet; `loopscale run {name}` makes them"
    return f"{what}, or {one_of(name, known)}" if known else what
