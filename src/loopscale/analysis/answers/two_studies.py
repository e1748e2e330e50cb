"""Two studies side by side: ratios of errors of matching cells, differences of laws, and differing settings."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from loopscale.analysis.answers.best_cells import Best, best
from loopscale.analysis.answers.comparisons import (
    READERS_VERDICTS,
    Comparison,
    compare_studies,
    correction_notes,
)
from loopscale.analysis.laws.law import Law, study_laws
from loopscale.analysis.laws.words import law_name
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.analysis.table import Column, Interval, number
from loopscale.core.titles import readable

PARTS_OF_STUDY = ("search", "scheduler", "replicates", "evaluate", "nuisance", "baselines")
"""The parts of a study's description that are compared, besides the cells."""
MOST_NAMED = 5
"""The largest number of settings named in a sentence. The table of differences has all of them."""


@dataclass(frozen=True)
class Pair:
    """A cell of the first study and a cell of the second."""

    first: Best
    second: Best
    comparison: Comparison
    """The ratio of the second error to the first. `less` means that the second study is better."""

    @property
    def ratio(self) -> float | None:
        return self.comparison.ratio

    def to_dict(self) -> dict[str, Any]:
        return {"first": self.first.to_dict(), "second": self.second.to_dict()} | self.comparison.to_dict()


PAIR_COLUMNS: list[Column[Pair]] = [
    Column(("first",), "first", lambda pair: pair.first.label or "(the only cell)"),
    Column(("second",), "second", lambda pair: pair.second.label or "(the only cell)"),
    Column(("first_error",), "error of the first", lambda pair: pair.first.error, leaves=True),
    Column(("second_error",), "error of the second", lambda pair: pair.second.error, leaves=True),
    Column.attribute("ratio"),
    Column(("low", "high"), "95 % interval", lambda pair: pair.comparison.interval),
    Column(("word",), "verdict on the second", lambda pair: pair.comparison.verdict_in_words),
    Column(("alone",), "alone", lambda pair: pair.comparison.alone, leaves=True),
]


