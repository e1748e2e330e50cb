"""The state of a study from its records alone: cells, trials, curves, failures and hours, as parts of the page.

The driver writes every validation into the records within about a second. One source therefore serves a study that
runs here, a study that runs elsewhere, and a study that is over. Only changed histories are read again.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from loopscale.core.titles import readable
from loopscale.core.visible import last_line, shortened, visible
from loopscale.records.decisions import recorded_decisions
from loopscale.records.model import OVER, STUDY_JSON, Run, parent_among
from loopscale.records.stores.base import Store
from loopscale.records.study_records import UNITS, spending_in
from loopscale.records.writing.run_account import changed_since, latest_end

MOST_CURVES = 300
"""The largest number of curves. Running trials come first, then replicates, then the best tuning trials of cells."""
MOST_STEPS = 200
"""A curve with more validations is thinned."""
MOST_POINTS = 1000
"""The largest number of trials in the figure of points. Running trials come first, then the lowest errors."""
MOST_FAILURES = 100
MOST_DETAIL = 2000
"""Characters of a reason."""
ALL_RUNS_SECONDS = 300.0
"""A server is asked for all runs after this time. Between, it is asked for runs that are open or have ended since."""
CURVE = "curve "
"""Prefix of the parts with the curves of single trials."""
NO_RESULT = ("failed", "lost", "out_of_memory", "diverged", "stopped")
STOPPED_STUDY = {"FINISHED": "over", "KILLED": "stopped"}
"""The state of a study without a driver, by the status of its parent run."""


@dataclass(frozen=True)
class LiveTrial:
    """A trial or a baseline as its run in the records shows it."""

    run: Run
    cell: int
    """Number of the trial's cell; -1 for a baseline."""

    @property
    def key(self) -> str:
        return self.run.tags["trial"]

    @property
    def role(self) -> str:
        return self.run.tags.get("role", "")

    @property
    def number(self) -> int:
        return whole(self.run.tags.get("number"))

    @property
    def outcome(self) -> str:
        """The outcome; `running` for a trial that has begun and not ended."""
        return self.run.tags.get("outcome") or "running"

    @property
    def step(self) -> int:
        return whole(self.run.metrics.get("step"))

    @property
    def steps(self) -> int:
        """Training steps of the whole trial; 0 for a baseline."""
        return whole(self.run.metrics.get("training.steps", self.run.params.get("training.steps")))

    @property
    def error(self) -> float | None:
        """The error of the last validation; of a baseline, of the evaluation."""
        metrics = self.run.metrics
        return rounded(metrics.get("error", metrics.get("evaluate/error")))

    @property
    def deaths(self) -> int:
        """How often a worker of the trial has died, alone or with its host."""
        return sum(whole(self.run.tags.get(name)) for name in ("retries", "lost_hosts"))

    @property
    def seed(self) -> str:
        return self.run.tags.get("seed", "")

    @property
    def name(self) -> str:
        """The trial within its cell."""
        return "baseline" if self.role == "baseline" else f"{self.role} {self.number}"

    @cached_property
    def point(self) -> dict[str, Any]:
        with suppress(ValueError, RecursionError):
            point = json.loads(self.run.tags.get("point") or "{}")
            return point if isinstance(point, dict) else {}
        return {}


