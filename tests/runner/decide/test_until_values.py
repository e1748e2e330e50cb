"""`until: {values: ..}`: which law orders its cells in reserve, and which verdict then counts."""

import math
import random
from typing import Any

import pytest

from loopscale.notation.mistakes import Mistakes
from loopscale.runner.decide.job import Idle, Job
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.runner.decide.test_budget import Machines
from tests.runner.decide.test_until import LAW, SAME, Trained, claim, deciding, recorded
from tests.runner.simulated_study import Store, complete, ends, resumed

LOOPS = [1, 2, 4, 8, 16, 32]
RESERVE = {"training.loops": [16, 32]}


def reserving(*claims: dict[str, Any], until: dict[str, Any] | None = None, **changes: Any) -> Study:
    """Four cells of a law, and two cells in reserve."""
    scientific = {"training.loops": LOOPS}
    until = {"values": RESERVE} | (until or {})
    return deciding(
        *claims,
        **{"laws": [LAW], "scientific": scientific, "until": until, "evaluate": {"loops": 32}} | changes,
    )


def falling(rate: float) -> dict[int, float]:
    return {loops: -rate * math.log(loops) for loops in LOOPS}


def finished(made: Study, store: Store) -> dict[int, int]:
    """The number of finished replicates, by the loops of the cell."""
    loops = {cell.key: cell.values["training.loops"] for cell in made.cells()}
    counts = dict.fromkeys(LOOPS, 0)
    for record in store.records():
        if record.role == "replicate" and record.outcome == "finished":
            counts[loops[record.cell]] += 1
    return counts


FEW: dict[str, Any] = {"looks": [3, 4, 5], "futile": 0.0}
"""With a noise of .2, the four cells need more replicates than the last look has."""


def looks(store: Store) -> list[tuple[int, str, str, int]]:
    return [(each.seeds, each.verdict, each.step, len(each.cells)) for each in store.decisions()]


def test_a_clear_law_leaves_the_cells_in_reserve_untrained():
    made, store = reserving(), Store()
    complete(made, Trained(1, means=falling(1.0), sd=0.02), store)
    assert looks(store) == [(3, "agrees", "decided", 4)]
    assert finished(made, store) == {1: 3, 2: 3, 4: 3, 8: 3, 16: 0, 32: 0}


def test_an_open_law_orders_its_cells_in_reserve_and_is_then_judged_by_all_values():
    made, store = reserving(until=FEW), Store()
    complete(made, Trained(1, means=falling(1.08), sd=0.2), store)
    first, *later = store.decisions()
    assert (first.verdict, first.step, len(first.cells)) == ("undecided", "values", 2)
    assert (first.replicates, first.ordered) == (3, 6)
    assert {len(each.cells) for each in later} == {6}
    assert {each.question for each in later} == {later[0].question} != {first.question}
    assert later[-1].estimate == pytest.approx(1.08, abs=0.15)
    assert finished(made, store)[32] >= 3


def test_replicates_come_first_where_they_decide_for_fewer_flops():
    """Two cells of 16 and 32 loops cost three times as much as the four cells of 1 to 8 loops."""
    made, store = reserving(), Store()
    complete(made, Trained(1, means=falling(1.0), sd=0.15), store)
    assert store.decisions()[0].step == "train"
    assert finished(made, store)[32] == 0


def test_values_that_scatter_about_a_law_order_the_reserve_and_no_replicates():
    means = falling(0.93) | {2: falling(0.93)[2] + 0.15, 4: falling(0.93)[4] - 0.15}
    made, store = reserving(until={"values": {"training.loops": [16, 32]}}), Store()
    complete(made, Trained(1, means=means, sd=0.01), store)
    assert {each.step for each in store.decisions()} <= {"values", "decided", "futile"}


def test_the_level_of_a_law_with_values_in_reserve_is_split():
    """The first question is judged at half of the level that the same law has alone."""
    ends_of_interval = []
    for made in (reserving(until={"most": 3}), deciding(laws=[LAW], until={"most": 3})):
        store = Store()
        complete(made, Trained(1, means=falling(1.0), sd=0.15), store)
        ends_of_interval.append((store.decisions()[0].low, store.decisions()[0].high))
    (low, high), (low_alone, high_alone) = ends_of_interval
    assert low < low_alone < high_alone < high


