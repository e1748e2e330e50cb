"""The contract of every scheduler. A new file in `loopscale/studies/schedulers` is tested here."""

import itertools
import random
from typing import Any

import pytest

from loopscale.contracts.members import under_test
from loopscale.runner.decide.cell_run import Rungs
from loopscale.studies.schedulers.base import Scheduler

STEPS = 100
FIRST = 4


def made(kind: str, first_rung: int = FIRST) -> Scheduler:
    needed = {"first_rung": first_rung} if under_test(Scheduler)[kind].prunes else {}
    return Scheduler.model_validate({"kind": kind} | needed)


EVERY = pytest.mark.parametrize(
    "scheduler", [made(kind) for kind in under_test(Scheduler)], ids=lambda each: each.kind
)


def train(scheduler: Scheduler, errors: dict[int, float]) -> tuple[Rungs, dict[int, int]]:
    """Train trials one after the other, each with one error at all rungs; the step that each trial reaches."""
    rungs, reached = Rungs(scheduler), dict[int, int]()
    for number, error in errors.items():
        reached[number] = STEPS
        for rung in scheduler.ladder(number, STEPS):
            rungs.add(number, STEPS, rung, error)
            if not rungs.survives(number, STEPS, rung):
                reached[number] = rung
                break
    return rungs, reached


def shuffled(count: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(count), count)


@EVERY
def test_rungs_rise_from_the_first_rung_to_before_the_last_step(scheduler: Scheduler):
    for number in range(6):
        ladder = scheduler.ladder(number, STEPS)
        assert all(a < b for a, b in itertools.pairwise(ladder))
        assert all(scheduler.first_rung <= rung < STEPS for rung in ladder)
    assert bool(scheduler.ladder(0, STEPS)) is scheduler.prunes
    assert scheduler.ladder(0, scheduler.first_rung) == ()


@EVERY
@pytest.mark.parametrize("seed", range(5))
def test_a_trial_that_is_best_at_every_rung_trains_to_the_end(scheduler: Scheduler, seed: int):
    _, reached = train(scheduler, {number: float(rank) for number, rank in enumerate(shuffled(20, seed))})
    assert reached[shuffled(20, seed).index(0)] == STEPS


@EVERY
def test_some_trial_stops_early_if_and_only_if_the_scheduler_prunes(scheduler: Scheduler):
    _, reached = train(scheduler, {number: float(number) for number in range(20)})
    assert any(step < STEPS for step in reached.values()) is scheduler.prunes


@EVERY
def test_a_decision_does_not_depend_on_the_order_in_which_errors_arrived(scheduler: Scheduler):
    """Errors are multiples of 1/8, so that means are exact in every order."""
    errors = {
        (number, rung): ((number * 7) % 12 + 8 / rung) / 8
        for number in range(12)
        for rung in scheduler.ladder(number, STEPS)
    }
    decisions = set[tuple[bool, ...]]()
    for seed in range(4):
        rungs = Rungs(scheduler)
        for number, rung in random.Random(seed).sample(sorted(errors), len(errors)):
            rungs.add(number, STEPS, rung, errors[number, rung])
        decisions.add(tuple(rungs.survives(number, STEPS, rung) for number, rung in errors))
    assert len(decisions) == 1


@EVERY
def test_rungs_rebuilt_from_records_are_the_same(scheduler: Scheduler):
    errors = {number: float(rank) for number, rank in enumerate(shuffled(15, 0))}
    rungs, reached = train(scheduler, errors)
    rebuilt = Rungs(scheduler)
    for number, error in errors.items():
        for rung in scheduler.ladder(number, STEPS):
            if rung <= reached[number]:
                rebuilt.add(number, STEPS, rung, error)
    assert rebuilt.errors == rungs.errors


@EVERY
def test_the_rule_for_ranks_is_the_rule_for_errors_that_do_not_change(scheduler: Scheduler):
    for seed in range(10):
        seen: dict[tuple[int, int], list[int]] = {}
        rungs = Rungs(scheduler)
        for number, rank in enumerate(shuffled(12, seed)):
            for rung in scheduler.ladder(number, STEPS):
                earlier = seen.setdefault((scheduler.bracket(number, STEPS), rung), [])
                rungs.add(number, STEPS, rung, float(rank))
                survives = rungs.survives(number, STEPS, rung)
                assert scheduler.survives_rank(earlier, rank) is survives
                earlier.append(rank)
                if not survives:
                    break


@EVERY
def test_the_expected_share_of_steps_equals_the_share_of_simulated_trials(scheduler: Scheduler):
    share = scheduler.trained_share(8, STEPS)
    assert share == scheduler.trained_share(8, STEPS)
    runs = [train(scheduler, dict(enumerate(map(float, shuffled(8, seed)))))[1] for seed in range(200)]
    simulated = sum(sum(reached.values()) for reached in runs) / (200 * 8 * STEPS)
    assert share == pytest.approx(simulated, abs=0.05)
    assert (share < 1) is scheduler.prunes
    assert scheduler.trained_share(0, STEPS) == 1


@EVERY
def test_only_a_scheduler_that_prunes_needs_a_first_rung(scheduler: Scheduler):
    written: dict[str, Any] = {"kind": scheduler.kind}
    if scheduler.prunes:
        with pytest.raises(ValueError, match="needs first_rung"):
            Scheduler.model_validate(written)
    else:
        assert Scheduler.model_validate(written) == scheduler


@EVERY
def test_a_first_rung_at_or_after_the_last_step_is_a_fault_of_a_scheduler_that_prunes(scheduler: Scheduler):
    assert not list(scheduler.faults(scheduler.first_rung + 1, STEPS))
    for fewest in (scheduler.first_rung, scheduler.first_rung - 0.5):
        assert bool(list(scheduler.faults(fewest, STEPS))) is scheduler.prunes


@EVERY
def test_a_scheduler_survives_a_round_trip_through_yaml(scheduler: Scheduler):
    assert Scheduler.model_validate(scheduler.model_dump(mode="json", exclude_unset=True)) == scheduler
    assert set(scheduler.model_dump(mode="json")) == {"kind", "first_rung", "reduction"}
