"""`loopscale run` through real Ray, killed at any moment and run again: no trial is lost, doubled or left running."""

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from loopscale.analysis.answers.claims import judged_claims
from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.looks import decisions_of
from loopscale.records.stores.opening import open_store
from tests.runner.drivers import BASELINES, SURVIVAL, TRIALS, Driver, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4500)]

KILLS = int(os.environ.get("LOOPSCALE_KILLS", "3"))
"""Number of kills of the killed study: 3 in CI, more in `make soak`."""


def kill_at_random_moments(driver: Driver, seed: int, saves: int) -> None:
    """Kill the study once while it starts, and `KILLS` times after at most `saves` new checkpoints.

    A kill that counts checkpoints falls within the study on a machine of any speed.
    """
    moments = random.Random(seed)
    begun = moments.choice(["store", "store/mlflow.db", "store/ray"])
    driver.kill_when((driver.folder / begun).exists, moments.uniform(0, 0.5))
    for _ in range(KILLS):
        driver.kill_after_saves(moments.randint(1, saves), moments.uniform(0, 0.1))


STEPS = 40 * KILLS
"""Steps of a trial that is killed. The study of ten trials then saves 40 checkpoints for every kill."""


class Finished(NamedTuple):
    """A study that nothing has disturbed."""

    driver: Driver
    ends: set[tuple[object, ...]]
    saves: Counter[tuple[str, int]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    driver = survival_driver(tmp_path_factory.mktemp("whole"))
    driver.overrides = (f"training.steps={STEPS}",)
    assert driver.finish()[0] == 0
    driver.check(TRIALS, BASELINES)
    return Finished(driver, driver.ends(), driver.saves())


def test_a_study_killed_at_random_moments_equals_the_uninterrupted_study(
    tmp_path: Path, uninterrupted: Finished
):
    killed = survival_driver(tmp_path)
    killed.overrides = uninterrupted.driver.overrides
    kill_at_random_moments(killed, 7, 20)
    assert killed.finish()[0] == 0
    killed.check(TRIALS, BASELINES)
    assert killed.ends() == uninterrupted.ends
    repeated = sum(times - 1 for times in killed.saves().values())
    assert repeated <= 2 * KILLS, f"{KILLS} kills of two workers repeated {repeated} checkpoint intervals"
    assert set(killed.saves()) == set(uninterrupted.saves)


def test_a_finished_study_trains_nothing_and_a_larger_study_only_the_new_trials(uninterrupted: Finished):
    driver, _, before = uninterrupted
    assert driver.finish()[0] == 0
    assert driver.saves() == before
    driver.overrides += ("replicates=3",)
    assert driver.finish()[0] == 0
    driver.check(TRIALS + 2, BASELINES)
    assert all(driver.saves()[key] == before[key] for key in before)


DECIDED: dict[str, Any] = {
    # Without room in the task, no training stands on a plateau, so the looks judge short trainings too. Two cells with
    # two replicates save at least 20 checkpoints for every kill.
    "fixed": SURVIVAL["fixed"]
    | {"task": {"kind": "linear_regression", "dim": 2, "points": 5, "noise": 4.0}}
    | {"training": {"steps": max(800, 250 * KILLS), "batch_size": 16, "eval_every": 50}},
    "scientific": {"training.loops": [1, 4], "training.window": [1]},
    "nuisance": {},
    "search": {"kind": "random", "trials": 1},
    "replicates": 2,
    "claims": [
        {"text": "four", "first": {"training.loops": 4}, "second": {"training.loops": 1}, "margin": None},
        {
            "text": "solver",
            "first": {"training.loops": 1},
            "second": {"solver": "least_squares"},
            "margin": None,
        },
    ],
    "until": {"looks": [2, 3, 5], "futile": 0.0},
}


def decisions(driver: Driver) -> set[tuple[object, ...]]:
    """The recorded decisions without their times and numbers, which depend on rounding of single trainings only."""
    return {
        (each.text, each.seeds, each.runs, each.verdict, each.step, each.replicates, each.cells)
        for each in decisions_of(load_results(open_store(driver.store), driver.name))
    }


def test_a_study_until_decided_killed_and_resumed_makes_the_same_decisions(tmp_path: Path):
    killed, whole = (survival_driver(tmp_path / name, **DECIDED) for name in ("killed", "whole"))
    kill_at_random_moments(killed, 3, 12)
    assert killed.finish()[0] == whole.finish()[0] == 0
    assert decisions(killed) == decisions(whole)
    assert killed.ends() == whole.ends()
    results = load_results(open_store(killed.store), killed.name)
    last = {each.text: each.verdict for each in decisions_of(results)}
    assert {claim.text: claim.verdict for claim in judged_claims(results)} == last
    assert max(len(cell.runs) for cell in results.cells) > 2, "no look ordered a replicate"
    repeated = sum(times - 1 for times in killed.saves().values())
    assert repeated <= 2 * KILLS
