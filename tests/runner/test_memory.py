"""A trial's share of memory: who needs more is out of memory, and nobody else notices."""

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from loopscale.runner.decide.conductor import RETRIES, Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.on_ray.faults import OUT_OF_MEMORY, fault
from loopscale.runner.on_ray.memory_limit import confined
from tests.runner import simulation
from tests.runner.drivers import Driver

KILLED = (
    "ActorDiedError: The actor died unexpectedly before finishing this task. Task was killed due to the node running "
    "low on memory. Memory on the node was 22.1GB / 23.0GB"
)
DIED = (
    "ActorDiedError: The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential "
    "root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force "
    "is called."
)


def apart(work: Callable[..., Any], *given: Any) -> Any:
    """What `work` returns in a process of its own, whose memory is walled in."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def fills(limit: float | None, sizes: list[int]) -> list[str]:
    """What comes of tensors of so many MiB, one after another, behind one wall each."""
    said: list[str] = []
    for size in sizes:
        try:
            with confined(limit, 0):
                torch.ones(size * 2**18)
            said.append("fits")
        except (MemoryError, RuntimeError) as problem:
            said.append(type(problem).__name__)
    return said


def test_a_process_gets_so_much_and_no_more_and_is_well_afterwards():
    assert apart(fills, 2.0, [256, 4096, 256, 4096]) == ["fits", "RuntimeError", "fits", "RuntimeError"]
    assert apart(fills, None, [3000]) == ["fits"]


def test_a_wall_that_is_too_low_for_the_process_itself_says_so():
    assert apart(fills, 0.01, [1]) == ["MemoryError"]


def test_a_death_of_which_ray_says_that_memory_ran_out_is_told_from_any_other():
    assert fault(KILLED) == "memory"
    assert fault("ray.exceptions.OutOfMemoryError: Task was killed") == "memory"
    assert fault(DIED) == "worker", "Ray always says that it may have been the kernel"
    assert fault(f"{DIED}; {OUT_OF_MEMORY}") == "memory"


def test_a_trial_whose_workers_always_run_out_of_memory_ends_so_and_never_comes_back():
    study, pen = simulation.study(baselines=[]), simulation.Store()
    conductor = Conductor(study, [], pen)
    first = conductor.next()
    assert isinstance(first, Job)
    second = conductor.next()
    assert isinstance(second, Job)
    conductor.report(second.key, simulation.Report(outcome="diverged"))  # somebody can speak
    for _ in range(RETRIES):
        conductor.lost(first.key, KILLED, fault(KILLED))
        assert conductor.next() is first
    conductor.lost(first.key, KILLED, fault(KILLED))
    (record,) = [record for record in pen.records() if record.key == first.key]
    assert (record.outcome, record.status) == ("out_of_memory", "FAILED")
    again, begun = Conductor(study, pen.records(), pen), set[str]()
    for _ in range(100):
        job = again.next()
        if isinstance(job, Idle):
            break
        begun.add(job.key)
        again.report(job.key, simulation.Report(outcome="diverged"))
    assert begun
    assert first.key not in begun


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_goes_on_beside_trials_that_need_more_than_they_may_have(tmp_path: Path):
    path = tmp_path / "full.yaml"
    tree = {
        "question": "Does a large batch fit?",
        "fixed": {
            "task": {"kind": "linear_regression", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 32, "heads": 2},
            "training": {"steps": 20, "loops": 3, "window": 3, "eval_every": 10},
        },
        "scientific": {"training.batch_size": [8, 200_000]},
        "replicates": 2,
        "evaluate": {"loops": 4, "prompts": 32},
        "resources": {"memory": 1.5},
    }
    path.write_text(yaml.safe_dump(tree))
    one = Driver(path, tmp_path, workers=1)
    for _ in range(2):
        process = one.start("--json")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        one.check(trials=4, baselines=0)
        assert json.loads(out)["outcomes"] == {"finished": 2, "out_of_memory": 2}


def on_gpu(shares: list[float]) -> list[bool]:
    """Whether 60 % of the GPU can be had behind each of the walls."""
    whole = torch.cuda.get_device_properties(0).total_memory
    said: list[bool] = []
    for share in shares:
        try:
            with confined(None, share):
                torch.empty(int(0.6 * whole), dtype=torch.uint8, device="cuda")
            said.append(True)
        except torch.OutOfMemoryError:
            said.append(False)
        torch.cuda.empty_cache()
    return said


@pytest.mark.cuda
def test_a_share_of_a_gpu_holds_no_more_than_its_share_of_the_memory():
    assert apart(on_gpu, [0.5, 1.0, 0.5, 0.8]) == [False, True, False, True]