def test_a_claim_beside_the_law_keeps_its_own_looks():
    made, store = reserving(claim(1, {"solver": "least_squares"}, margin=None), until=FEW), Store()
    complete(made, Trained(1, means=falling(1.08), sd=0.2), store)
    claims = [each.seeds for each in store.decisions() if each.kind == "claim"]
    assert claims == [3, 4, 5]
    assert any(each.step == "values" for each in store.decisions())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_a_driver_that_dies_repeatedly_orders_the_same_values(seed: int):
    made = reserving(
        SAME,
        claim(1, 2, margin=0.05),
        until={"looks": [3, 4, 5, 6], "futile": 0.0},
        nuisance={"training.lr": {"real": [1e-5, 1.0], "scale": "log"}},
        search={"kind": "random", "trials": 2},
    )
    means = falling(0.9) | {8: falling(0.9)[4]}
    plain, killed = Store(), Store()
    complete(made, Trained(1, lambda _: "", means=means), plain)
    workers = Trained(1 + seed % 3, lambda _: "", means=means)
    complete(made, workers, killed, random.Random(seed))
    assert ends(killed.records()) == ends(plain.records())
    assert recorded(killed) == recorded(plain)
    assert "values" in {each.step for each in plain.decisions()}
    assert len({each.seeds for each in plain.decisions() if len(each.cells) == 6}) > 1
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"
    assert resumed(made, killed).start_next() is Idle.DONE


def test_a_budget_stops_before_the_values_and_a_larger_one_continues_exactly():
    questions: dict[str, Any] = {"until": {"values": RESERVE, "looks": [3, 4], "futile": 0.0}}
    plain = Store()
    workers = {"means": falling(0.95), "sd": 0.15}
    complete(reserving(**questions), Trained(1, lambda _: "", **workers), plain)
    site = Machines(reserving(**questions), random.Random(0), Trained(4, lambda _: "", **workers))
    stops = 0
    while True:
        site.study = reserving(budget={"core_hours": 0.1 + 0.05 * stops}, **questions)
        if site.run_drivers(deaths=False):
            break
        stops += 1
    assert stops > 1
    assert recorded(site.store) == recorded(plain)
    assert ends(site.store.records()) == ends(plain.records())


def test_a_failed_cell_in_reserve_ends_the_law_without_data():
    def fate(job: Job) -> str:
        return "diverged" if isinstance(job.work, Trial) and job.work.training.loops == 32 else ""

    made, store = reserving(until=FEW), Store()
    complete(made, Trained(1, fate, means=falling(1.08), sd=0.2), store)
    assert [each.step for each in store.decisions()] == ["values", "no data"]


def test_a_study_without_the_key_keeps_the_identities_of_its_questions():
    made, store = deciding(laws=[LAW], until={"most": 3}), Store()
    complete(made, Trained(1, means=falling(1.0), sd=0.15), store)
    assert store.decisions()[0].family == "81529153e5ba"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"until": {"values": {"training.loops": [64]}}}, "until.values names 64, which is no value"),
        ({"until": {"values": {"training.lr": [1e-3]}}}, "no axis under scientific"),
        ({"until": {"steps": 2}}, "until.values and until.steps would both change"),
        ({"laws": [LAW | {"hold_out": 1}]}, "a law with hold_out waits for all fitted cells"),
        ({"until": {"values": {"training.loops": [8, 16, 32]}}}, "no law can order loops=8"),
        ({"claims": [claim(1, 16)]}, "claim 1 compares a cell in reserve"),
        ({"until": {"values": {"training.loops": [16], "training.window": [1]}}}, "values names 2 axes"),
    ],
)
def test_values_in_reserve_that_no_law_can_order_are_refused(changes: dict[str, Any], message: str):
    with pytest.raises(Mistakes, match=message):
        reserving(**changes).cells()
