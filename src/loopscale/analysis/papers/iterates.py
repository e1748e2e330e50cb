"""A study's trained nets, step by step, beside the iterates of solvers: the tables of Fu et al. 2023, section 4.

A row of `similarities` is one pair of a step and an iterate; `matches` and `trends` are made from it. A looped net
answers through its own read-out, which was trained on many loops; a net of fixed depth, whose read-out knows the last
layer alone, through one for every layer, trained afterwards as in the paper.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
# pyright: reportReturnType=false, reportCallIssue=false

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.papers.probing import Target, probed, read_through, the_weights
from loopscale.analysis.papers.similarity import ask, best_matches, cosines, induced_weights, residuals, table
from loopscale.analysis.papers.trend import LEAST, trend
from loopscale.analysis.trained_nets import TrainedNet
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.stats.intervals import student
from loopscale.tasks.base import Task

Iterates = Sequence[tuple[str | Mapping[str, Any], int]]
"""Solvers, each by its kind or as a study writes it, with how many of its iterates are wanted."""
BY = ["cell", "replicate", "solver"]


def similarities(
    results: StudyResults, solvers: Iterates, of: str = "errors", prompts: int = 256
) -> pd.DataFrame:
    """Columns cell, replicate, solver, step, iterate, similarity: of `errors`, or of induced `weights`.

    Errors are compared over `prompts` fresh prompts, weights over an eighth as many problems, each asked at random
    inputs after all of its pairs but the last. No rows for a study that has not been run. Raises ValueError for another
    `of`, StoreError where the nets' weights are not to be had.
    """
    if of not in ("errors", "weights"):
        raise ValueError(f"no similarity of {of}; write errors or weights")
    rows, known = [], dict[tuple[str, str], Tensor]()
    for cell, number, one in _nets(results):
        task = one.trial.task
        mine = _vectors(_predictor(one), task, of, prompts, _steps(one))
        for solver, iterates in _solvers(solvers):
            place = (solver.model_dump_json(), task.model_dump_json())
            if place not in known:
                known[place] = _vectors(solver, task, of, prompts, iterates)
            similar = table(cosines(mine, known[place]))
            rows.append(similar.assign(cell=cell, replicate=number, solver=_name(solver)))
    columns = [*BY, "step", "iterate", "similarity"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)


def errors(results: StudyResults, solvers: Iterates, prompts: int = 1024) -> pd.DataFrame:
    """Columns cell, replicate, step, error: of the nets by step, and of solvers (replicate 0), mean over all queries.

    On fresh prompts, the same for all; over the target's variance, so that predicting nothing costs 1.
    """
    rows, tasks = [], dict[str, Task]()
    for cell, number, one in _nets(results):
        tasks[one.trial.task.model_dump_json()] = one.trial.task
        rows.append(
            _error(_predictor(one), one.trial.task, prompts, _steps(one)).assign(cell=cell, replicate=number)
        )
    for task in tasks.values():
        rows += [
            _error(solver, task, prompts, many).assign(cell=_name(solver), replicate=0)
            for solver, many in _solvers(solvers)
        ]
    columns = ["cell", "replicate", "step", "error"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)


def held(results: StudyResults, target: Target = the_weights, prompts: int = 512) -> pd.DataFrame:
    """Columns cell, replicate, step, error: what a probe of each step's state misses of the target, on fresh prompts.

    Over the target's mean square, so that reading nothing costs 1. The default target is the weights that least squares
    gives on the pairs seen.
    """
    rows = [
        probed(one.net, one.trial.task, target, _steps(one), prompts).assign(cell=cell, replicate=number)
        for cell, number, one in _nets(results)
    ]
    columns = ["cell", "replicate", "step", "error"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)


def matches(similar: pd.DataFrame) -> pd.DataFrame:
    """The iterate that every step of every net is most like; columns as in `similarities`, and `last`."""
    return best_matches(similar, BY)


def trends(similar: pd.DataFrame, least: float = LEAST) -> pd.DataFrame:
    """A row for every cell and solver: the trend of the best-matching step over replicates.

    trend: linear, exponential, none or undecided, and why. rate, low, high: iterates a step where it is linear, and the
    factor from step to step where it is exponential, with the 95 % interval over replicates (Student's t; none for
    fewer than two). similarity: at the match, the mean over steps and replicates. from, to: the steps fitted, or 0.
    """
    rows = []
    for (cell, solver), group in matches(similar).groupby(["cell", "solver"], sort=False):
        said = trend(group, least)
        rate, ends = np.nan, (np.nan, np.nan)
        if said.fit:
            rate, ends = said.fit.rate, said.fit.interval or ends
            if said.kind == "exponential":
                rate, ends = np.exp(rate), tuple(np.exp(ends))
        span = (said.steps[0], said.steps[-1]) if said.steps else (0, 0)
        rows.append(
            (
                cell,
                solver,
                said.kind,
                rate,
                *ends,
                group["similarity"].mean(),
                *span,
                said.replicates,
                said.why,
            )
        )
    columns = [
        "cell",
        "solver",
        "trend",
        "rate",
        "low",
        "high",
        "similarity",
        "from",
        "to",
        "replicates",
        "why",
    ]
    return pd.DataFrame(rows, columns=columns).set_index(["cell", "solver"])


def gains(errors: pd.DataFrame) -> pd.DataFrame:
    """By cell, what its last step leaves of its first step's error: a factor, with the interval over replicates.

    Student's t on the logarithm of every replicate's factor; no interval for fewer than two. No rows for solvers.
    """
    rows = []
    for cell, group in errors[errors["replicate"] > 0].groupby("cell", sort=False):
        curves = [
            one.sort_values("step")["error"].to_numpy(np.float64) for _, one in group.groupby("replicate")
        ]
        logs = np.array([np.log(one[-1] / one[0]) for one in curves])
        ends = (np.nan, np.nan)
        if len(logs) > 1:
            half = student(len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
            ends = tuple(np.exp([logs.mean() - half, logs.mean() + half]))
        rows.append((cell, float(np.exp(logs.mean())), *ends, int(group["step"].max()), len(logs)))
    return pd.DataFrame(rows, columns=["cell", "factor", "low", "high", "steps", "replicates"]).set_index(
        "cell"
    )


def _nets(results: StudyResults) -> Iterator[tuple[str, int, TrainedNet]]:
    """The cell's label, the number of the replicate from 1, and the net; a tuned net if a cell has no replicates."""
    for cell in results.cells if not results.missing else ():
        for number, net in enumerate(results.nets(cell.key), 1):
            yield cell.label, number, net


def _solvers(solvers: Iterates) -> Iterator[tuple[Solver, int]]:
    for named, many in solvers:
        yield Solver.model_validate({"kind": named} if isinstance(named, str) else named), many


def _name(solver: Solver) -> str:
    return solver.kind.replace("_", " ")


def _steps(one: TrainedNet) -> int:
    return one.trial.steps_per_prompt


def _predictor(one: TrainedNet) -> Predictor:
    return one.net if one.net.depth is None else read_through(one.net, one.trial.task, _steps(one))


def _vectors(predictor: Predictor, task: Task, of: str, prompts: int, steps: int) -> Tensor:
    if of == "errors":
        return residuals(predictor, _prompts(task, prompts), steps)
    return induced_weights(predictor, ask(task, stream("induced weights"), max(1, prompts // 8)), steps)


@torch.no_grad()
def _error(predictor: Predictor, task: Task, prompts: int, steps: int) -> pd.DataFrame:
    batch = _prompts(task, prompts)
    square = residuals(predictor, batch, steps).square().mean((1, 2)) / task.variance
    return pd.DataFrame({"step": range(1, steps + 1), "error": square.numpy()})


def _prompts(task: Task, prompts: int) -> Batch:
    return task.sample(prompts, stream("second order"))
