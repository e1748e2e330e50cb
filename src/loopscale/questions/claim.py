"""Claims in a study's file: two cells, or a cell and a classical algorithm, and which of the two has less error.

A claim may also say that both have the same error.

A claim has four files. This file has its text and its words. `claim_evidence` compares its two sides, `claim_verdict`
judges all claims of a file as one family, and `analysis.answers.claims` makes the answer that reports print.

A claim is a question, not a setting. A claim that is added, changed or removed changes no trial, no cell and no key.
The claims of a file are one family: each verdict is corrected for their number.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, Self, TypeVar, get_args

from pydantic import BeforeValidator, Field, StringConstraints, ValidationError, model_validator

from loopscale.core.config import Config, is_tree, leaves, same_value
from loopscale.core.titles import readable
from loopscale.notation.files import read_study
from loopscale.notation.mistakes import Mistakes, one_of, quoted
from loopscale.notation.shares import NUMBER_OR_PERCENT, share_of
from loopscale.questions.measures import CURVE_MEASURES, RegretLevel
from loopscale.stats.learning_chances import LearningVerdict
from loopscale.stats.milestones import KINDS, Milestone, Unit, check_regret, measure_of
from loopscale.stats.verdict_rule import DifferenceVerdict, VerdictRule

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
ClaimVerdict = Literal[
    "holds",
    "does not hold",
    "level",
    "learns more often",
    "learns less often",
    "undecided",
    "not learnt",
    "not run",
]
"""The verdict on a claim. `learns ..` is a verdict on the first side, if the runs that have learnt decide nothing."""
CLAIM_VERDICTS: tuple[ClaimVerdict, ...] = get_args(ClaimVerdict)
VERDICTS_OF_RATIO: dict[DifferenceVerdict, ClaimVerdict] = {
    "less": "holds",
    "more": "does not hold",
    "level": "level",
    "undecided": "undecided",
}
"""The verdict on a claim of less, by the verdict on the ratio of its first side to its second side."""
VERDICTS_OF_EQUALITY: dict[DifferenceVerdict, ClaimVerdict] = {
    "less": "does not hold",
    "more": "does not hold",
    "level": "holds",
    "undecided": "undecided",
}
"""The verdict on a claim of equality."""
VERDICTS_OF_LEARNING: dict[LearningVerdict, ClaimVerdict] = {
    "more": "learns more often",
    "less": "learns less often",
}
"""The verdict on the first side of a claim that learnt runs leave open."""
FINAL_VERDICTS: tuple[ClaimVerdict, ...] = (
    "holds",
    "does not hold",
    "level",
    "learns more often",
    "learns less often",
)
"""The verdicts that end a claim."""
MARGIN = 0.05
"""The margin of equivalence of a claim that names none."""
MOST_LEVEL = 10
"""The largest margin of equality."""
BASES: dict[Unit, str] = {"steps": "steps", "flops": "FLOPs", "seconds": "seconds"}
"""The units of cost in texts."""


class CellSide(NamedTuple):
    """One cell, by its scientific settings."""

    settings: dict[str, Any]
    """By dotted path."""
    loop: int | None
    """The loops that the net runs; by default T."""

    def names(self, values: Mapping[str, Any]) -> bool:
        """True if a cell with these scientific settings has all settings of this side."""
        of_cell = dict(leaves(values))
        return all(same_value(of_cell.get(path), value) for path, value in self.settings.items())


class SolverSide(NamedTuple):
    """One of the study's baselines."""

    settings: dict[str, Any]
    """The kind, and the settings that tell baselines of this kind apart."""
    step: int | None
    """The steps of the algorithm. The default is the number of loops or layers of the first side."""

    def names(self, solver: Mapping[str, Any]) -> bool:
        """True if a solver with these settings is meant. Records leave out settings that are null.

        If the values of a setting are numbers and words, as in 2.0 and theory, records keep all of them as text.
        """
        return all(
            any(same_value(solver.get(name), text) for text in (value, json.dumps(value)))
            for name, value in self.settings.items()
        )


