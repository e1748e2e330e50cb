"""Two studies beside one another: cells that ask the same, the ratio of their errors, their laws, their settings."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from loopscale.analysis.answers.best import Best, best
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.study_laws import laws
from loopscale.analysis.tables import StudyTable, answers, numbers, settings_of
from loopscale.stats.intervals import PooledVariance, pool, student

Tables = tuple[StudyTable, pd.DataFrame, pd.DataFrame]
"""A study's description, trials and curves."""
Word = Literal["lower", "higher", "not told apart", "no interval", "no answer"]
OF_THE_STUDY = ("search", "scheduler", "replicates", "evaluate", "nuisance", "baselines")
"""What a study's description says beside its cells, and two studies may differ in."""


@dataclass(frozen=True)
class Pair:
    """A cell of the first study and one of the second. `ratio` is the second's error over the first's, of geometric
    means over replicates, so that below 1 the second is better.
    """

    first: Best
    second: Best
    ratio: float | None
    low: float | None
    high: float | None
    word: Word
    """Whether the second's error is lower or higher: the interval of this pair leaves out 1."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Laws:
    """The same law of both studies; `difference` is the second's rate less the first's, with its interval."""

    of: str
    along: str
    first: Law
    second: Law
    difference: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        plain = {"first": self.first.to_dict(), "second": self.second.to_dict()}
        return {name: plain.get(name, getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(frozen=True)
class Comparison:
    names: tuple[str, str]
    questions: tuple[str, str]
    matched: tuple[str, ...]
    """The settings in which the two cells of a pair are the same; empty where nothing matches."""
    pairs: list[Pair]
    alone: tuple[list[str], list[str]]
    """Cells of each study that have no counterpart."""
    laws: list[Laws]
    different: dict[str, tuple[Any, Any]]
    """What all cells of one study have otherwise than all of the other, and what the studies themselves do."""

    @property
    def unlike(self) -> list[str]:
        """What makes the errors of the two studies be of other prompts: differences in task or evaluation."""
        return [path for path in self.different if path.startswith(("task.", "evaluate."))]

    @property
    def how(self) -> str:
        """In words, how cells were matched."""
        if not self.matched:
            return "No cells are the same in what the studies vary, so every cell stands beside every other."
        return f"Cells are matched by {', '.join(self.matched)}."

    def to_dict(self) -> dict[str, Any]:
        plain = {
            "pairs": [pair.to_dict() for pair in self.pairs],
            "laws": [law.to_dict() for law in self.laws],
        }
        return {name: plain.get(name, getattr(self, name)) for name in self.__dataclass_fields__}


def compare(first: Tables, second: Tables) -> Comparison:
    """The second study against the first, which is what it is measured by."""
    sides = (_Side(*first), _Side(*second))
    matched, couples = _couples(*sides)
    pairs = [_pair(*sides, one, other) for one, other in couples]
    used = [{couple[place] for couple in couples} for place in (0, 1)]
    alone = tuple(
        [cell["label"] for cell in side.study["cells"] if cell["key"] not in keys]
        for side, keys in zip(sides, used, strict=True)
    )
    return Comparison(
        names=(sides[0].study["name"], sides[1].study["name"]),
        questions=(sides[0].study.get("question", ""), sides[1].study.get("question", "")),
        matched=matched,
        pairs=pairs,
        alone=(alone[0], alone[1]),
        laws=list(_laws(*(laws(*tables)[0] for tables in (first, second)))),
        different=_different(*sides),
    )


class _Side:
    """One study: its answers by cell, and the noise of its runs, pooled over cells."""

    def __init__(self, study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame) -> None:
        self.study, self.trials = study, trials
        self.answers = {one.cell: one for one in best(trials, study)}
        found = {cell["key"]: answers(trials, cell["key"]) for cell in study["cells"]}
        self.logs = {
            key: np.log(numbers(rows["error"])) if (numbers(rows["error"]) > 0).all() else np.empty(0)
            for key, (rows, _) in found.items()
        }
        self.spread = pool([self.logs[key] for key, (_, replicated) in found.items() if replicated])
        self.settings = {
            key: settings_of(rows.iloc[0]) if len(rows) else {} for key, (rows, _) in found.items()
        }
        self.axes = list(dict.fromkeys(path for cell in study["cells"] for path in cell["values"]))

    def at(self, cell: Mapping[str, Any], paths: Sequence[str]) -> str:
        """Where a cell lies on the axes, its fixed settings included."""
        known = self.settings[cell["key"]] | cell["values"]
        return repr([_plain(known.get(path)) for path in paths])


def _couples(one: _Side, other: _Side) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    """Keys of cells that belong together, and the settings by which: all axes of both, else those in common.

    In all axes of both what one study holds fixed counts as well: a cell that varies in what the other fixes matches
    at that value alone.
    """
    both = list(dict.fromkeys(one.axes + other.axes))
    shared = [path for path in one.axes if path in other.axes]
    for paths in dict.fromkeys((tuple(both), tuple(shared))):
        found = [
            (a["key"], b["key"])
            for a in one.study["cells"]
            for b in other.study["cells"]
            if one.at(a, paths) == other.at(b, paths)
        ]
        if paths and found:
            return paths, found
    return (), [(a["key"], b["key"]) for a, b in itertools.product(one.study["cells"], other.study["cells"])]


def _pair(one: _Side, other: _Side, key: str, its: str) -> Pair:
    left, right = one.spread, other.spread
    first, second, a, b = one.answers[key], other.answers[its], one.logs[key], other.logs[its]
    if not (len(a) and len(b)):
        return Pair(first, second, None, None, None, "no answer")
    gap = float(b.mean() - a.mean())
    ratio = float(np.exp(gap))
    if left is None or right is None or min(first.replicates, second.replicates) < 2:
        return Pair(first, second, ratio, None, None, "no interval")
    half = _half(left, len(a), right, len(b))
    low, high = float(np.exp(gap - half)), float(np.exp(gap + half))
    word: Word = "lower" if high < 1 else "higher" if low > 1 else "not told apart"
    return Pair(first, second, ratio, low, high, word)


def _half(left: PooledVariance, runs: int, right: PooledVariance, its_runs: int) -> float:
    """Half the 95 % interval of a difference of means, each with its own study's pooled noise (Welch 1947)."""
    parts = (left.variance / runs, right.variance / its_runs)
    below = sum(part**2 / spread.freedom for part, spread in zip(parts, (left, right), strict=True))
    freedom = max(1, int(sum(parts) ** 2 / below)) if below > 0 else left.freedom + right.freedom
    return student(freedom) * float(np.sqrt(sum(parts)))


