"""What a paper says of its nets, held against a study: a ratio of errors with its interval, and a verdict.

A claim that one cell is better than another, or than a classical algorithm, is a ratio below 1. It holds where the
whole 95 % interval lies below 1, does not hold where it lies above, and is undecided in between. The noise between
seeds is that of `intervals`: learnt from all cells of the study, on the log scale; two cells are compared seed by seed.
An algorithm has no seed, and is measured on the same prompts.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from loopscale.analysis.laws.verdict import MOST
from loopscale.analysis.tables import (
    Query,
    StudyTable,
    answers,
    baselines_of,
    curve_at,
    error_after,
    json_key,
    loop_of,
    numbers,
    plain,
    solver_name,
)
from loopscale.stats.intervals import PooledVariance, paired, pool, student

LITTLE = 1.25
"""Up to this factor an error that is run on beyond T has stayed where it was."""
SINGLE = "fewer than two replicates"
Word = Literal["holds", "does not hold", "undecided", "not run"]


@runtime_checkable
class Records(Protocol):
    """A study's tables; a `Reading` is one."""

    @property
    def study(self) -> StudyTable: ...
    @property
    def trials(self) -> pd.DataFrame: ...
    @property
    def curves(self) -> pd.DataFrame: ...


@dataclass(frozen=True)
class Claim:
    """`ratio` of two errors, the first over the second, with its interval: `None` where there is none, for `why`."""

    says: str
    first: str
    second: str
    ratio: float | None
    low: float | None
    high: float | None
    word: Word
    replicates: int | None = None
    """How many would decide what is undecided, were the ratio what it seems: up to 1,000, and of each cell compared.

    `None` where there is no interval to learn that from.
    """
    why: str = ""
    """Why a ratio has no interval."""

    @property
    def text(self) -> str:
        """In words."""
        if self.ratio is None:
            return f"{self.says}: not run."
        span = f"no interval: {self.why}" if self.low is None else f"{self.low:.3g} to {self.high:.3g}"
        said = f"{self.says}: {self.word}. {self.first} has {self.ratio:.3g} ({span}) times the error of {self.second}."
        return f"{said} About {self.replicates:,} replicates would decide it." if self.replicates else said


def better(
    records: Records, says: str, first: Mapping[str, Any], second: Mapping[str, Any], of: str = "error"
) -> Claim:
    """Whether the cell of the settings `first` has less error at T than that of `second`; or less of the measure `of`.

    Settings are by dotted path, and have to name one cell each. Raises ValueError where they do not, or where a trial
    has not the measure, or not as a positive number.
    """
    cells = [_cell(records.study, settings)["key"] for settings in (first, second)]
    labels = [_told(settings) for settings in (first, second)]
    trials = [len(answers(records.trials, cell)[0]) for cell in cells]
    if not all(trials):
        return Claim(says, *labels, None, None, None, "not run")
    logs = _by_seed(records, of)
    mine, theirs = (logs.loc[cell].to_numpy() for cell in cells)
    if [np.isfinite(each).sum() for each in (mine, theirs)] != trials:
        raise ValueError(
            f"no ratio is to be had of {of}: some trials of {records.study['name']} have none above 0"
        )
    shared = np.isfinite(mine) & np.isfinite(theirs)
    # A single trial somewhere, or replicates of different seeds, have a ratio without an interval.
    if shared.sum() < 2:
        why = SINGLE if min(trials) < 2 else "fewer than two replicates of the same seeds"
        return _claim(
            says, *labels, float(np.nanmean(mine) - np.nanmean(theirs)), None, int(shared.sum()), why
        )
    difference = (mine - theirs)[shared]
    spread = paired(logs.to_numpy())
    half = math.sqrt(2 / len(difference)) * _scale(spread) if spread else None
    return _claim(says, *labels, float(difference.mean()), half, len(difference))