Side = CellSide | SolverSide


class WithValues(Protocol):
    """A cell of a study, planned, running or recorded."""

    @property
    def values(self) -> Mapping[str, Any]:
        """The scientific settings."""
        ...


Placed = TypeVar("Placed", bound=WithValues)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _count(data: Mapping[str, Any], name: str) -> None:
    """Raise ValueError unless the number of loops or steps is a whole number above 0, or missing."""
    value = data.get(name)
    if value is not None and not (type(value) is int and value > 0):
        raise ValueError(f"{name} is {quoted(value)}; write a whole number above 0")


def _cell(data: Any) -> Any:
    """Check the notation of a cell."""
    if not is_tree(data):
        raise ValueError(
            f"this side is {quoted(data)}; write the settings of one cell, as in {{model.kind: looped}}"
        )
    if "solver" in data:
        raise ValueError("the first side is an algorithm; write the cell first and the algorithm second")
    if "step" in data:
        raise ValueError("step belongs to an algorithm; write loop for a net")
    _count(data, "loop")
    return data


def _cell_or_solver(data: Any) -> Any:
    """Check the notation of a cell or an algorithm, and complete a solver that is written as its kind.

    `claim_checks` compares the kind and the settings with the study's baselines. Solvers need torch, and reading
    records does not.
    """
    if not is_tree(data) or "solver" not in data:
        return _cell(data)
    if others := [name for name in data if name not in ("solver", "step")]:
        raise ValueError(f"an algorithm has no setting {others[0]!r} here; write {{solver: KIND, step: n}}")
    _count(data, "step")
    solver = data["solver"]
    solver = {"kind": solver} if isinstance(solver, str) else solver
    if not is_tree(solver) or not isinstance(solver.get("kind"), str):
        raise ValueError(f"the solver is {quoted(solver)}; write its kind, or {{kind: KIND, features: ...}}")
    return dict(data) | {"solver": solver}


def _level(data: Any) -> Any:
    """Read the margin of equality: a share above 0, as a number or in percent."""
    if not 0 < (share := share_of(data)) < MOST_LEVEL:
        raise ValueError(f"level is {quoted(data)}; write a share above 0, such as 10 % or 0.1")
    return share