@dataclass(frozen=True)
class LawPair:
    """The same law in both studies. `difference` is the second rate minus the first, `low` and `high` its interval."""

    of: str
    along: str
    first: Law
    second: Law
    difference: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        laws = {"first": self.first.to_dict(), "second": self.second.to_dict()}
        return {name: laws.get(name, getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def name(self) -> str:
        return law_name(self.first)


LAW_PAIR_COLUMNS: list[Column[LawPair]] = [
    Column(("name",), "law", lambda pair: pair.name),
    Column(("first_rate",), "rate of the first", lambda pair: pair.first.rate, leaves=True),
    Column(
        ("first_low", "first_high"),
        "95 % interval",
        lambda pair: Interval.of(pair.first.low, pair.first.high),
        leaves=True,
    ),
    Column(("second_rate",), "rate of the second", lambda pair: pair.second.rate, leaves=True),
    Column(
        ("second_low", "second_high"),
        "95 % interval",
        lambda pair: Interval.of(pair.second.low, pair.second.high),
        leaves=True,
    ),
    Column.attribute("difference"),
    Column.interval("low", "high"),
]


@dataclass(frozen=True)
class TwoStudies:
    """Two studies side by side."""

    names: tuple[str, str]
    questions: tuple[str, str]
    matched: tuple[str, ...]
    """The settings in which the two cells of a pair agree; empty if no cells match."""
    pairs: list[Pair]
    alone: tuple[list[str], list[str]]
    """For each study, the labels of the cells without a counterpart."""
    laws: list[LawPair]
    lowest: tuple[Best | None, Best | None]
    """The cell of lowest error of each study, over all its cells, matched or not; None without an answer."""
    different: dict[str, tuple[Any, Any]]
    """The two values by setting, for all differences between the studies: constant settings, parts (for instance
    `search`), and values of the axes."""

    @property
    def unlike(self) -> list[str]:
        """Differences in task or evaluation. They mean that the errors of the studies come from different prompts."""
        return [path for path in self.different if path.startswith(("task.", "evaluate."))]

    @property
    def how(self) -> str:
        """How cells were matched, in words."""
        if not self.matched:
            return "No two cells agree in the varied settings, so every cell is compared with every other."
        return f"Cells are matched by {', '.join(self.matched)}."

    @property
    def correction(self) -> list[str]:
        """Sentences for how many comparisons the verdicts are corrected."""
        return correction_notes(pair.comparison for pair in self.pairs)

    @cached_property
    def sentences(self) -> list[str]:
        """The answer in words."""
        return list(_sentences(self))

    def to_dict(self) -> dict[str, Any]:
        lists = {
            "pairs": [pair.to_dict() for pair in self.pairs],
            "laws": [law.to_dict() for law in self.laws],
            "lowest": [answer and answer.to_dict() for answer in self.lowest],
        }
        return {name: lists.get(name, getattr(self, name)) for name in self.__dataclass_fields__}


def compare(first: Results, second: Results, names: tuple[str, str] | None = None) -> TwoStudies:
    """The second study compared with the first, whose errors are the denominators of the ratios.

    `names` are the names in texts, by default those of the studies.
    """
    matched, couples = _couples(first, second)
    answers = [{answer.cell: answer for answer in best(results)} for results in (first, second)]
    compared = compare_studies((second, first), [(b, a) for a, b in couples])
    pairs = [
        Pair(answers[0][a.key], answers[1][b.key], comparison)
        for (a, b), comparison in zip(couples, compared, strict=True)
    ]
    used = [{couple[side].key for couple in couples} for side in (0, 1)]
    alone = [
        [cell.label for cell in results.cells if cell.key not in keys]
        for results, keys in zip((first, second), used, strict=True)
    ]
    laws = [study_laws(results)[0] for results in (first, second)]
    return TwoStudies(
        names=names or (first.name, second.name),
        questions=(first.study.get("question", ""), second.study.get("question", "")),
        matched=matched,
        pairs=pairs,
        alone=(alone[0], alone[1]),
        laws=list(_law_pairs(*laws)),
        lowest=(_lowest(answers[0].values()), _lowest(answers[1].values())),
        different=_differences(first, second),
    )


def _sentences(studies: TwoStudies) -> Iterator[str]:
    first, second = studies.names
    known = [pair for pair in studies.pairs if pair.ratio is not None]
    if not known:
        yield f"No cell of {second} can be compared with one of {first} yet: too little has finished."
        return
    if studies.unlike:
        named = ", ".join(studies.unlike[:MOST_NAMED]) + (", .." if len(studies.unlike) > MOST_NAMED else "")
        yield (
            f"The studies differ in task or evaluation ({named}). Their errors describe different prompts, so the"
            " ratios do not compare the cells alone."
        )
    if len(known) == 1:
        compared = known[0].comparison
        verdict = "" if compared.verdict == "no interval" else f": {compared.verdict_in_words}"
        verdict += f", {compared.plateau}" if compared.verdict == "not learnt" else ""
        yield f"The error of {second} is {compared.span} times the error of {first}{verdict}."
    else:
        words = (
            *("less", "more", "learns more often", "learns less often"),
            *("undecided", "not learnt", "no interval"),
        )
        counts = {word: sum(pair.comparison.verdict == word for pair in known) for word in words}
        summary = ", ".join(
            f"{READERS_VERDICTS.get(word, word)} in {count}" for word, count in counts.items() if count
        )
        yield f"Of {len(known)} pairs of cells, {second} beside {first} is: {summary}."
    errors = [
        f"{name} {best.words}" + (f" by {readable(best.label)}" if best.label else "")
        for name, best in zip(studies.names, studies.lowest, strict=True)
        if best
    ]
    yield f"Lowest error: {'; '.join(errors)}."
    for law in studies.laws:
        rates = f"{number(law.first.rate)} in {first}, {number(law.second.rate)} in {second}"
        yield f"Rate of {law.name.replace('_', ' ')}: {rates}; {_rates_differ(law.low, law.high)}."


def _lowest(answers: Iterable[Best]) -> Best | None:
    known = [answer for answer in answers if answer.error is not None]
    return min(known, key=lambda answer: answer.error or 0.0, default=None)


def _rates_differ(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "there is no interval of the difference"
    return "undecided whether they differ" if low <= 0 <= high else "they differ"


def _couples(first: Results, second: Results) -> tuple[tuple[str, ...], list[tuple[CellResult, CellResult]]]:
    """The settings that match cells, and the matching cells. Without matches, all pairs of cells.

    The settings are all axes of both studies or, if no cells match in them, the shared axes. If one study fixes an
    axis of the other, cells match at the fixed value only.
    """
    axes = [_axes(results) for results in (first, second)]
    shared = [path for path in axes[0] if path in axes[1]]
    for paths in dict.fromkeys((tuple(dict.fromkeys(axes[0] + axes[1])), tuple(shared))):
        couples = [(a, b) for a in first.cells for b in second.cells if _place(a, paths) == _place(b, paths)]
        if paths and couples:
            return paths, couples
    return (), list(itertools.product(first.cells, second.cells))


def _axes(results: Results) -> list[str]:
    return list(dict.fromkeys(path for cell in results.cells for path in cell.values))


def _settings(cell: CellResult) -> dict[str, Any]:
    """All settings of a cell, the fixed ones included if the cell has an answer."""
    return dict(cell.runs[0].settings if cell.runs else {}) | dict(cell.values)


def _place(cell: CellResult, paths: Sequence[str]) -> str:
    settings = _settings(cell)
    return repr([_number(settings.get(path)) for path in paths])


def _law_pairs(first: Sequence[Law], second: Sequence[Law]) -> Iterator[LawPair]:
    """Laws of the same measure, axis and cell. If each study has one law of the measure and axis, cells may differ."""
    for law in first:
        alike = [other for other in second if (other.of, other.along) == (law.of, law.along)]
        same = [other for other in alike if other.cell == law.cell]
        single = len(alike) == 1 and sum((one.of, one.along) == (law.of, law.along) for one in first) == 1
        for other in same or (alike if single else []):
            ends = _interval_of_difference(law, other)
            yield LawPair(law.of, law.along, law, other, other.rate - law.rate, *ends)


def _interval_of_difference(law: Law, other: Law) -> tuple[float | None, float | None]:
    """The interval of a difference of rates from the two intervals (MOVER; @zou2008)."""
    if law.low is None or law.high is None or other.low is None or other.high is None:
        return None, None
    difference = other.rate - law.rate
    below = float(np.hypot(other.rate - other.low, law.high - law.rate))
    above = float(np.hypot(other.high - other.rate, law.rate - law.low))
    return difference - below, difference + above


def _differences(first: Results, second: Results) -> dict[str, tuple[Any, Any]]:
    both = (first, second)
    constants = [_constant_settings(results) for results in both]
    varied = {path for results in both for path in (*_axes(results), *results.tuned)} | {"training.seed"}
    different = {
        path: (constants[0].get(path), constants[1].get(path))
        for path in sorted({*constants[0], *constants[1]} - varied)
        if _number(constants[0].get(path)) != _number(constants[1].get(path))
    }
    for name in PARTS_OF_STUDY:
        parts = [_by_path(name, results.study.get(name)) for results in both]
        for path in parts[0] | parts[1]:
            if parts[0].get(path) != parts[1].get(path):
                different[path] = (parts[0].get(path), parts[1].get(path))
    for path in dict.fromkeys(_axes(first) + _axes(second)):
        values = (_values(first, path), _values(second, path))
        if values[0] != values[1]:
            different[path] = values
    return different


def _values(results: Results, path: str) -> list[Any]:
    """The distinct values of a setting, in the order of the cells."""
    values = [_number(_settings(cell).get(path)) for cell in results.cells]
    return [value for place, value in enumerate(values) if value is not None and value not in values[:place]]


def _constant_settings(results: Results) -> dict[str, Any]:
    """The settings in which all cells with an answer agree."""
    known = [cell.runs[0].settings for cell in results.cells if cell.runs]
    first = known[0] if known else {}
    return {
        path: value for path, value in first.items() if all(settings.get(path) == value for settings in known)
    }


def _by_path(name: str, part: Any) -> dict[str, Any]:
    """A part of a description by dotted path."""
    if isinstance(part, Mapping):
        return {f"{name}.{key}": value for key, value in part.items()}
    return {name: part}


def _number(value: Any) -> Any:
    """Numbers as floats, so that 4 and 4.0 are equal in text."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
