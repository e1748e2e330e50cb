"""A study as its records have it: what notebooks, the command line and the report are made from.

    from loopscale.analysis.results import reading

    found = reading("quickstart")         # from the default store, or from an export beside the notebook
    found.best(), found.against_loops()

Tables are those of `loopscale query`, of this study alone. A study that nobody has run gives a reading too, without
trials: its tables are empty, and its figures say what is missing.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportGeneralTypeIssues=false

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from loopscale.core.visible import visible
from loopscale.records.mirror.store_mirror import Mirror
from loopscale.records.model.errors import NoRecords, StoreError
from loopscale.records.model.tables import CURVES, HISTORY, TRIALS
from loopscale.records.stores.base import Store
from loopscale.records.stores.exported import ABOUT
from loopscale.records.stores.opening import DEFAULT, open_store
from loopscale.studies.find import nearest_folder, recorded_name
from loopscale.studies.mistakes import one_of

if TYPE_CHECKING:  # `loopscale best` answers without figures and without torch
    import plotly.graph_objects as go

    from loopscale.analysis.notebook_tables import Sentences
    from loopscale.analysis.trained_nets import Trained

PARTS = {"question": str, "source": str, "cells": list, "search": dict, "scheduler": dict, "laws": list,
         "baselines": list, "evaluate": dict, "nuisance": dict, "replicates": int, "planned": int,
         "plan": list}  # fmt: skip
"""What a study's description has, and of which kind, where it is not left out."""