class RecordedStudy:
    """Reads the state of one study. `parts` is to be called repeatedly."""

    def __init__(self, store: Store, study: str) -> None:
        self.store, self.study = store, study
        self.description: dict[str, Any] = {}
        self._described: object = None
        self._stamp: str | None = None
        self._runs: dict[str, Run] = {}
        self._all_runs_at = -math.inf
        self._curves: dict[str, tuple[str, dict[str, Any]]] = {}
        """Fingerprint of the run and curve, by the trial's key."""

    def parts(self) -> dict[str, Any] | None:
        """The parts of the page; None if no record has changed. Raises StoreError, and what the store raises."""
        stamp = self.store.change_stamp()
        if self._runs and (self.store.read_only or (stamp and stamp == self._stamp)):
            return None
        runs = self._read_runs()
        parent = parent_among(runs)
        self._describe(parent)
        cells = {cell["key"]: number for number, cell in enumerate(self.cells)}
        trials = [
            LiveTrial(run, cells.get(run.tags.get("cell", ""), -1))
            for run in runs
            if run.is_trial and (run.tags.get("role") == "baseline" or run.tags.get("cell") in cells)
        ]
        of_cells: list[list[LiveTrial]] = [[] for _ in cells]
        for trial in trials:
            if trial.cell >= 0:
                of_cells[trial.cell].append(trial)
        parts: dict[str, Any] = {
            "records": self._summary(parent, trials, of_cells),
            "cells": [self._cell(cell, of_cell) for cell, of_cell in zip(self.cells, of_cells, strict=True)],
            "recorded workers": [worker(trial) for trial in trials if trial.outcome == "running"],
            "failures": _failures(trials),
            "decisions": _decisions(parent),
            "points": self._points(trials),
        }
        parts |= self._curve_parts(trials)
        self._stamp = stamp
        return parts

    @property
    def cells(self) -> list[dict[str, Any]]:
        return self.description.get("cells") or []

    def _read_runs(self) -> list[Run]:
        experiment = self.store.require_experiment(self.study)
        if not self.store.shared or time.monotonic() - self._all_runs_at > ALL_RUNS_SECONDS:
            self._all_runs_at = time.monotonic()
            self._runs = {run.id: run for run in self.store.runs(experiment, params=False)}
        else:
            changed = changed_since(self.store, experiment, latest_end(self._runs.values()))
            self._runs |= {run.id: run for run in changed}
        return sorted(self._runs.values(), key=lambda run: (run.start, run.id))

    def _describe(self, parent: Run | None) -> None:
        """Read the study's description again if a driver has started since."""
        state = parent and (parent.id, parent.status, {**parent.tags, "spent": ""})
        if state == self._described and self.description:
            return
        content = self.store.read_artifact(parent.id, STUDY_JSON) if parent else None
        self.description, self._described = json.loads(content or b"{}"), state

    def _summary(
        self, parent: Run | None, trials: Sequence[LiveTrial], of_cells: Sequence[Sequence[LiveTrial]]
    ) -> dict[str, Any]:
        tags = parent.tags if parent else {}
        spending = spending_in(parent, self.study)
        planned, over, work = self._progress(of_cells)
        baselines = [trial for trial in trials if trial.role == "baseline"]
        return {
            "study": self.study,
            "question": self.description.get("question") or tags.get("question", ""),
            "source": self.description.get("source") or tags.get("source", ""),
            "store": self.store.name,
            "state": STOPPED_STUDY.get(parent.status, "") if parent else "",
            "planned": planned,
            "over": over,
            "baselines": len(baselines),
            "baselines over": sum(trial.outcome in OVER for trial in baselines),
            "work": work,
            "budget": [
                {
                    "unit": unit,
                    "used": rounded(spending.used[name]),
                    "limit": spending.budget.get(name),
                    "left": rounded(spending.left.get(name)),
                }
                for name, unit in UNITS.items()
                if spending.used.get(name) or name in spending.budget
            ],
            "ended early": tags.get("ended_early", ""),
            "labels": [visible(readable(cell["label"])) for cell in self.cells],
        }

    def _progress(self, of_cells: Sequence[Sequence[LiveTrial]]) -> tuple[int, int, float]:
        """Trials planned, trials over, and the share of the training FLOPs that is done."""
        planned = over = 0
        done = left = 0.0
        for cell, of_cell in zip(self.cells, of_cells, strict=True):
            plan = self._plan(cell["key"])
            mean = max(math.fsum(plan["flops"]) / 2, 1.0)
            shares = [min(trial.step / trial.steps, 1.0) if trial.steps else 0.0 for trial in of_cell]
            ended = [trial.outcome in OVER for trial in of_cell]
            missing = max(plan["tuning"] + plan["replicates"] - len(of_cell), 0)
            planned += len(of_cell) + missing
            over += sum(ended)
            done += mean * math.fsum(shares)
            left += mean * math.fsum(1 - share for share, end in zip(shares, ended, strict=True) if not end)
            expected = plan["trained_share"] if missing > plan["replicates"] else 1.0
            left += mean * missing * expected
        return planned, over, round(done / (done + left), 4) if done + left else 0.0

    def _plan(self, cell: str) -> Mapping[str, Any]:
        """The plan of a cell. Older records have no plan, and a study may have more replicates than its plan."""
        plan = next((plan for plan in self.description.get("plan") or [] if plan["key"] == cell), None)
        return plan or {
            "tuning": (self.description.get("search") or {}).get("trials", 0)
            if self.description.get("nuisance")
            else 0,
            "replicates": self.description.get("replicates", 1),
            "flops": (1.0, 1.0),
            "trained_share": 1.0,
        }

    def _cell(self, cell: Mapping[str, Any], of_cell: Sequence[LiveTrial]) -> dict[str, Any]:
        plan = self._plan(cell["key"])
        counts = {"tuning": 0, "replicate": 0, "pruned": 0, "running": 0, "without": 0}
        for trial in of_cell:
            if trial.outcome in OVER and trial.role in counts:
                counts[trial.role] += 1
            counts["pruned"] += trial.outcome == "pruned"
            counts["running"] += trial.outcome == "running"
            counts["without"] += trial.outcome in NO_RESULT
        errors = [trial.error for trial in of_cell if trial.outcome == "finished" and trial.error is not None]
        planned = {"tuning": plan["tuning"], "replicate": plan["replicates"]}
        for role in planned:
            planned[role] = max(planned[role], sum(trial.role == role for trial in of_cell))
        return {
            "id": cell["key"],
            "label": visible(cell["label"]) or "the study",
            "state": _cell_state(of_cell, counts, planned),
            "tuned": f"{counts['tuning']} of {planned['tuning']}" if planned["tuning"] else "none planned",
            "pruned": counts["pruned"],
            "replicates": f"{counts['replicate']} of {planned['replicate']}",
            "running": counts["running"],
            "without": counts["without"],
            "best": min(errors, default=None),
        }

    def _points(self, trials: Sequence[LiveTrial]) -> dict[str, Any]:
        """The tuning trials with their points and their last validation errors, for parallel coordinates."""
        tuning = [trial for trial in trials if trial.role == "tuning"]
        shown = sorted(tuning, key=lambda trial: (trial.outcome != "running", trial.error or math.inf))
        shown = shown[:MOST_POINTS]
        axes = self.description.get("nuisance") or {}
        paths = list(axes) or sorted({path for trial in tuning for path in trial.point})
        return {
            "settings": [
                {"path": visible(path), "log": (axes.get(path) or {}).get("scale") == "log"} for path in paths
            ],
            "rows": [
                [
                    trial.cell,
                    f"{trial.name}{f', seed {trial.seed}' if trial.seed not in ('', '0') else ''}",
                    trial.outcome,
                    trial.error,
                    [_plain(trial.point.get(path)) for path in paths],
                ]
                for trial in shown
            ],
            "left out": len(tuning) - len(shown),
        }

    def _curve_parts(self, trials: Sequence[LiveTrial]) -> dict[str, Any]:
        """The curves of the shown trials, and None for curves that are not shown any more."""
        trained = [trial for trial in trials if trial.role != "baseline" and trial.step]
        shown = _most_important(trained)
        stale = [trial for trial in shown if self._fingerprint(trial) != trial.run.fingerprint]
        # Without the other metrics, a server is asked once for each trial.
        asked = [replace(trial.run, params={}, metrics={"error": 0.0}) for trial in stale]
        validations: dict[str, list[tuple[int, float]]] = {trial.run.id: [] for trial in stale}
        for run, step, metric, value in self.store.histories(asked):
            if metric == "error":
                validations[run].append((step, value))
        for trial in stale:
            curve = _thinned(sorted(validations[trial.run.id]))
            self._curves[trial.key] = (
                trial.run.fingerprint,
                {
                    "cell": trial.cell,
                    "role": trial.role,
                    "name": trial.name,
                    "outcome": trial.outcome,
                    "x": [step for step, _ in curve],
                    "y": [rounded(error) for _, error in curve],
                },
            )
        keys = {trial.key for trial in shown}
        gone = self._curves.keys() - keys
        self._curves = {key: curve for key, curve in self._curves.items() if key in keys}
        parts: dict[str, Any] = {f"{CURVE}{key}": curve for key, (_, curve) in self._curves.items()}
        omitted: dict[str, Any] = {"omitted curves": len(trained) - len(shown)}
        return parts | {f"{CURVE}{key}": None for key in gone} | omitted

    def _fingerprint(self, trial: LiveTrial) -> str:
        return self._curves.get(trial.key, ("", {}))[0]


