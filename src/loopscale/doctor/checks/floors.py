"""The saved floors of tasks, on which every regret of a report stands."""

import math
from collections.abc import Iterator
from functools import partial

import numpy as np
from typing_extensions import override

from loopscale.analysis.recorded.floors import (
    FLOORS_FILE,
    Entry,
    Floors,
    computed_floor,
    floor_key,
    save_floors,
    saved_form,
)
from loopscale.doctor.check import Check, Finding, Patient
from loopscale.stats.learning import MeanFloor

TOLERANCE = 0.005
"""Share of the ignorance by which two computations of one floor may differ, on average over the queries. Processors
round differently, and iterative references then end elsewhere. Of 75 recorded floors, computed a second time: .0003."""


class SavedFloors(Check):
    """Every saved floor is the floor that a second computation gives. A floor takes .01 to 2 seconds, and some 20."""

    name = "floors"
    stage = "conclusions"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        floors = Floors.of(patient.store, compute=False)
        for entry, saved in list(floors.saved()):
            computed = computed_floor(entry["task"], entry["purpose"], entry["prompts"])
            if computed is not None and (problem := _difference(saved, computed)):
                kind = entry["task"].get("kind", "a task")
                yield Finding(
                    "error",
                    f"{FLOORS_FILE}, {kind}, {entry['prompts']:,} prompts of purpose {entry['purpose']}",
                    problem,
                    f"delete {FLOORS_FILE}: a report computes every floor again",
                    partial(_replace, floors, entry, computed) if floors.keep else None,
                )


def _difference(saved: MeanFloor, computed: MeanFloor) -> str:
    """The difference of two floors in words; empty if there is none beyond rounding."""
    if (saved.how, saved.name, saved.error.shape) != (computed.how, computed.name, computed.error.shape):
        return f"the saved floor is of another kind ({saved.name}) than the computed one ({computed.name})"
    scale = TOLERANCE * float(np.mean(computed.ignorance))
    for what, one, other in (
        ("floor", saved.error, computed.error),
        ("ignorance", saved.ignorance, computed.ignorance),
    ):
        first, second = float(np.mean(one)), float(np.mean(other))
        if abs(first - second) > scale or math.isnan(first) != math.isnan(second):
            return f"the saved {what} is {first:.4g}, and the computed one {second:.4g}"
    return ""


def _replace(floors: Floors, entry: Entry, computed: MeanFloor) -> str:
    assert floors.keep
    about = entry["task"], entry["purpose"], entry["prompts"]
    save_floors(floors.keep, {floor_key(*about): saved_form(computed, *about)})
    return "the computed floor was saved"
