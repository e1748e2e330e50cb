"""Checks of held-out cells: their law has enough other cells for a prediction, and noise that is known."""

from collections.abc import Iterator, Mapping
from typing import Any

from loopscale.notation.mistakes import Fault, Place
from loopscale.questions.axes.base import axis_of
from loopscale.questions.law import LawSpec
from loopscale.stats.milestones import EMERGED_AT, is_milestone
from loopscale.stats.prediction import LEAST_PREDICTING
from loopscale.studies.cells import Layout
from loopscale.studies.held_out import (
    axis_values,
    has_circle,
    held_out_tests,
    held_out_values,
    tests_of_law,
    waits_for,
)
from loopscale.studies.schema import StudySchema


def hold_out_faults(study: StudySchema, layout: Layout) -> Iterator[Fault]:
    """The faults of laws that hold out values."""
    shared = layout.shared_settings
    faults = False
    for n, law in enumerate(study.laws):
        place: Place = ("laws", n, "hold_out")
        for what, remedy in _law_faults(study, law, layout, shared):
            faults = True
            yield Fault(place, what, remedy)
    if faults:
        return
    laws = [law.model_dump() for law in study.laws]
    if has_circle(waits_for(held_out_tests(laws, layout.cells, shared))):
        what = "laws hold out each other's cells, so that none of these cells can start"
        yield Fault(("laws",), what, "hold out the largest values only")


def _law_faults(
    study: StudySchema, law: LawSpec, layout: Layout, shared: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """What is wrong with one law's held-out values, and the remedy."""
    if law.hold_out is None:
        return
    axis = axis_of(law.along)
    if axis.not_held_out:
        what = f"a law along {law.along} holds out values, but {axis.not_held_out}"
        yield what, "hold out values of a numeric setting"
        return
    if is_milestone(law.measure) and law.measure != EMERGED_AT:
        what = (
            f"a law of {law.of} holds out values, but records during a study know the step of emergence alone"
        )
        yield what, "ask of emerged_at in steps, or remove hold_out"
        return
    if tuned := [path for path in axis.factors if path in study.nuisance]:
        what = f"a law along {law.along} holds out values, but {tuned[0]} is tuned"
        yield what, f"put {tuned[0]} under fixed or scientific"
        return
    values = axis_values(layout.cells, law.along, shared)
    held_out = held_out_values(law.hold_out, values)
    given = law.hold_out if isinstance(law.hold_out, tuple) else ()
    if twice := [value for n, value in enumerate(given) if value in given[:n]]:
        yield f"hold_out names {twice[0]:g} twice", "keep one of the two"
    elif unknown := sorted(held_out - set(values)):
        what = f"hold_out names {unknown[0]:g}, which is no value of {law.along}"
        yield what, f"write some of {', '.join(f'{value:g}' for value in values)}"
    elif len(values) - len(held_out) < LEAST_PREDICTING:
        left = max(0, len(values) - len(held_out))
        what = f"hold_out leaves {left} value{'s' * (left != 1)} of {law.along} for the fit of the law"
        yield what, f"leave at least {LEAST_PREDICTING}"
    elif not list(tests_of_law(law.model_dump(), layout.cells, shared)):
        what = f"no combination of the other settings has {LEAST_PREDICTING} fitted values of {law.along}"
        yield f"hold_out predicts nothing: {what}", "loosen the condition, or remove hold_out"
    elif study.replicates < 2:
        yield "hold_out with one replicate: the noise is unknown", "write replicates: 2 or more"
    elif any(_other_hold_out(law, other) for other in study.laws):
        what = f"two laws of {law.measure} along {law.along} hold out different values"
        yield what, "hold out the same values, or remove one of the two"


def _other_hold_out(law: LawSpec, other: LawSpec) -> bool:
    same = (law.measure, law.along) == (other.measure, other.along)
    return same and other.hold_out is not None and other.hold_out != law.hold_out