def beats(
    records: Records,
    says: str,
    settings: Mapping[str, Any],
    solver: str,
    step: int | None = None,
    query: Query = "mean",
) -> Claim:
    """Whether the cell of these settings has less error than a classical algorithm after as many steps.

    By default after T, else after `step` of either; over all queries, or of the last one alone. The noise is that of
    all cells, each after its own T; after a `step`, of those that were trained for it, and beyond T of those that were
    run on as far. Raises ValueError for settings that name no cell.
    """
    cell, label = _cell(records.study, settings), _told(settings)
    rows, replicated = answers(records.trials, cell["key"])
    found = [
        row for _, row in (baselines_of(records.trials, rows.iloc[0]) if len(rows) else rows).iterrows()
        if solver_name(row) == solver.replace("_", " ")
    ]  # fmt: skip
    name = solver.replace("_", " ")
    if not found:
        return Claim(says, label, name, None, None, None, "not run")
    at = step or loop_of(rows.iloc[0], curve_at(records.curves, rows.iloc[0]["trial"]))
    name = f"{name} after {at} steps"
    theirs = _at(records.curves, found[0]["trial"], at, query)
    mine = [_at(records.curves, trial, at, query) for trial in rows["trial"]]
    spread = pool([np.log(each) for each in _curves_at(records, cell["key"], step, query)])
    several = replicated and len(mine) > 1
    half = _scale(spread) / math.sqrt(len(mine)) if spread and several else None
    why = "the noise between replicates is not known there" if several else SINGLE
    return _claim(says, label, name, float(np.mean(np.log(mine)) - math.log(theirs)), half, len(mine), why)


def table(claims: Sequence[Claim]) -> pd.DataFrame:
    """The claims one below the other: what is said, the ratio with its interval, the verdict, and how many replicates
    would decide what is undecided.
    """
    rows = [
        {
            "claim": one.says, "ratio": one.ratio, "low": one.low, "high": one.high, "verdict": one.word,
            "decided by": one.replicates, "of": one.first, "over": one.second,
        }
        for one in claims
    ]  # fmt: skip
    kinds = {"ratio": float, "low": float, "high": float, "decided by": "Int64"}
    return pd.DataFrame(rows).set_index("claim").astype(kinds)


