"""Studies whose trials have equal costs, killed and run again through real Ray: the derived steps stay the same."""

from pathlib import Path

import pytest

from tests.runner.drivers import BASELINES, SURVIVAL, TRIALS, Driver, survival_driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4500)]

EQUAL_COST = {
    "fixed": SURVIVAL["fixed"]
    | {"training": {"loops": 4, "window": 2, "batch_size": 16, "schedule": "cosine"}},
    "scientific": {"model": [{"kind": "looped"}, {"kind": "gpt2", "layers": 2}]},
}


def recorded_steps(driver: Driver) -> dict[str, set[int]]:
    """The derived steps by cell; the last recorded step of every trial must be the last derived step."""
    rows = driver.query(
        "SELECT l.value, p.value, max(m.step) FROM params p JOIN tags l ON l.run_uuid = p.run_uuid "
        "JOIN metrics m ON m.run_uuid = p.run_uuid AND m.key = 'step' "
        "WHERE p.key = 'training.steps' AND l.key = 'label' GROUP BY p.run_uuid"
    )
    assert all(int(derived) == last for _, derived, last in rows)
    steps = dict[str, set[int]]()
    for label, derived, _ in rows:
        steps.setdefault(label, set()).add(int(derived))
    return steps


@pytest.mark.long
def test_a_study_at_equal_flops_killed_and_resumed_equals_the_uninterrupted_study(tmp_path: Path):
    drivers = [survival_driver(tmp_path / name, **EQUAL_COST) for name in ("killed", "whole")]
    for driver in drivers:
        driver.overrides = ("training.flops=1e10",)
    drivers[0].kill_after_saves(10)
    for driver in drivers:
        assert driver.finish()[0] == 0
        driver.check(TRIALS, BASELINES)
    assert drivers[0].ends() == drivers[1].ends()
    steps = recorded_steps(drivers[0])
    assert steps == recorded_steps(drivers[1])
    assert [len(derived) for derived in steps.values()] == [1, 1]
    assert steps["looped"] != steps["gpt2"]


def test_the_first_start_fixes_the_steps_of_a_budget_of_seconds(tmp_path: Path):
    driver = survival_driver(tmp_path, **EQUAL_COST)
    driver.overrides = ("training.seconds=0.5",)
    driver.kill_after_saves(1, 0.0, "--rate", "2e10")  # 1e10 FLOPs a trial, on a machine of any speed
    begun = {trial for trial, _ in driver.saves()}
    code, _, err = driver.finish("--rate", "1e3")  # at this rate no step fits into half a second
    assert code == 0, err
    assert "has fixed the speed of its trials, so --rate changes nothing" in err
    driver.check(TRIALS, BASELINES)
    assert begun <= {trial for trial, *_ in driver.ends()}
    assert [len(derived) for derived in recorded_steps(driver).values()] == [1, 1]
