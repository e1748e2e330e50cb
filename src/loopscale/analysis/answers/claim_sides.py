"""The evidence of a claim in recorded results, with the words that only a report needs."""

from dataclasses import replace

from loopscale.analysis.answers.recorded_runs import RecordedRuns
from loopscale.analysis.recorded.looks import length_words
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.questions import claim_evidence
from loopscale.questions.claim import ClaimSpec, SolverSide
from loopscale.questions.claim_evidence import Sides
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.stats.learning import MeanFloor


def compare_sides(results: Results, spec: ClaimSpec) -> Sides[CellResult]:
    """The comparison that a claim asks for. `of` is the measure in words, and the notes say why errors are compared."""
    sides = claim_evidence.compare_sides(RecordedRuns(results), spec)
    if not sides.pairs:
        return sides
    notes = list(sides.notes)
    if length := length_words(sides.cells):
        notes.insert(len(notes) - bool(sides.ratios), length)
    words, measure = sides.of.replace("_", " "), CURVE_MEASURES.get(spec.of)
    if measure and measure.grid == "regret":
        floors = [floor for cell in sides.cells if (floor := results.floor(cell)) and floor.how != "none"]
        if sides.of != spec.of:
            notes.append(f"{_why_no_regret(spec, floors, len(sides.cells))}, so errors are compared")
        else:
            measures = {floor.measure.replace("_", " ") for floor in floors}
            words = measures.pop() if len(measures) == 1 else "error above the floor"
    return replace(sides, of=words, notes=tuple(notes))


def _why_no_regret(spec: ClaimSpec, floors: list[MeanFloor], cells: int) -> str:
    """Why the regrets of a claim have no ratio."""
    other = spec.sides[1]
    if len(floors) < cells:
        return "No floor is known"
    if isinstance(other, SolverSide) and other.settings["kind"] in {floor.name for floor in floors}:
        return f"The algorithm is the {_floor_word(floors[0])}"
    return f"A side is not above the {_floor_word(floors[0])}"


def _floor_word(floor: MeanFloor) -> str:
    word = "floor" if floor.how in ("bayes", "exact") else floor.how
    return f"{word} {floor.name.replace('_', ' ')}"
