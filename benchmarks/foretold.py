"""Does a plan know which nets will learn? Each recorded study is left out, and foretold from all other studies.

`python benchmarks/foretold.py` prints scores and a reliability table of three rules, over the studies below
`notebooks/data`. A forecast is the chance that all replicates of a cell learn within the steps of the study. The first
rule takes the share of learnt runs of the same task and model, to the power of the replicates. The second one is the
model of the step of emergence (`loopscale.stats.emergence_times`) without covariates. The third one is the rule of
`loopscale plan`, with dimension, condition number and T.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from scipy.stats import beta

from loopscale.analysis.answers.noise import exported_studies, recorded_cells
from loopscale.foresight.learning_times import EmergenceTable, PlannedRuns, RecordedCell
from loopscale.foresight.recipes import USUAL

DATA = Path(__file__).parents[1] / "notebooks" / "data"
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.0)
LEAST = 0.01
"""A forecast for the log score is at least this and at most 1 minus this."""
Foretell = Callable[[Sequence[RecordedCell], Sequence[RecordedCell]], list[float]]


@dataclass(frozen=True)
class Forecast:
    """One rule's chance that all replicates of a cell learn, and what came."""

    rule: str
    chance: float
    learnt: bool


def by_share(others: Sequence[RecordedCell], cells: Sequence[RecordedCell]) -> list[float]:
    """The share of learnt runs of the task and model, else of the task, else of all, to the power of the replicates."""
    chances = list[float]()
    for cell in cells:
        kinds = (lambda each: (each.task, each.model)), (lambda each: each.task), (lambda _: None)
        like = next(
            found for kind in kinds if (found := [each for each in others if kind(each) == kind(cell)])
        )
        ends = [by for each in like for _, by in each.runs]
        chances.append((sum(map(math.isfinite, ends)) / len(ends)) ** len(cell.runs))
    return chances


def by_plan(others: Sequence[RecordedCell], cells: Sequence[RecordedCell]) -> list[float]:
    """The chances of `loopscale plan`."""
    table = EmergenceTable.of(others, {cell.task for cell in cells})
    return [
        table.chance_that_all_learn(
            [
                PlannedRuns(
                    cell.label,
                    cell.task,
                    cell.model,
                    cell.steps,
                    len(cell.runs),
                    cell.recipe,
                    cell.covariates,
                )
            ]
        )
        for cell in cells
    ]


def without_covariates(others: Sequence[RecordedCell], cells: Sequence[RecordedCell]) -> list[float]:
    """The chances of `loopscale plan`, if all cells had the same dimension, condition number and T."""
    usual = [[replace(cell, covariates=USUAL) for cell in group] for group in (others, cells)]
    return by_plan(usual[0], usual[1])


RULES: dict[str, Foretell] = {
    "share of learnt runs": by_share,
    "step of emergence": without_covariates,
    "with dimension, κ and T (`plan`)": by_plan,
}


def foretell(study: str, recorded: Sequence[RecordedCell]) -> list[Forecast]:
    """All forecasts of a study's cells on tasks that other studies have recorded."""
    others = [cell for cell in recorded if cell.study != study]
    known = {cell.task for cell in others}
    cells = [cell for cell in recorded if cell.study == study and cell.task in known]
    came = [all(math.isfinite(by) for _, by in cell.runs) for cell in cells]
    return [
        Forecast(rule, chance, learnt)
        for rule, of in RULES.items()
        for chance, learnt in zip(of(others, cells) if cells else [], came, strict=True)
    ]


def scores(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """The mean Brier and log scores of each rule; lower is better."""
    yield "| rule | cells | Brier score | log score |"
    yield "| --- | --- | --- | --- |"
    for rule in RULES:
        chance, learnt = _arrays(forecasts, rule)
        safe = np.clip(chance, LEAST, 1 - LEAST)
        logs = -np.log(np.where(learnt, safe, 1 - safe))
        yield f"| {rule} | {len(chance)} | {np.mean((chance - learnt) ** 2):.3f} | {logs.mean():.3f} |"


def reliability(forecasts: Sequence[Forecast]) -> Iterator[str]:
    """For each range of forecasts: cells, mean forecast, and share of cells that learnt with its 95 % interval."""
    yield "| forecast | " + " | ".join(RULES) + " |"
    yield "| --- " * (1 + len(RULES)) + "|"
    for low, high in pairwise(EDGES):
        row = list[str]()
        for rule in RULES:
            chance, learnt = _arrays(forecasts, rule)
            inside = (chance >= low) & ((chance < high) | (high == EDGES[-1]))
            count, hits = int(inside.sum()), int(learnt[inside].sum())
            if not count:
                row.append("–")
                continue
            ends = beta.ppf(
                [0.025, 0.975], [hits or 1e-9, hits + 1], [count - hits + 1, count - hits or 1e-9]
            )
            row.append(
                f"{100 * chance[inside].mean():.0f} → {100 * hits / count:.0f} % "
                f"({100 * ends[0]:.0f} to {100 * ends[1]:.0f}) of {count}"
            )
        yield f"| {100 * low:.0f} to {100 * high:.0f} % | " + " | ".join(row) + " |"


def _arrays(forecasts: Sequence[Forecast], rule: str) -> tuple[np.ndarray, np.ndarray]:
    mine = [each for each in forecasts if each.rule == rule]
    return np.array([each.chance for each in mine]), np.array([each.learnt for each in mine])


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder of exported studies")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args()
    recorded = [cell for results in exported_studies(chosen.data) for cell in recorded_cells(results)]
    studies = sorted({cell.study for cell in recorded})
    with Pool(chosen.workers) as pool:
        found = pool.starmap(foretell, [(study, recorded) for study in studies], chunksize=1)
    forecasts = [forecast for of_study in found for forecast in of_study]
    print(f"{len(studies)} studies\n")
    print("\n".join(scores(forecasts)), "\n")
    print("\n".join(reliability(forecasts)))


if __name__ == "__main__":
    main()
