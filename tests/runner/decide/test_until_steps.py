"""`until: {steps: ..}`: which cells are trained again at twice the steps, and which runs then answer."""

import math
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from typing_extensions import override

from loopscale.records.decisions import Decision, answering_factors
from loopscale.records.model import STEPS_FACTOR
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Baseline, Idle, Job, Report
from loopscale.training.trial import Trial
from tests.runner.decide.test_budget import Machines
from tests.runner.decide.test_until import (
    CLEAR,
    LAW,
    LEARNT,
    PLATEAU,
    SAME,
    Trained,
    claim,
    deciding,
    falling,
    recorded,
)
from tests.runner.simulated_study import Store, complete, ends, resumed

FALLING = LEARNT | {"still_falling": 0.2, "still_falling_low": 0.1, "still_falling_high": 0.3}
OVER = LEARNT | {"still_falling": 0.02, "still_falling_low": -0.02, "still_falling_high": 0.06}


@dataclass
class Longer(Trained):
    """Workers whose nets have learnt, or are over, from a factor of the steps on."""

    ready: int = 2
    """The factor of the steps from which `learning` holds."""
    early: dict[str, float] = field(default_factory=lambda: dict(PLATEAU))
    """What shorter trainings record of themselves."""
    only: tuple[int, ...] = (1, 2, 4, 8)
    """The loops of the cells with such short trainings."""

    @override
    def _evaluate(self, job: Job) -> Report:
        kept = self.learning
        if isinstance(job.work, Trial) and job.work.training.loops in self.only:
            self.learning = kept if job.steps_factor >= self.ready else self.early
        try:
            return super()._evaluate(job)
        finally:
            self.learning = kept

    @override
    def log_error(self, work: Trial) -> float:
        mean = self.means.get(work.training.loops, 0.0)
        return mean + random.Random(f"{work.seed} {work.training.loops} {work.training.steps}").gauss(
            0, self.sd
        )


def trained(store: Store) -> dict[tuple[int, int], int]:
    """The number of finished replicates, by the loops of the cell and the number of steps."""
    counts: dict[tuple[int, int], int] = {}
    for record in store.records():
        if record.role == "replicate" and record.outcome == "finished":
            (loops,) = (n for n in (1, 2, 4, 8) if record.cell == KEYS[n])
            counts[loops, record.step] = counts.get((loops, record.step), 0) + 1
    return counts


KEYS = {cell.values["training.loops"]: cell.key for cell in deciding(CLEAR).cells()}


def said(store: Store) -> list[tuple[str, int, int, str, str]]:
    return [(each.text, each.steps_factor, each.seeds, each.verdict, each.step) for each in store.decisions()]


def test_nets_on_the_plateau_are_trained_again_at_twice_the_steps_and_then_decided():
    made, store = deciding(CLEAR, until={"steps": 4}), Store()
    complete(made, Longer(1, means={1: -2.0}, only=(1, 2)), store)
    assert said(store) == [
        ("1 beats 2", 1, 3, "not learnt", "longer"),
        ("1 beats 2", 2, 3, "holds", "decided"),
    ]
    order = store.decisions()[0]
    assert (order.replicates, order.ordered, order.next_factor) == (3, 6, 2)
    assert trained(store) == {(n, 90): 3 for n in (1, 2, 4, 8)} | {(1, 180): 3, (2, 180): 3}
    factors = [record.tags.get(STEPS_FACTOR) for record in store.records() if record.step == 180]
    assert factors == ["2"] * 6


def test_the_cells_that_no_question_connects_keep_their_steps():
    made, store = deciding(CLEAR, SAME, until={"steps": 2}), Store()
    complete(made, Longer(1, means={1: -2.0, 4: -2.0}, only=(1,)), store)
    assert said(store) == [
        ("1 beats 2", 1, 3, "not learnt", "longer"),
        ("4 beats 8", 1, 3, "holds", "decided"),
        ("1 beats 2", 2, 3, "holds", "decided"),
    ]
    assert {key for key in trained(store) if key[1] == 180} == {(1, 180), (2, 180)}


def test_connected_questions_are_judged_again_at_equal_steps():
    made, store = deciding(CLEAR, claim(2, 4, margin=None), until={"steps": 2}), Store()
    complete(made, Longer(1, means={1: -2.0, 4: 2.0}, only=(1,)), store)
    assert said(store) == [
        ("1 beats 2", 1, 3, "not learnt", "longer"),
        ("2 beats 4", 1, 3, "holds", "decided"),
        ("1 beats 2", 2, 3, "holds", "decided"),
        ("2 beats 4", 2, 3, "holds", "decided"),
    ]
    assert {key for key in trained(store) if key[1] == 180} == {(1, 180), (2, 180), (4, 180)}


