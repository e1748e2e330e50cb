"""Provenance in the records: commit and hardware of a trial, and the plan in the parent run."""

import re
from contextlib import nullcontext

import pytest
import torch

from loopscale.errors import ResourcesError
from loopscale.foresight.plan import plan_study
from loopscale.models import linear
from loopscale.runner import machine
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.machine import describe_machine, local_workers, require_resources, training_hardware
from loopscale.runner.simulation.simulate import MemoryRecords
from loopscale.studies.schema import Resources
from loopscale.studies.spec import Study, cell_counts

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


def test_every_trial_records_its_commit_and_where_and_how_it_ran():
    records = MemoryRecords()
    conductor = Conductor(Study.parse(TREE), [], records)
    conductor.services.commit_tags = {"git_commit": "c0ffee", "git_changed": "no"}
    job = conductor.start_next()
    assert isinstance(job, Job)
    place = {"host": "here", "hardware": "an abacus", "execution": "bf16 on beads"}
    conductor.report(job.key, Report(((40, {"error": 0.5}),), "finished", **place))
    tags = {name: text for note in records.notes if note.key == job.key for name, text in note.tags.items()}
    assert (tags["git_commit"], tags["git_changed"]) == ("c0ffee", "no")
    assert place.items() <= tags.items()


def test_the_machine_is_described_with_its_threads():
    assert re.search(r"\d+ threads", describe_machine())


@pytest.mark.parametrize("library", ["mkl", "onednn"])
def test_the_hardware_of_a_trial_names_the_library_of_its_products(library: linear.Library):
    """The last digits of a loss depend on the library, and its speed too."""
    before = linear.used()
    try:
        linear.use(library)
        assert training_hardware(gpu=False) == f"{describe_machine()}, products by {library}"
    finally:
        linear.use(before)


def test_the_recorded_plan_equals_the_plan():
    study = Study.parse(TREE)
    for recorded, planned in zip(cell_counts(study), plan_study(study, rate=1e9).cells, strict=True):
        assert recorded["key"] == planned.key
        assert tuple(recorded["flops"]) == pytest.approx(planned.flops)
        assert recorded["flops"][0] < recorded["flops"][1]
        assert (recorded["tuning"], recorded["replicates"]) == (planned.tuning, planned.replicates)
        assert recorded["trained_share"] == planned.trained_share


@pytest.mark.parametrize(
    ("gpus", "gpu", "mistake"),
    [
        (
            0,
            0.25,
            "a trial needs 0.25 GPU and this machine has none; give the --address of a cluster with GPUs",
        ),
        (0, 1.0, "a trial needs 1 GPU and this machine has none; give the --address of a cluster with GPUs"),
        (1, 1.0, ""),
        (2, 0.25, ""),
    ],
)
def test_a_gpu_that_this_machine_lacks_is_one_line_before_ray_starts(
    gpus: int, gpu: float, mistake: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    with pytest.raises(ResourcesError, match=re.escape(mistake)) if mistake else nullcontext():
        require_resources(Resources(gpu=gpu), address=None)


def test_as_many_trials_run_as_cpus_gpus_and_memory_hold(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 16.0)
    monkeypatch.setattr(machine, "usable_memory", lambda: 64.0)
    wanted = {16: {}, 2: {"gpu": 0.6}, 8: {"gpu": 0.25}, 4: {"cpu": 4}, 6: {"memory": 10.0}, 1: {"cpu": 32}}
    assert {number: local_workers(Resources(**each)) for number, each in wanted.items()} == {
        number: number for number in wanted
    }