@dataclass(frozen=True, repr=False)
class Reading:
    """A study's records as pandas tables, and what the analysis makes of them.

    `study` is its description (study.json: name, question, cells, laws, ...). Errors are over the target's variance, so
    that predicting nothing costs 1; intervals are of 95 %, over replicates. Where a study has several tasks, figures
    are of one: `task` is one of `tasks()`.
    """

    study: dict[str, Any]
    trials: pd.DataFrame
    curves: pd.DataFrame
    history: pd.DataFrame
    provenance: dict[str, Any] = field(default_factory=dict)
    """Where it comes from, for the report."""
    missing: str = ""
    """What is lacking and how to come by it, in one line; empty if there are records."""
    origin: str = ""
    """The store that was read, as a person would write it."""
    store: Store | None = None

    def __repr__(self) -> str:
        name, question = self.study["name"], self.study.get("question", "")
        return visible(f"{name}: {question} {self.missing or self._extent}")

    def _repr_html_(self) -> str:
        name, question = (escape(visible(str(self.study.get(part, "")))) for part in ("name", "question"))
        return f"<p><b>{name}</b>: {question}<br>{escape(visible(self.missing or self._extent))}</p>"

    @property
    def _extent(self) -> str:
        trained, cells = int((self.trials["role"] != "baseline").sum()), len(self.study["cells"])
        return f"{trained:,} trials in {cells:,} {'cell' if cells == 1 else 'cells'}, from {self.origin}."

    def best(self) -> pd.DataFrame:
        """The best configuration of every cell: what was tuned, its error with the interval, how far the cell is."""
        from loopscale.analysis.notebook_tables import best

        return best(self.study, self.trials)

    def standings(self) -> pd.DataFrame:
        """Every cell's error over that of each classical algorithm after as many steps, on the same prompts."""
        from loopscale.analysis.notebook_tables import standings

        return standings(self.study, self.trials, self.curves)

    def measures(self) -> pd.DataFrame:
        """What the task measures besides the error, such as `ari` or `support_recovery`: nets, then algorithms."""
        from loopscale.analysis.notebook_tables import measures

        return measures(self.study, self.trials)

    def laws(self) -> pd.DataFrame:
        """The laws that the study asks for: rate with interval, what theory predicts, verdict; or why there is none."""
        from loopscale.analysis.notebook_tables import laws

        return laws(self.study, self.trials, self.curves)

    def answer(self) -> "Sentences":
        """The answer in words."""
        from loopscale.analysis.notebook_tables import Sentences, answered

        found = (self.study, self.trials, self.curves, self.history)
        return Sentences([self.missing] if self.missing else answered(*found))

    def undecided(self) -> pd.DataFrame:
        """What is open and why; how many replicates (in all) or values on the axis would decide it, and their cost."""
        from loopscale.analysis.notebook_tables import undecided

        return undecided(self.study, self.trials, self.curves, self.history)

    def tasks(self) -> list[str]:
        """What sets the tasks of the cells apart, as the figures' `task` takes it; one empty text for a single task."""
        from loopscale.analysis.tables import by_task

        return list(by_task(self.study, self.trials)) or [""]

    def against_loops(self, task: str | None = None) -> "go.Figure":
        """Error after every loop or layer, beside classical algorithms and what no predictor can beat."""
        from loopscale.analysis.figures import against_loops

        return self._drawn(lambda: against_loops(self.study, self.trials, self.curves, self._cells(task)))

    def against_points(self, task: str | None = None) -> "go.Figure":
        """Error at loop T against the pairs seen before the query."""
        from loopscale.analysis.figures import against_points

        return self._drawn(lambda: against_points(self.study, self.trials, self.curves, self._cells(task)))

    def replicates(self, task: str | None = None) -> "go.Figure":
        """Every cell's mean with its interval, and the runs behind it."""
        from loopscale.analysis.figures import replicates

        return self._drawn(lambda: replicates(self.study, self.trials, self._cells(task)))

    def against_axis(
        self, path: str, of: str = "error", only: Mapping[str, Any] | None = None
    ) -> "go.Figure":
        """A measure at T against one scientific setting of numbers, such as `training.loops`, beside the classical
        algorithms; `only` cells with these settings. ValueError for what is no such setting or measure.
        """
        from loopscale.analysis.figures import against_axis, axes

        known = axes(self.study, least=1)
        if path not in known:
            raise ValueError(f"{path} is no axis of numbers of {self.study['name']}; {one_of(path, known)}")
        return self._drawn(lambda: against_axis(self.study, self.trials, self.curves, path, of, only))

    def law(self, of: str, along: str) -> "go.Figure":
        """The study's laws of `of` (error, excess, ...) along an axis, with data, fit and what theory predicts."""
        from loopscale.analysis.notebook_tables import law

        return self._drawn(lambda: law(self.study, self.trials, self.curves, of, along))

    def learning(self) -> "go.Figure":
        """Validation error of the runs that speak for each cell, as they were trained."""
        from loopscale.analysis.figures import learning

        return self._drawn(lambda: learning(self.study, self.trials, self.history))

    def nets(self, cell: str = "") -> "Iterator[Trained]":
        """The trained nets of a cell's replicates, by its label or key; may be left out where there is one cell.

        Raises ValueError for what is no cell, StoreError where the weights are not to be had; nothing without trials.
        """
        from loopscale.analysis.trained_nets import nets

        if not self.missing and self.store:
            yield from nets(self.store, self.study, self.trials, cell)

    def _drawn(self, draw: "Callable[[], go.Figure]") -> "go.Figure":
        from loopscale.analysis.notebook_tables import drawn, lacking

        return lacking(self.missing) if self.missing else drawn(draw())

    def _cells(self, task: str | None) -> list[str]:
        """The keys of the cells on one task. ValueError where it is none, or left out and there are several."""
        from loopscale.analysis.tables import by_task

        groups = by_task(self.study, self.trials)
        if task is None and len(groups) < 2:
            return [key for keys in groups.values() for key in keys]
        if task not in groups:
            what = "there are several tasks" if task is None else f"there is no task {task!r}"
            raise ValueError(f"{what}; give task=, {one_of(task or '', groups)}")
        return groups[task]