def test_a_plateau_at_the_longest_training_ends_the_question():
    made, store = deciding(CLEAR, until={"steps": 4}), Store()
    complete(made, Longer(1, ready=8), store)
    assert [(each[1], each[4]) for each in said(store)] == [(1, "longer"), (2, "longer"), (4, "not learnt")]
    assert {count for (_, steps), count in trained(store).items() if steps > 90} == {3}


def test_an_open_question_that_still_falls_gets_steps_and_no_replicates():
    made, store = deciding(SAME, until={"steps": 2, "looks": [3, 5], "futile": 0.0}), Store()
    complete(made, Longer(1, learning=OVER, early=FALLING), store)
    assert [each[1:] for each in said(store)] == [
        (1, 3, "undecided", "longer"),
        (2, 3, "undecided", "train"),
        (2, 5, "undecided", "most"),
    ]
    assert trained(store)[4, 90] == 3
    assert trained(store)[4, 180] == 5


def test_a_verdict_ends_a_question_although_its_nets_still_fall():
    made, store = deciding(CLEAR, until={"steps": 2}), Store()
    complete(made, Longer(1, means={1: -2.0}, early=FALLING), store)
    assert [each[1:] for each in said(store)] == [(1, 3, "holds", "decided")]


def test_a_net_in_six_that_still_falls_orders_replicates():
    class OneFalls(Trained):
        @override
        def _evaluate(self, job: Job) -> Report:
            first = job.seed == 1 and isinstance(job.work, Trial) and job.work.training.loops == 4
            self.learning = dict(FALLING if first else OVER)
            return super()._evaluate(job)

    made, store = deciding(SAME, until={"steps": 2, "looks": [3, 5], "futile": 0.0}), Store()
    complete(made, OneFalls(1), store)
    assert said(store)[0][4] == "train"


def test_a_law_is_fitted_to_the_longer_trainings_only():
    class Later(Longer):
        """The shorter trainings fall at another rate."""

        @override
        def log_error(self, work: Trial) -> float:
            return super().log_error(work) * (1 if work.training.steps > 90 else 3)

    made, store = deciding(laws=[LAW], until={"steps": 2}), Store()
    complete(made, Later(1, means=falling(1.0), sd=0.02, only=(8,)), store)
    last = store.decisions()[-1]
    assert (last.steps_factor, last.verdict) == (2, "agrees")
    assert last.estimate == pytest.approx(1.0, abs=0.1)


def test_the_level_is_split_over_the_permitted_lengths():
    """A claim with a p-value of .017 to .05 is decided alone, and undecided if three lengths are permitted."""
    words = []
    for steps in (1, 4):
        made, store = deciding(SAME, until={"steps": steps, "looks": [3], "futile": 0.0}), Store()
        complete(made, Trained(1, means={4: -0.16}, sd=0.15), store)
        words.append((store.decisions()[-1].verdict, store.decisions()[-1].p))
    assert words[1][1] == pytest.approx(3 * words[0][1], rel=0.02)
    assert [word for word, _ in words] == ["holds", "undecided"]


def test_a_longer_training_with_a_budget_has_twice_the_budget():
    fixed = {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 4, "heads": 1},
        "training": {"flops": 2e8, "eval_every": 10, "window": 1},
    }
    made = deciding(CLEAR, fixed=fixed, until={"steps": 2})
    cell = made.cells()[0]
    short, long = made.at(cell, {}, 1), made.at(cell, {}, 1, 2)
    assert long.training.flops == 4e8
    assert long.training.steps == pytest.approx(2 * short.training.steps, abs=1)
    assert long.key != short.key


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(10))
def test_a_driver_that_dies_repeatedly_orders_the_same_trainings(seed: int):
    questions = (CLEAR, SAME, claim(2, 4, margin=0.05), claim(8, {"solver": "least_squares"}, margin=None))
    made = deciding(*questions, laws=[LAW], until={"steps": 4, "looks": [3, 4, 5], "futile": 0.0})
    means = falling(0.95) | {8: falling(0.95)[4]}

    def workers(count: int) -> Longer:
        return Longer(count, lambda _: "", means=means, sd=0.1, learning=FALLING, ready=4, only=(1, 2))

    plain, killed = Store(), Store()
    complete(made, workers(1), plain)
    survivors = workers(1 + seed % 3)
    complete(made, survivors, killed, random.Random(seed))
    assert ends(killed.records()) == ends(plain.records())
    assert recorded(killed) == recorded(plain)
    assert {each.steps_factor for each in plain.decisions()} == {1, 2, 4}
    assert len(set(survivors.trained)) == len(survivors.trained), "a step was trained twice"
    assert resumed(made, killed).start_next() is Idle.DONE


