"""Artificial records with planted laws, in the shape of the mirror's tables."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.recorded.results import Results

TRIAL_COLUMNS = ["trial", "study", "cell", "label", "role", "number", "seed", "outcome", "detail"]
PLANTED_MEASURES = [
    "error",
    "error_last",
    "raw_error",
    "excess",
    "validate_error",
    "step",
    "seconds",
    "flops",
]
PLANTED_SETTINGS = ["task.kind", "task.dim", "task.points", "model.kind"]
PLANTED_SETTINGS += ["training.lr", "training.loops", "training.window"]

MARKED = "<b>mine</b>"
"""A kind with markup. A figure must show the text and no bold letters."""


class Planted:
    """The records of a study whose errors follow known laws.

    Parameters
    ----------
    seed, noise
        The seed, and the standard deviation, of the noise of a replicate's log error.
    loops
        T, the number of trained loops.
    points
        The number of queries.
    longest
        The number of evaluated loops.
    """

    def __init__(
        self, seed: int = 0, noise: float = 0.05, loops: int = 6, points: int = 8, longest: int = 12
    ):
        self.rng, self.noise = np.random.default_rng(seed), noise
        self.loops, self.points, self.longest = loops, points, longest
        self.rows: list[dict[str, Any]] = []
        self.curve: list[pd.DataFrame] = []
        self.history: list[dict[str, Any]] = []
        self.study: dict[str, Any] = {
            "name": "planted",
            "question": "Does the error fall with loops?",
            "source": "nobody",
            "cells": [],
            "search": {"kind": "random", "trials": 4},
            "laws": [],
            "baselines": [],
            "replicates": 3,
            "evaluate": {"loops": longest, "prompts": 64},
            "planned": 14,
        }

    def cell(self, label: str, **values: Any) -> str:
        """Add a cell with these scientific settings. Returns its key."""
        key = f"cell{len(self.study['cells'])}"
        self.study["cells"].append({"key": key, "label": label, "values": values})
        return key

    def trial(self, cell: str, role: str, number: int, error: float, **columns: Any) -> str:
        """Add a trial; `columns` replace the columns of its row. Returns its key. A baseline has the cell ""."""
        cells = {cell["key"]: cell for cell in self.study["cells"]}
        settings = cells.get(cell, {"label": columns.get("label", ""), "values": {}})
        key = f"{role}-{cell}-{number}"
        row = (
            dict.fromkeys(TRIAL_COLUMNS + PLANTED_MEASURES + PLANTED_SETTINGS)
            | {
                "trial": key,
                "study": "planted",
                "cell": cell,
                "label": settings["label"],
                "role": role,
                "number": number,
                "seed": {"tuning": 0, "replicate": number + 1}.get(role),
                "outcome": "finished",
                "detail": "",
                "error": error,
                "error_last": error / 2,
                "raw_error": error * 2,
                "excess": error * 2 - 0.01,
                "validate_error": error,
                "step": 1000,
                "validate_floor": 0.0,
                "validate_ignorance": 10.0,  # so that every planted run has left the plateau
                "seconds": 3.0,
                "flops": 1e9 * (number + 1),
                "task.kind": "linear_regression",
                "task.dim": 2,
                "task.points": self.points,
                "training.lr": 1e-3,
                "training.loops": float(self.loops),
            }
            | settings["values"]
            | columns
        )
        self.rows.append(row)
        return key

    def curves_of(self, trial: str, height: float, rate: float, floor: float = 0.02) -> None:
        """Give a trial the curve `height` e^(-`rate` loop) / (1 + point) + `floor`."""
        loop, point = np.meshgrid(np.arange(1, self.longest + 1), np.arange(self.points), indexing="ij")
        error = height * np.exp(-rate * loop) / (1 + point) + floor
        columns = {"loop": loop.ravel(), "point": point.ravel(), "error": error.ravel()}
        self.curve.append(pd.DataFrame({"trial": trial} | columns | {"sem": 0.01, "raw": 2 * error.ravel()}))

    def learn(self, trial: str, end: float) -> None:
        """Give a trial a history of validation errors that falls to `end`."""
        for step in range(0, 1001, 50):
            value = end + np.exp(-step / 200)
            self.history.append({"trial": trial, "step": step, "metric": "error", "value": value})

    def replicated(self, cell: str, middle: float, rate: float = 0.4, runs: int = 3, tries: int = 4) -> None:
        """Add `tries` tuning trials and `runs` replicates whose errors scatter around `middle`."""
        for number, lr in enumerate(np.geomspace(1e-4, 1e-2, tries)):
            error = middle * (1 + np.log10(lr / 1e-3) ** 2)
            self.trial(cell, "tuning", number, error, **{"training.lr": lr})
        for number in range(runs):
            stretch = np.exp(self.noise * self.rng.standard_normal())
            key = self.trial(cell, "replicate", number, middle * stretch)
            self.curves_of(key, 3 * middle * stretch, rate * np.exp(0.05 * self.rng.standard_normal()))
            self.learn(key, middle * stretch)

    @property
    def results(self) -> Results:
        """The planted study as the analysis reads it."""
        return Results(self.study, *self.tables)

    def changed(self, **tables: pd.DataFrame) -> Results:
        """The planted study with other tables: trials, curves or history."""
        return replace(self.results, **tables)

    @property
    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        others = dict.fromkeys(name for row in self.rows for name in row)
        trials = pd.DataFrame(
            self.rows,
            columns=list(dict.fromkeys([*TRIAL_COLUMNS, *PLANTED_MEASURES, *PLANTED_SETTINGS, *others])),
        )
        empty = pd.DataFrame(columns=["trial", "loop", "point", "error", "sem", "raw"])
        curves = pd.concat(self.curve) if self.curve else empty
        return trials, curves, pd.DataFrame(self.history, columns=["trial", "step", "metric", "value"])


def comparison(**options: Any) -> Planted:
    """Three models with replicates, two baselines, and a pruned, a diverged and a failed trial."""
    planted = Planted(**options)
    for label, middle, rate in (("algoformer", 0.12, 0.5), ("looped", 0.2, 0.35), ("gpt2", 0.16, 0.3)):
        cell = planted.cell(f"model.kind={label}", **{"model.kind": label})
        planted.replicated(cell, middle, rate)
    first = planted.study["cells"][0]["key"]
    planted.trial(first, "tuning", 7, np.nan, outcome="diverged", detail="loss is nan at step 40")
    planted.trial(first, "tuning", 8, 0.9, outcome="pruned", detail="rung 300: 6th of 8")
    planted.trial(first, "tuning", 9, np.nan, outcome="failed", detail="KeyError: 'x'")
    for number, (solver, rate) in enumerate((("least_squares", 0.0), ("gradient_descent", 0.6))):
        planted.curves_of(planted.trial("", "baseline", number, 0.1, label=solver), 0.2, rate, 0.03)
    planted.study["laws"] = [
        {"of": "error", "along": "loop", "form": ["power", "exponential"], "theory": None}
    ]
    return planted


def with_every_answer() -> Planted:
    """Two tasks with regret, games, three numbers of loops, tuned settings, comparisons with a solver, and a law.

    Labels have markup, as the label of a person's setting may.
    """
    planted, loops = Planted(), (2, 4, 8)
    for dim in (2, 3):
        for number, count in enumerate(loops):
            values = {"task.dim": dim, "training.loops": float(count), "model.kind": MARKED}
            cell = planted.cell(f"task.dim={dim}, training.loops={count}, model.kind={MARKED}", **values)
            planted.replicated(cell, 0.3 / count, rate=0.2 + 0.1 * number, tries=6)
            for run in range(3):
                key = f"replicate-{cell}-{run}"
                planted.history += [
                    {"trial": key, "step": step, "metric": metric, "value": value}
                    for step in (500, 1000)
                    for metric, value in (("match_newton", step / 100), ("similarity_newton", 0.9))
                ]
        key = planted.trial("", "baseline", dim, 0.1, label="gradient_descent", **{"task.dim": dim})
        planted.curves_of(key, 0.5, 0.3)
    planted.curve = [
        curve.assign(regret=curve["error"] - 0.01, play_regret=1.0 + curve["point"])
        for curve in planted.curve
    ]
    for number, row in enumerate(planted.rows):
        row |= {"regret": row["error"] / 2, "model.width": (8, 16, 32)[number % 3]}
    planted.study["laws"] = [{"of": "error", "along": "loop", "form": "exponential", "theory": None}]
    planted.study["nuisance"] = {"training.lr": {"scale": "log"}, "model.width": {"choice": [8, 16, 32]}}
    return planted


def with_two_objectives() -> Planted:
    """Three models whose search trades error against FLOPs."""
    planted = comparison()
    planted.study["search"] = {"kind": "nsga2", "trials": 4, "objectives": ["error", "flops"]}
    return planted