class ClaimSpec(Config):
    """A statement that the first side has less of a measure than the second side.

    With `level: 10 %`, the statement is that both sides have the same within 10 %. Such a claim holds if the whole
    interval of the ratio lies within this margin. It does not hold if the whole interval lies outside.

    A side is a cell: `model.kind: looped`. The second side may also be a baseline: `solver: newton, step: 4`. The
    claim holds if the whole interval of the ratio lies below 1. It does not hold if the interval lies above 1. If the
    whole interval lies within the margin, both sides are level. Otherwise the claim is undecided.

    With `over: [task.points]`, each side has one cell for every value of `task.points`. The ratio is then the geometric
    mean of the ratios of these pairs.
    """

    text: Text
    """The statement in words, as reports print it."""
    source: str = ""
    """The source of the statement, if the study has another source."""
    first: Annotated[dict[str, Any], BeforeValidator(_cell)]
    """Scientific settings that name one cell. With `loop: n` the net runs n loops instead of T."""
    second: Annotated[dict[str, Any], BeforeValidator(_cell_or_solver)]
    """Another cell, or `{solver: KIND, step: n}`, a baseline after n steps. The default of n is the number of loops of
    the net."""
    over: tuple[str, ...] = ()
    """Scientific settings that pair the cells of both sides: for all their values together, a side names one cell each.
    The claim is about the geometric mean of the ratio over all pairs. Absent: a side names a single cell."""
    of: str = "regret"
    """The measure. Without a known floor, or with a regret of 0, the errors are compared, and reports say so. With
    `emerged_at`, the claim is about the steps until a net leaves the plateau. With `reached`, the claim is about the
    steps until the validation regret is below the level under `regret`."""
    regret: RegretLevel = None
    """The level of `of: reached`."""
    basis: Unit = "steps"
    """Two cells are compared after all their steps, or after equal FLOPs or seconds of training. With `emerged_at` and
    `reached`: whether steps, FLOPs or seconds are counted."""
    margin: Annotated[float, Field(gt=0, lt=10)] | None = MARGIN
    """Ratios from 1/(1 + margin) to 1 + margin count as level; null if level is no verdict of the claim."""
    level: Annotated[float, BeforeValidator(_level), NUMBER_OR_PERCENT] | None = None
    """The claim is that both sides are level: the ratio lies from 1/(1 + level) to 1 + level. A share, such as 0.1 or
    10 %. Absent: the claim is that the first side has less."""

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        sides = self.sides
        check_regret(self.of, self.regret)
        if self.level is not None and self.margin not in (None, MARGIN):
            raise ValueError("level and margin are two margins of one claim; leave out margin")
        solver = any(isinstance(side, SolverSide) for side in sides)
        loops = any(isinstance(side, CellSide) and side.loop for side in sides)
        if self.basis != "steps" and (solver or loops):
            what = "an algorithm is not trained" if solver else "the number of loops changes no training"
            raise ValueError(f"the basis is {self.basis}, but {what}; leave out basis")
        steps = any(isinstance(side, SolverSide) and side.step for side in sides)
        if (loops or steps) and self.of not in CURVE_MEASURES:
            why = "single loops" if loops else "single steps"
            raise ValueError(f"{self.of} is not recorded for {why}; {one_of(self.of, CURVE_MEASURES)}")
        known = (*CURVE_MEASURES, *KINDS)
        if self.basis != "steps" and self.of not in known:
            raise ValueError(f"{self.of} is not recorded during training; {one_of(self.of, known)}")
        if sides[0] == sides[1]:
            raise ValueError("both sides are the same; name another cell, or another number of loops")
        if named := [path for path in self.over if any(path in side.settings for side in sides)]:
            raise ValueError(
                f"the claim is over all values of {named[0]}, but a side names one; leave out one of the two"
            )
        return self

    @property
    def measure(self) -> str:
        """The name of the measure, with the level and the unit of a milestone."""
        return measure_of(self.model_dump(include={"of", "regret", "basis"}))

    @property
    def rule(self) -> VerdictRule:
        """The rule of the verdict on the ratio of the first side to the second side."""
        if self.level is None:
            return VerdictRule.difference(self.margin)
        return VerdictRule.equality(self.level)

    def verdict(
        self, of_ratio: DifferenceVerdict | None, of_learning: LearningVerdict = "undecided"
    ) -> ClaimVerdict:
        """The verdict on the claim.

        Parameters
        ----------
        of_ratio
            The verdict on the ratio among learnt runs; None if too few runs have learnt for a ratio with an interval.
        of_learning
            Whether the first side learns more often.
        """
        verdicts = VERDICTS_OF_RATIO if self.level is None else VERDICTS_OF_EQUALITY
        verdict: ClaimVerdict = "not learnt" if of_ratio is None else verdicts[of_ratio]
        return verdict if verdict in FINAL_VERDICTS else VERDICTS_OF_LEARNING.get(of_learning, verdict)

    @property
    def gated(self) -> bool:
        """True if only runs that have learnt are compared. A milestone counts the other runs by their last step."""
        return Milestone.parse(self.measure) is None

    @property
    def names(self) -> tuple[str, str]:
        """The names of both sides."""
        return self._name(self.sides[0]), self._name(self.sides[1])

    @property
    def statement(self) -> str:
        """The claim in a sentence that follows from its sides and its measure. Only this sentence has a verdict."""
        return self.statement_on(*self.names)

    def statement_on(self, first: str, second: str, measure: str = "") -> str:
        """The statement for readers, with these labels of the sides, and the measure that is compared in fact."""
        first, second = readable(first), readable(second)
        milestone = Milestone.parse(self.measure)
        where = "" if milestone or self.basis == "steps" else f" after equal {BASES[self.basis]} of training"
        where += f", on average over {' and '.join(self.over)}" if self.over else ""
        words = measure or (milestone.words if milestone else self.of.replace("_", " "))
        if self.level is not None:
            return f"{first} and {second} have the same {words} within {self.level * 100:.3g} %{where}"
        verb = "needs fewer" if milestone else "has less"
        return f"{first} {verb} {words} than {second}{where}"

    def _name(self, side: Side) -> str:
        """The name of a side."""
        if isinstance(side, SolverSide):
            steps = f" after {_counted(side.step, 'step')}" if side.step else ""
            return f"{side.settings['kind']}".replace("_", " ") + steps
        label = _settings_label(side.settings) or ("all cells" if self.over else "the only cell")
        return f"{label} after {_counted(side.loop, 'loop')}" if side.loop else label

    @property
    def sides(self) -> tuple[CellSide, Side]:
        """Both sides."""
        return _cell_side(self.first), _side(self.second)

    def pairs(self, cells: Iterable[Placed]) -> list[tuple[Placed, ...]]:
        """The cells of both sides, pair by pair; of the first side alone if the second side is an algorithm.

        Returns
        -------
        list
            One pair for all values of `over` together. Empty if a side names no cell, or several cells, for values that
            the other side has.
        """
        placed = list(cells)
        of_sides = [self._by_place(side, placed) for side in self.sides if isinstance(side, CellSide)]
        places = list(of_sides[0])
        pairs = [[of_side.get(place) for of_side in of_sides] for place in places]
        alike = all(of_side.keys() == of_sides[0].keys() for of_side in of_sides)
        single = [tuple(cell for cell in pair if cell is not None) for pair in pairs]
        return single if alike and all(len(pair) == len(of_sides) for pair in single) else []

    def place(self, cell: WithValues) -> tuple[str, ...]:
        """The values of `over` in a cell, as text."""
        values = dict(leaves(cell.values))
        return tuple(json.dumps(values.get(path)) for path in self.over)

    def _by_place(self, side: CellSide, cells: Iterable[Placed]) -> dict[tuple[str, ...], Placed | None]:
        """The cells of a side by their values of `over`; None for values that several cells have."""
        found: dict[tuple[str, ...], Placed | None] = {}
        for cell in cells:
            if side.names(cell.values):
                place = self.place(cell)
                found[place] = None if place in found else cell
        return found