def _laws(ours: Sequence[Law], theirs: Sequence[Law]) -> Iterator[Laws]:
    """Laws of the same measure, axis and remaining settings; of one measure and axis alone where each has one."""
    for law in ours:
        kin = [other for other in theirs if (other.of, other.along) == (law.of, law.along)]
        same = [other for other in kin if other.cell == law.cell]
        lonely = len(kin) == 1 and sum((mine.of, mine.along) == (law.of, law.along) for mine in ours) == 1
        for other in same or (kin if lonely else []):
            yield Laws(law.of, law.along, law, other, other.rate - law.rate, *_between(law, other))


def _between(law: Law, other: Law) -> tuple[float | None, float | None]:
    """The interval of a difference of rates from their own intervals (MOVER; Zou and Donner 2008)."""
    if law.low is None or law.high is None or other.low is None or other.high is None:
        return None, None
    gap = other.rate - law.rate
    below = float(np.hypot(other.rate - other.low, law.high - law.rate))
    above = float(np.hypot(other.high - other.rate, law.rate - law.low))
    return gap - below, gap + above


def _different(one: _Side, other: _Side) -> dict[str, tuple[Any, Any]]:
    ours, theirs = (_constant(side) for side in (one, other))
    skipped = {"training.seed"} | set(one.axes) | set(other.axes) | _tuned(one) | _tuned(other)
    found = {
        path: (ours.get(path), theirs.get(path))
        for path in sorted({*ours, *theirs} - skipped)
        if _plain(ours.get(path)) != _plain(theirs.get(path))
    }
    for name in OF_THE_STUDY:
        mine, its = (_flat(name, side.study.get(name)) for side in (one, other))
        found |= {
            path: (mine.get(path), its.get(path)) for path in mine | its if mine.get(path) != its.get(path)
        }
    for path in dict.fromkeys(one.axes + other.axes):
        values = (_varied(one, path), _varied(other, path))
        if values[0] != values[1]:
            found[path] = values
    return found


def _varied(side: _Side, path: str) -> list[Any]:
    """The values that a setting takes in the study's cells, in their order."""
    values = [_plain((side.settings[cell["key"]] | cell["values"]).get(path)) for cell in side.study["cells"]]
    return [value for place, value in enumerate(values) if value is not None and value not in values[:place]]


def _constant(side: _Side) -> dict[str, Any]:
    """The settings that all cells with an answer have alike."""
    known = [settings for settings in side.settings.values() if settings]
    first = known[0] if known else {}
    return {path: value for path, value in first.items() if all(each.get(path) == value for each in known)}


def _flat(name: str, part: Any) -> dict[str, Any]:
    """What a description says of one part, by dotted path where it has parts of its own."""
    return (
        {f"{name}.{key}": said for key, said in part.items()} if isinstance(part, Mapping) else {name: part}
    )


def _tuned(side: _Side) -> set[str]:
    return set(side.study.get("nuisance") or {})


def _plain(value: Any) -> Any:
    """Numbers as numbers: a column with gaps holds whole ones as floats."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
