"""What a trial's record says of where it comes from, and what the parent run keeps of the plan."""

import re

import pytest

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.runner.machine.hardware import machine, used
from loopscale.runner.messages import Report
from loopscale.runner.simulation.ledger import Ledger
from loopscale.studies.plan import cell_counts, plan_study
from loopscale.studies.spec import Study

TREE = {
    "question": "?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 1},
        "training": {"steps": 40, "batch_size": 4, "window": 1},
    },
    "scientific": {"training.loops": [1, 2]},
    "nuisance": {"model.layers": {"integer": [1, 2]}},
    "search": {"kind": "random", "trials": 2},
    "scheduler": {"kind": "asha", "first_rung": 10},
}


def test_every_trial_says_its_commit_and_on_what_it_was_trained():
    ledger = Ledger()
    conductor = Conductor(Study.parse(TREE), [], ledger)
    conductor.origin = {"git_commit": "c0ffee", "git_changed": "no"}
    job = conductor.next()
    assert isinstance(job, Job)
    conductor.report(job.key, Report(((40, {"error": 0.5}),), "finished", host="here", hardware="an abacus"))
    tags = {name: text for note in ledger.notes if note.key == job.key for name, text in note.tags.items()}
    assert (tags["git_commit"], tags["git_changed"]) == ("c0ffee", "no")
    assert (tags["host"], tags["hardware"]) == ("here", "an abacus")


def test_the_machine_is_named_with_its_threads():
    assert re.search(r"\d+ threads", machine())
    assert used(gpu=False) == machine()


def test_what_the_records_keep_of_the_plan_is_what_the_plan_says():
    study = Study.parse(TREE)
    for kept, planned in zip(cell_counts(study), plan_study(study, rate=1e9).cells, strict=True):
        assert kept["key"] == planned.key
        assert tuple(kept["flops"]) == pytest.approx(planned.flops)
        assert kept["flops"][0] < kept["flops"][1]
        assert (kept["tuning"], kept["replicates"]) == (planned.tuning, planned.replicates)
        assert kept["trained_share"] == planned.trained_share