def run_on(records: Records, times: int | float = 5) -> pd.DataFrame:
    """What becomes of every looped cell's error when it runs `times` as many loops as it was trained for.

    A line a cell: the error at T, how many loops it was run for (fewer where the study evaluated fewer), the error
    there, their ratio with its interval, and whether the error stays (the interval within a factor of 1.25), grows or
    falls. The noise of the ratio is pooled over cells on the log scale. Where a replicate overflowed the ratio is
    inf, and the error grows.
    """
    found = list(_run_on(records, times))
    logs = [np.log(ratio) for *_, ratio in found]
    spread = pool([log for log in logs if np.isfinite(log).all()])
    rows = []
    for (cell, first, then, loops, _), log in zip(found, logs, strict=True):
        middle = float(np.exp(log.mean())) if np.isfinite(log).all() else math.inf
        half = spread.half_width(len(log)) if spread and len(log) > 1 and math.isfinite(middle) else None
        low, high = (None, None) if half is None else (middle * math.exp(-half), middle * math.exp(half))
        rows.append({
            "cell": cell["label"], "at T": float(np.mean(first)), "loops": loops, "there": float(np.mean(then)),
            "ratio": middle, "low": low, "high": high, "verdict": _course(middle, low, high),
        })  # fmt: skip
    columns = ["cell", "at T", "loops", "there", "ratio", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index("cell")


def beside(records: Records, solver: str) -> pd.DataFrame:
    """Every cell's error over that of a classical algorithm, after each step up to T.

    A line a cell and step: `cell`, `step`, `ratio`, `low`, `high`; the noise pooled over cells at each step.
    """
    rows = []
    for cell in records.study["cells"]:
        mine, _ = answers(records.trials, cell["key"])
        for step in range(1, _last(records, mine) + 1):
            claim = beats(records, "", cell["values"], solver, step)
            rows.append({
                "cell": cell["label"], "step": step, "ratio": claim.ratio, "low": claim.low, "high": claim.high,
                "verdict": {"holds": "better", "does not hold": "worse"}.get(claim.word, claim.word),
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["cell", "step", "ratio", "low", "high", "verdict"])


def _run_on(
    records: Records, times: int | float
) -> Iterator[tuple[Mapping[str, Any], np.ndarray, np.ndarray, int, np.ndarray]]:
    for cell in records.study["cells"]:
        rows, _ = answers(records.trials, cell["key"])
        rows = rows[rows["trial"].isin(records.curves["trial"])]
        if rows.empty or pd.isna(rows.iloc[0].get("training.loops")):
            continue
        loops = int(rows.iloc[0]["training.loops"])
        last = min(round(times * loops), int(curve_at(records.curves, rows.iloc[0]["trial"])["loop"].max()))
        first = np.array([_at(records.curves, trial, loops) for trial in rows["trial"]])
        then = np.array([_at(records.curves, trial, last) for trial in rows["trial"]])
        then = np.where(np.isnan(then), np.inf, then)
        yield cell, first, then, last, then / first


def _course(ratio: float, low: float | None, high: float | None) -> str:
    if math.isinf(ratio):
        return "grows"
    if low is None or high is None:
        return "undecided"
    if low > 1 / LITTLE and high < LITTLE:
        return "stays"
    return "grows" if low > 1 else "falls" if high < 1 else "undecided"


def _claim(
    says: str, first: str, second: str, difference: float, half: float | None, replicates: int, why: str = ""
) -> Claim:
    ratio = math.exp(difference)
    if half is None:
        return Claim(says, first, second, ratio, None, None, "undecided", why=why)
    low, high = math.exp(difference - half), math.exp(difference + half)
    if high < 1 or low > 1:
        return Claim(says, first, second, ratio, low, high, "holds" if high < 1 else "does not hold")
    # An interval shrinks with the root of the replicates; Student's t shrinks as well, which is not counted on.
    needed = replicates * (half / difference) ** 2 if difference else math.inf
    return Claim(
        says, first, second, ratio, low, high, "undecided", math.ceil(needed) if needed <= MOST else None
    )


def _scale(spread: PooledVariance | None) -> float:
    return student(spread.freedom) * math.sqrt(spread.variance) if spread else math.nan


def _by_seed(records: Records, of: str) -> pd.DataFrame:
    """The logarithm of a measure, a row a cell, a column a seed; NaN without such a trial, or with nothing above 0."""
    rows = {}
    for cell in records.study["cells"]:
        mine, _ = answers(records.trials, cell["key"])
        rows[cell["key"]] = dict(
            zip(mine["seed"], numbers(mine[of] if of in mine else [0.0] * len(mine)), strict=True)
        )
    found = pd.DataFrame.from_dict(rows, orient="index", dtype=float)
    return np.log(found.where(found > 0))


def _curves_at(records: Records, own: str, step: int | None, query: Query) -> Iterator[np.ndarray]:
    """The replicates' errors after a step, else T, cell by cell, where all have some; of the cell `own` always."""
    beyond = step is not None and step > _last(records, answers(records.trials, own)[0])
    for cell in records.study["cells"]:
        rows, replicated = answers(records.trials, cell["key"])
        reach = _recorded if beyond else _last
        if not replicated or (step is not None and cell["key"] != own and reach(records, rows) < step):
            continue
        at = step or _last(records, rows)
        errors = np.array([_at(records.curves, trial, at, query) for trial in rows["trial"]])
        if np.isfinite(errors).all() and (errors > 0).all():
            yield errors


def _last(records: Records, rows: pd.DataFrame) -> int:
    return loop_of(rows.iloc[0], curve_at(records.curves, rows.iloc[0]["trial"])) if len(rows) else 0


def _recorded(records: Records, rows: pd.DataFrame) -> int:
    """The last loop that a cell was evaluated at, T or beyond."""
    return int(curve_at(records.curves, rows.iloc[0]["trial"])["loop"].max()) if len(rows) else 0


def _at(curves: pd.DataFrame, trial: str, step: int, query: Query = "mean") -> float:
    return error_after(curve_at(curves, trial), step, query)


def _cell(study: StudyTable, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = _flat(settings)
    found = [
        cell
        for cell in study["cells"]
        if all(json_key({"": plain(_flat(cell["values"]).get(path))}) == json_key({"": plain(value)})
               for path, value in wanted.items())
    ]  # fmt: skip
    if len(found) == 1:
        return found[0]
    known = "; ".join(cell["label"] for cell in study["cells"])
    raise ValueError(f"{_told(settings)} names {len(found)} cells of {study['name']}; there are {known}")


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A cell's values by dotted path: a component on an axis is taken apart."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{above}{name}"
        flat |= _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return flat


def _told(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        str(value) if path.endswith("kind") else f"{path.rpartition('.')[2]} = {value}"
        for path, value in _flat(settings).items()
    )