def worker(trial: LiveTrial) -> dict[str, Any]:
    """A running trial as the row of its worker."""
    return {
        "id": trial.key,
        "cell": visible(trial.run.tags.get("label", "")),
        "name": trial.name,
        "does": does(trial.role, trial.step, trial.steps),
        "step": trial.step,
        "steps": trial.steps,
        "error": trial.error,
        "attempt": trial.deaths + 1,
        "host": visible(trial.run.tags.get("host", "")),
    }


def does(role: str, step: int, steps: int) -> str:
    """What a worker does with a trial at this step."""
    if role == "baseline":
        return "evaluates an algorithm"
    return "evaluates" if steps and step >= steps else "trains" if step else "starts"


def whole(value: Any) -> int:
    """The whole number in a tag or metric; 0 for anything else, because people can edit tags."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return 0


def rounded(value: float | None) -> float | None:
    """The value with four digits; None unless the value is finite."""
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None


def _reason_of(detail: str) -> str:
    """The reason in one line: of a traceback the last line, which names the error."""
    return shortened(last_line(detail), 300)


def _cell_state(trials: Sequence[LiveTrial], counts: Mapping[str, int], planned: Mapping[str, int]) -> str:
    """The state of a cell in words."""
    running = {trial.role for trial in trials if trial.outcome == "running"}
    if running:
        return "tunes" if "tuning" in running else "trains replicates"
    if all(counts[role] >= number for role, number in planned.items()):
        return "done"
    return "waits" if trials else "not started"


def _most_important(trials: Sequence[LiveTrial]) -> list[LiveTrial]:
    """The trials of the figure of curves. No cell takes the place of another cell's best trials."""
    places = Counter[int]()
    ordered: list[tuple[tuple[bool, bool, int], LiveTrial]] = []
    for trial in sorted(trials, key=lambda trial: math.inf if trial.error is None else trial.error):
        places[trial.cell] += 1
        order = trial.outcome != "running", trial.role != "replicate", places[trial.cell]
        ordered.append((order, trial))
    ordered.sort(key=lambda entry: entry[0])
    return [trial for _, trial in ordered[:MOST_CURVES]]


