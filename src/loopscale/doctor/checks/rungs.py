"""The errors of trials at the rungs of the study's scheduler."""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.checks.metrics import kept_history
from loopscale.doctor.second_evaluation import recorded_study
from loopscale.records.model import NOT_FINITE, RUNG, Run, decode, encode
from loopscale.studies.schedulers.base import Scheduler


class Rungs(Check):
    """Every tuning trial has its error at each rung that it has reached. The scheduler compares these errors."""

    name = "rungs"
    stage = "results"  # the validations come back in the check `metrics`, which is earlier by its name

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        for study in list(patient.studies):
            recorded = recorded_study(patient, study)
            if recorded is None or not recorded.scheduler.prunes:
                continue
            tuned = [run for run in patient.studies[study] if run.tags.get("role") == "tuning"]
            # Without a rung and without a pruned trial the scheduler may be younger than the trials.
            proved = any(_rungs(run) or run.tags.get("outcome") == "pruned" for run in tuned)
            for run in tuned:
                if lost := _lost_rungs(recorded.scheduler, run):
                    names = ", ".join(f"{RUNG}{rung}" for rung in lost)
                    yield Finding(
                        "warning" if proved else "note",
                        f"trial {run.tags['trial']} of {study}",
                        f"{names} of the trial are lost, and the scheduler compares trials by their errors there",
                        f"`loopscale run {study} --again {run.tags['trial']}` trains the trial again",
                        partial(_restore, patient, study, run, lost),
                    )


def _rungs(run: Run) -> set[int]:
    names = (name.removeprefix(RUNG) for name in run.metrics if name.startswith(RUNG))
    return {int(rung) for rung in names if rung.isdecimal()}


def _lost_rungs(scheduler: Scheduler, run: Run) -> list[int]:
    """The rungs that the trial has reached, and that its record lacks. None of a trial with another scheduler's."""
    number, steps = run.tags.get("number", ""), decode(run.params.get("training.steps", ""))
    if not number.isdecimal() or type(steps) is not int or steps < 1:
        return []
    ladder, recorded, reached = scheduler.ladder(int(number), steps), _rungs(run), run.metrics.get("step", 0)
    if not recorded <= set(ladder):
        return []
    missing = (rung for rung in ladder if rung not in recorded)
    return [rung for rung in missing if rung <= reached and f"{NOT_FINITE}{RUNG}{rung}" not in run.tags]


def _restore(patient: Patient, study: str, run: Run, lost: list[int]) -> str:
    """Write the errors from the trial's validations. Raises CannotMend if the validation of a rung is lost too."""
    errors = {
        step: value for (name, step), value in kept_history(patient, study, run).items() if name == "error"
    }
    errors |= {step: value for _, step, name, value in patient.store.histories([run]) if name == "error"}
    steps = sorted(errors)
    # The record does not tell the steps between validations. A gap that is wider than others has lost a validation.
    # The last validation, at the end of the training, may come earlier than a gap after the validation before.
    before = [step for step in steps if encode(step) != run.params.get("training.steps")] or steps
    every = min((later - step for step, later in pairwise([0, *before])), default=0)
    points = {
        (f"{RUNG}{rung}", step): errors[step]
        for rung in lost
        if (step := next((step for step in steps if rung <= step < rung + every), None)) is not None
    }
    if points:
        patient.store.log_points(run.id, points, run.end or run.start)
        patient.forget_runs()
    written = {name for name, _ in points}
    if left := [f"{RUNG}{rung}" for rung in lost if f"{RUNG}{rung}" not in written]:
        raise CannotMend(f"no copy has the validation of {left[0]}")
    return f"{', '.join(sorted(written))} were taken from the validations"
