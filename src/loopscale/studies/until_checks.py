"""What `until: decided` requires of a study."""

from collections.abc import Iterator

from loopscale.studies.cells import Cell, Layout
from loopscale.studies.claims import CellSide, ClaimSpec
from loopscale.studies.mistakes import Fault
from loopscale.studies.schema import StudySchema


def until_faults(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """The faults of `until`, and of claims that no look can judge."""
    until = study.until
    if until is None:
        return
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
    if not study.claims:
        what = "until is decided, but the study has no claim"
        yield Fault(("until",), what, "add claims, or take until out")
    for n, claim in enumerate(study.claims):
        if claim.basis != "steps" and not _equal_cost(claim, layout):
            what = f"claim {n + 1} is about equal {claim.basis} within trainings, which no look can judge"
            yield Fault(("claims", n, "basis"), what, f"give training.{claim.basis}, or take until out")


def concerned_cells(study: StudySchema, layout: Layout) -> list[Cell]:
    """The cells that may get more replicates: those of the claims."""
    sides = [side for claim in study.claims for side in claim.sides if isinstance(side, CellSide)]
    return [cell for cell in layout.cells if any(side.names(cell.values) for side in sides)]


def _equal_cost(claim: ClaimSpec, layout: Layout) -> bool:
    """True if all nets of the claim are trained for the same cost in the unit of its basis."""
    sides = [side for side in claim.sides if isinstance(side, CellSide)]
    cells = [cell for cell in layout.cells if any(side.names(cell.values) for side in sides)]
    costs = {getattr(layout.trials[cell.key].training, claim.basis, None) for cell in cells}
    return len(costs) == 1 and None not in costs