def _decisions(parent: Run | None) -> list[dict[str, Any]]:
    """The decisions of `until: decided`, the newest first."""
    found = recorded_decisions(parent.tags) if parent else ()
    return [
        {
            "id": decision.tag,
            "question": visible(decision.text),
            "look": decision.seeds,
            "estimate": rounded(decision.estimate),
            "word": decision.verdict,
            "end": decision.end,
        }
        for decision in reversed(found)
    ]


def _failures(trials: Iterable[LiveTrial]) -> dict[str, Any]:
    """Trials without a result, and trials that have lost a worker. The newest come first."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for trial in trials:
        tags = trial.run.tags
        if trial.outcome in NO_RESULT:
            what, reason = trial.outcome.replace("_", " "), tags.get("detail") or tags.get("lost_reason", "")
        elif trial.deaths:
            times = "once" if trial.deaths == 1 else f"{trial.deaths} times"
            fate = {"running": "tried again", "finished": "finished later"}.get(trial.outcome, trial.outcome)
            what, reason = f"worker died {times}, {fate}", tags.get("lost_reason", "")
        else:
            continue
        row = {
            "id": trial.key,
            "trial": trial.key,
            "cell": visible(tags.get("label", "")),
            "name": trial.name,
            "what": what,
            "step": trial.step,
            "reason": visible(_reason_of(reason)) or "no reason is recorded",
            "detail": visible(reason[-MOST_DETAIL:]) if "\n" in reason.strip() else "",
        }
        rows.append((trial.run.end or trial.run.start, row))
    rows.sort(key=lambda row: -row[0])
    return {"rows": [row for _, row in rows[:MOST_FAILURES]], "left out": max(len(rows) - MOST_FAILURES, 0)}


def _thinned(curve: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most about MOST_STEPS validations, with the last one."""
    every = -(-len(curve) // MOST_STEPS)
    return curve if every < 2 else [*curve[:-1:every], curve[-1]]


def _plain(value: Any) -> Any:
    """A setting as a number or a text. JSON has neither NaN nor infinity."""
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value)
    if isinstance(value, int | float):
        return rounded(value)
    return visible(value if isinstance(value, str) else json.dumps(value))