class _Claims(Config):
    """The part of a study's file that holds its claims."""

    claims: tuple[ClaimSpec, ...] = ()


def read_claims(file: Path) -> list[dict[str, Any]]:
    """The claims of a study's file as plain data. Raises Mistakes; the rest of the file is not checked."""
    source = read_study(file)
    tree = {name: value for name, value in source.tree.items() if name == "claims"}
    try:
        claims = _Claims.model_validate(tree).claims
    except ValidationError as problem:
        # Imported here, because the module imports torch, which reading records does not need.
        from loopscale.notation.settings import validation_faults

        raise Mistakes(map(source.mistake, validation_faults(problem, _Claims, tree))) from None
    return [claim.model_dump(mode="json") for claim in claims]


def _side(data: Mapping[str, Any]) -> Side:
    return SolverSide(data["solver"], data.get("step")) if "solver" in data else _cell_side(data)


def _cell_side(data: Mapping[str, Any]) -> CellSide:
    settings = {name: value for name, value in data.items() if name != "loop"}
    return CellSide(dict(leaves(settings)), data.get("loop"))


def _settings_label(settings: Mapping[str, Any]) -> str:
    """Settings in words: `algoformer, loops = 4`, `flops = 1.84e+12`."""
    return ", ".join(
        str(value)
        if path.endswith("kind")
        else f"{path.rpartition('.')[2]} = {f'{value:g}' if isinstance(value, float) else value}"
        for path, value in leaves(settings)
    )
