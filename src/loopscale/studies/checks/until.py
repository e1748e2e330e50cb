"""What `until: decided` requires of a study."""

from collections.abc import Iterator

from loopscale.notation.mistakes import Fault, one_of
from loopscale.pricing.training_budget import ENDLESS, STEPS_AND_BUDGETS
from loopscale.questions.claim import CellSide, ClaimSpec
from loopscale.questions.until import UntilDecided, in_reserve
from loopscale.stats.milestones import EMERGED_AT, REACHED
from loopscale.stats.verdict_rule import LEAST_VALUES
from loopscale.studies.cells import Cell, Layout
from loopscale.studies.law_questions import is_judged, law_questions
from loopscale.studies.schema import StudySchema


def until_faults(until: UntilDecided, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """The faults of `until`, and of claims that no look can judge."""
    if study.replicates < 2:
        what = "until: decided starts with 1 replicate, but an interval needs 2"
        yield Fault(("replicates",), what, "write replicates: 3")
    if "looks" in until.model_fields_set and until.looks[0] < study.replicates:
        what = (
            f"the first look is at {until.looks[0]}, but the study starts with {study.replicates} replicates"
        )
        yield Fault(("until", "looks"), what, f"begin with {study.replicates}")
    if until.most is not None and until.most < study.replicates:
        what = f"until.most is {until.most}, but the study starts with {study.replicates} replicates"
        yield Fault(("until", "most"), what, f"write {study.replicates} or more")
    if not study.claims and not any(is_judged(law) for law in study.model_dump(mode="json")["laws"]):
        what = "until is decided, but the study has no claim, and no law along a setting that theory judges"
        yield Fault(("until",), what, "add claims, or take until out")
    if until.steps > 1:
        yield from _steps_faults(until, study, layout)
    if until.values:
        yield from _values_faults(until, study, layout)
    for n, claim in enumerate(study.claims):
        if claim.of == REACHED:
            what = f"claim {n + 1} is of {REACHED}, which no look can judge"
            yield Fault(("claims", n, "of"), what, f"ask of {EMERGED_AT} or of regret, or take until out")
        elif claim.basis != "steps" and not _equal_cost(claim, layout):
            what = f"claim {n + 1} is about equal {claim.basis} within trainings, which no look can judge"
            yield Fault(("claims", n, "basis"), what, f"give training.{claim.basis}, or take until out")


def _steps_faults(until: UntilDecided, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """The faults of longer trainings."""
    place, remedy = ("until", "steps"), "take until.steps out"
    lengths = [f"training.{name}" for name in STEPS_AND_BUDGETS]
    if varied := [path for path in lengths if path in study.scientific or path in study.nuisance]:
        yield Fault(place, f"until.steps doubles the steps, but the study varies {varied[0]}", remedy)
    if study.holds_out:
        what = "until.steps doubles the steps of fitted cells, but a law predicts cells that train once"
        yield Fault(place, what, f"{remedy}, or hold_out")
    longest = max((trial.training.steps for trial in layout.trials.values()), default=0)
    if not layout.faults and longest < ENDLESS < longest * until.steps:
        what = f"until.steps {until.steps} times {longest:,} steps is more than a training may have"
        yield Fault(place, what, f"write {ENDLESS:,} / {longest:,} or less")


def _values_faults(until: UntilDecided, study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """The faults of values in reserve."""
    (axis, reserved), *_ = until.values.items()
    place, remedy = ("until", "values"), "take until.values out"
    if axis not in study.scientific:
        what = f"until.values names {axis}, which is no axis under scientific"
        yield Fault((*place, axis), what, one_of(axis, list(study.scientific)))
        return
    if unknown := [value for value in reserved if value not in study.scientific[axis]]:
        what = f"until.values names {unknown[0]:g}, which is no value of {axis}"
        yield Fault((*place, axis), what, f"add {unknown[0]:g} to scientific.{axis}")
        return
    if until.steps > 1:
        what = "until.values and until.steps would both change the cells that a law compares"
        yield Fault(place, what, "take one of the two out")
    if study.holds_out:
        what = "until.values holds cells back, but a law with hold_out waits for all fitted cells"
        yield Fault(place, what, f"{remedy}, or hold_out")
    keys = {cell.key for cell in layout.cells if in_reserve(until, cell.values)}
    questions = law_questions(study.model_dump(mode="json"), layout.cells, layout.shared_settings)
    of_laws = {key for question in questions for key in question.reserve}
    if unasked := [cell for cell in layout.cells if cell.key in keys - of_laws]:
        what = (
            f"no law can order {unasked[0].label}: a law along {axis} needs a theory, and {LEAST_VALUES} values "
            "outside of until.values"
        )
        yield Fault(place, what, f"add such a law, or hold fewer values of {axis} in reserve")
    for n, claim in enumerate(study.claims):
        sides = [side for side in claim.sides if isinstance(side, CellSide)]
        if any(side.names(cell.values) for side in sides for cell in layout.cells if cell.key in keys):
            what = f"claim {n + 1} compares a cell in reserve, which may never be trained"
            yield Fault(
                ("claims", n), what, f"claim something else, or take its value of {axis} out of until.values"
            )


def concerned_cells(study: StudySchema, layout: Layout) -> list[Cell]:
    """The cells that may get more replicates: those of the claims and of the judged laws, also those in reserve."""
    sides = [side for claim in study.claims for side in claim.sides if isinstance(side, CellSide)]
    questions = law_questions(study.model_dump(mode="json"), layout.cells, layout.shared_settings)
    of_laws = {key for question in questions for key in (*question.places, *question.reserve)}
    return [
        cell for cell in layout.cells if cell.key in of_laws or any(side.names(cell.values) for side in sides)
    ]


def _equal_cost(claim: ClaimSpec, layout: Layout) -> bool:
    """True if all nets of the claim are trained for the same cost in the unit of its basis."""
    sides = [side for side in claim.sides if isinstance(side, CellSide)]
    cells = [cell for cell in layout.cells if any(side.names(cell.values) for side in sides)]
    costs = {getattr(layout.trials[cell.key].training, claim.basis, None) for cell in cells}
    return len(costs) == 1 and None not in costs