def test_a_budget_stops_before_the_longer_trainings_and_a_larger_one_continues_exactly():
    questions: dict[str, Any] = {"until": {"steps": 2, "looks": [3], "futile": 0.0}}
    plain = Store()
    complete(deciding(CLEAR, **questions), Longer(1, lambda _: ""), plain)
    site = Machines(deciding(CLEAR, **questions), random.Random(0), Longer(4, lambda _: ""))
    stops, texts = 0, list[str]()
    while True:
        site.study = deciding(CLEAR, budget={"core_hours": 0.13 + 0.05 * stops}, **questions)
        if site.run_drivers(deaths=False):
            break
        stops += 1
        conductor = site.store.resumed(site.study)
        conductor.meter = site.meter()
        texts.append(str(conductor.budget_spent()))
    assert any(
        "1 beats 2 (not learnt, so its cells are trained at 2 times the steps)" in text for text in texts
    )
    assert recorded(site.store) == recorded(plain)
    assert ends(site.store.records()) == ends(plain.records())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(5))
def test_groups_at_different_lengths_decide_the_same_after_kills(seed: int):
    """The claim on the cells 1 and 2 has looks of its own, beside the looks of claims at the steps of the study."""
    questions = (CLEAR, claim(4, 8, margin=None), claim(8, {"solver": "least_squares"}, margin=None))
    made = deciding(*questions, until={"steps": 2, "looks": [3, 4, 5, 6], "futile": 0.0})
    means = {1: -1.0, 4: -0.2, 8: 0.1}
    plain, killed = Store(), Store()
    complete(made, Longer(1, lambda _: "", means=means, only=(1,)), plain)
    workers = Longer(1 + seed % 3, lambda _: "", means=means, only=(1,))
    complete(made, workers, killed, random.Random(seed))
    assert recorded(killed) == recorded(plain)
    assert ends(killed.records()) == ends(plain.records())
    looks = {factor: [each[2] for each in said(plain) if each[1] == factor] for factor in (1, 2)}
    assert looks[2][0] == 3, "longer trainings begin with the first look"
    assert max(looks[1]) > 3
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


def test_a_claim_that_joins_two_groups_later_trains_both_for_equal_steps():
    store, workers = Store(), Longer(1, means={1: -2.0, 4: -2.0}, only=(1,))
    complete(deciding(CLEAR, SAME, until={"steps": 2}), workers, store)
    complete(deciding(CLEAR, SAME, claim(2, 8, margin=None), until={"steps": 2}), workers, store)
    assert {(loops, 180) for loops in (1, 2, 4, 8)} <= trained(store).keys()
    last = [each for each in store.decisions() if each.text == "2 beats 8"]
    assert {each.steps_factor for each in last} == {2}


def test_a_smaller_factor_later_orders_nothing_longer():
    store, workers = Store(), Longer(1, ready=8)
    complete(deciding(CLEAR, until={"steps": 2}), workers, store)
    before = len(store.notes)
    complete(deciding(CLEAR, until={"steps": 1}), workers, store)
    assert not any(note.tags.get("outcome") == "running" for note in store.notes[before:])


def decision(**changes: Any) -> Decision:
    plain: dict[str, Any] = {
        **dict.fromkeys(("question", "text", "family"), "q"),
        **dict.fromkeys(("estimate", "low", "high", "p", "adjusted_p", "chance", "needed"), math.nan),
        **dict.fromkeys(("seeds", "runs", "replicates", "ordered"), 3),
        "kind": "claim",
        "verdict": "not learnt",
        "step": "longer",
        "cells": ("a", "b"),
    }
    return Decision(**plain | changes)


def test_longer_trainings_answer_when_every_cell_of_their_order_has_one():
    order = decision()
    assert answering_factors([order], {"a": {1, 2}, "b": {1}, "c": {1, 2}}) == {"a": 1, "b": 1, "c": 1}
    assert answering_factors([order], {"a": {1, 2}, "b": {1, 2}, "c": {1}}) == {"a": 2, "b": 2, "c": 1}
    assert answering_factors([], {"a": {1, 2}}) == {"a": 1}


def test_a_conductor_without_decisions_has_the_steps_of_the_study():
    conductor = Conductor(deciding(CLEAR, until={"steps": 4}), [], Store())
    assert {cell_run.steps_factor for cell_run in conductor.cell_runs.values()} == {1}
    assert all(isinstance(job.work, Baseline) or job.steps == 90 for job in conductor.jobs())