def reading(study: str, store: str | Path | None = None, beside: str | Path = "data") -> Reading:
    """A study's records: of `store`; else of the default store; else of an export in the folder `beside`.

    The default store is the one that the command line would take, here or beside the nearest `studies/`; it is passed
    over if no trial of the study has finished there. `study` is a name or a file. Raises StoreError for records that
    cannot be read, Mistakes for a study that has neither records nor a file.
    """
    name = recorded_name(study)
    for place in _places(name, store, beside):
        try:
            found = read(place, name)
        except NoRecords:
            continue
        over = found.trials["outcome"].eq("finished") & found.trials["role"].ne("baseline")
        if store is not None or over.any():
            return found
    return _unrun(study, name, store)


def read(store: Store, study: str, curves: bool = True) -> Reading:
    """One study of one store, brought up to date.

    `curves` and `history` are left empty unless asked for. Raises NoRecords, StoreError.
    """
    mirror = Mirror(store)
    mirror.sync(study)
    of_study = "trial IN (SELECT trial FROM trials WHERE study = ?)" if curves else "trial = ? AND false"
    wanted = [
        "SELECT * FROM trials WHERE study = ?",
        f"SELECT * FROM curves WHERE {of_study}",
        f"SELECT * FROM history WHERE {of_study}",
    ]
    with mirror.database() as connection:
        about = 'SELECT json, source, "commit", started FROM studies WHERE study = ?'
        row = connection.execute(about, [study]).fetchone()
        trials, curve, history = (connection.execute(sql, [study]).df() for sql in wanted)
    if row is None or not row[0]:
        raise _unknown(mirror, study)
    origin = {"source": row[1], "commit": row[2], "started": row[3], "store": store.name}
    described = _shaped(study, row[0]) | {"name": study}
    return Reading(described, trials, curve, history, origin, origin=_seen_from_here(store), store=store)


def _places(study: str, store: str | Path | None, beside: str | Path) -> Iterator[Store]:
    """Stores that may have the study, the likeliest first."""
    for where in _defaults() if store is None else [store]:
        try:
            yield open_store(where)
        except NoRecords:
            continue
    if store is not None:
        return
    beside = Path(beside)
    for about in sorted([*beside.glob(ABOUT), *beside.glob(f"*/{ABOUT}")]):
        exported = open_store(about.parent)
        if exported.find_experiment(study):
            yield exported


def _defaults() -> list[Path | None]:
    """The default store, and the one beside the nearest `studies/`: the command line is used there, notebooks below."""
    folder = nearest_folder()
    given = any(os.environ.get(name) for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"))
    return [None] if given or not folder else [None, folder.parent / DEFAULT]


def _seen_from_here(store: Store) -> str:
    """The store's name; a folder of this project as a path from here, so that a notebook tells nobody where it lay."""
    folder = nearest_folder()
    near = (Path.cwd(), *([folder.parent] if folder else []))
    if "://" in store.name or not any(Path(store.name).is_relative_to(each) for each in near):
        return store.name
    return os.path.relpath(store.name)


def _unrun(study: str, name: str, store: str | Path | None) -> Reading:
    """What can be said of a study from its file alone. Raises Mistakes."""
    from loopscale.studies.spec import Study

    described = Study.load(study).document() | {"name": name}
    option = f" --store {store}" if store is not None else ""
    missing = f"No trial of {name} has finished yet: `loopscale run {name}{option}` trains them, then run this again."
    tables = (
        {path: kind for path, kind in each.items() if path != "run"} for each in (TRIALS, CURVES, HISTORY)
    )
    trials, curves, history = (pd.DataFrame(columns=list(each)) for each in tables)
    return Reading(described, trials, curves, history, missing=missing)


def _shaped(name: str, text: str) -> dict[str, Any]:
    """A study's description. StoreError unless it is one as `Study.document` makes it: it comes with the store."""
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


def _unknown(mirror: Mirror, name: str) -> NoRecords:
    mirror.store.find_experiment(name)  # a server hides what one may not see; asked for by name, it says so
    mirror.sync()
    known = [row["study"] for row in mirror.query("SELECT study FROM studies ORDER BY 1").to_pylist()]
    remedy = f"`loopscale run {name}` makes them"
    return NoRecords(
        f"no records of {name} in {mirror.store.name} yet",
        f"{remedy}, or {one_of(name, known)}" if known else remedy,
    )
