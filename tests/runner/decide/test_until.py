"""`until: decided`: the replicates of each claim, the records, and the same decisions after the death of a driver."""

import json
import math
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from loopscale.evaluate import Curve, RegretCurve
from loopscale.records.decisions import Decision, decision_note
from loopscale.records.model import DECISION, STUDY, tags_below
from loopscale.runner.decide.job import Baseline, Idle, Job, Report
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.runner.decide.test_budget import Machines
from tests.runner.simulated_study import Store, Workers, complete, ends, resumed, study

LOOPS = [1, 2, 4, 8]
LEARNT = {"validate_floor": 0.1, "validate_ignorance": 1.0, "emerged_at": 50.0}
PLATEAU = {"validate_floor": 0.1, "validate_ignorance": 1.0}


def cell(loops: int, **more: int) -> dict[str, int]:
    return {"training.loops": loops} | more


def claim(first: int, second: Any, **changes: Any) -> dict[str, Any]:
    side = cell(second) if isinstance(second, int) else second
    return {"text": f"{first} beats {second}", "first": cell(first), "second": side, "of": "error"} | changes


def deciding(*claims: dict[str, Any], **changes: Any) -> Study:
    """A study of four cells without tuning, whose errors the tests choose."""
    tree: dict[str, Any] = {
        "scientific": {"training.loops": LOOPS},
        "where": "",
        "nuisance": {},
        "scheduler": {"kind": "none"},
        "replicates": 3,
        "claims": list(claims),
        "until": "decided",
        "evaluate": {"loops": 8},
    }
    return study(**tree | changes)


@dataclass
class Trained(Workers):
    """Workers whose final errors are normal on the log scale: a mean for each number of loops, and noise."""

    means: dict[int, float] = field(default_factory=dict)
    sd: float = 0.15
    learning: dict[str, float] = field(default_factory=lambda: dict(LEARNT))

    def log_error(self, work: Trial) -> float:
        mean = self.means.get(work.training.loops, 0.0)
        return mean + random.Random(f"{work.seed} {work.training.loops}").gauss(0, self.sd)

    @override
    def error_at(self, job: Job, step: int) -> float:
        return 0.15 if "emerged_at" in self.learning else 0.95

    @override
    def _evaluate(self, job: Job) -> Report:
        report = super()._evaluate(job)
        level = 0.0 if isinstance(job.work, Baseline) else self.log_error(job.work)
        fall = 1.0 if isinstance(job.work, Baseline) else np.linspace(2, 1, 8)[:, None]
        grid = math.exp(level) * fall * np.ones((8, 2))
        regret = RegretCurve(grid / 2, grid, grid[:, 0])
        metrics = {"evaluate/error": math.exp(level), "evaluate/regret": math.exp(level) / 2}
        metrics |= {} if isinstance(job.work, Baseline) else self.learning
        return replace(report, metrics=metrics, curve=Curve(grid, grid, grid, regret=regret))


def replicates(made: Study, store: Store) -> dict[int, int]:
    """The number of finished replicates, by the loops of the cell."""
    loops = {one.key: one.values["training.loops"] for one in made.cells()}
    finished = [
        record for record in store.records() if record.role == "replicate" and record.outcome == "finished"
    ]
    return {n: sum(loops[record.cell] == n for record in finished) for n in LOOPS}


def steps(store: Store) -> list[tuple[str, int, str, str]]:
    return [(each.text, each.seeds, each.verdict, each.step) for each in store.decisions()]


CLEAR, SAME = claim(1, 2, margin=None), claim(4, 8, margin=None)


def test_a_clear_claim_ends_at_the_first_look_and_an_open_claim_trains_its_own_cells_only():
    made, store = deciding(CLEAR, SAME), Store()
    complete(made, Trained(1, means={1: -2.0}), store)
    counts = replicates(made, store)
    assert counts[1] == counts[2] == 3
    assert counts[4] == counts[8] > 3
    assert steps(store)[0] == ("1 beats 2", 3, "holds", "decided")
    assert store.decisions()[-1].text == "4 beats 8"
    assert store.decisions()[-1].step in (
        "futile",
        "most",
        "decided",
    )


def test_without_the_key_a_study_trains_as_before_and_no_key_of_a_trial_changes():
    plain, decided = deciding(CLEAR, until=None), deciding(CLEAR)
    stores = Store(), Store()
    for made, store in zip((plain, decided), stores, strict=True):
        complete(made, Trained(1, means={1: -2.0}), store)
    assert ends(stores[0].records()) == ends(stores[1].records())
    assert not stores[0].decisions()
    assert len(stores[1].decisions()) == 1


def test_claims_are_level_within_their_margin_and_end_the_study():
    made, store = deciding(claim(1, 2, margin=0.5)), Store()
    complete(made, Trained(1, sd=0.02), store)
    assert steps(store) == [("1 beats 2", 3, "level", "decided")]


def test_a_claim_against_an_algorithm_trains_one_cell():
    made = deciding(claim(1, {"solver": "least_squares"}, margin=None))
    store = Store()
    complete(made, Trained(1, means={1: 0.03}), store)
    counts = replicates(made, store)
    assert counts[1] > 3
    assert counts[2] == counts[4] == counts[8] == 3
    assert {len(each.cells) for each in store.decisions()} == {1}


def test_a_claim_about_more_loops_of_one_cell_is_judged_by_its_curves():
    made = deciding(claim(4, 4, margin=None, of="regret") | {"first": cell(4, loop=8)})
    store = Store()
    complete(made, Trained(1), store)
    (decision,) = store.decisions()
    assert decision.verdict == "holds"
    assert decision.estimate == pytest.approx(1 / (2 - 3 / 7))


def test_regret_is_compared_where_every_run_has_one_and_the_error_otherwise():
    class AtTheFloor(Trained):
        @override
        def _evaluate(self, job: Job) -> Report:
            report = super()._evaluate(job)
            values = dict(report.metrics or {})
            if job.seed == 2:
                values["evaluate/regret"] = 0.0
            values["evaluate/error"] = values["evaluate/error"] ** 2
            return replace(report, metrics=values)

    made = deciding(CLEAR | {"of": "regret"})
    ratios = []
    for workers in (Trained(1, means={1: -2.0}, sd=0.01), AtTheFloor(1, means={1: -2.0}, sd=0.01)):
        store = Store()
        complete(made, workers, store)
        ratios.append(math.log(store.decisions()[0].estimate))
    assert ratios == pytest.approx([-2.0, -4.0], abs=0.1)


def test_a_claim_whose_nets_have_not_learnt_gets_no_replicates():
    made, store = deciding(SAME, CLEAR), Store()
    complete(made, Trained(1, means={1: -2.0}, learning=PLATEAU), store)
    assert set(replicates(made, store).values()) == {3}
    assert {(each.verdict, each.step) for each in store.decisions()} == {("not learnt", "not learnt")}


@dataclass
class Sometimes(Trained):
    """Workers whose nets stay on the plateau at some seeds, with an error that is far from those of learnt nets."""

    stuck: Mapping[int, Collection[int]] = field(default_factory=dict[int, Collection[int]])
    """The seeds without learning, by the loops of the cell."""

    def _is_stuck(self, job: Job) -> bool:
        return isinstance(job.work, Trial) and job.seed in self.stuck.get(job.work.training.loops, ())

    @override
    def error_at(self, job: Job, step: int) -> float:
        return 0.95 if self._is_stuck(job) else super().error_at(job, step)

    @override
    def log_error(self, work: Trial) -> float:
        return super().log_error(work) + 3.0 * (self.learning is PLATEAU)

    @override
    def _evaluate(self, job: Job) -> Report:
        kept = self.learning
        self.learning = PLATEAU if self._is_stuck(job) else kept
        try:
            return super()._evaluate(job)
        finally:
            self.learning = kept


def test_one_run_that_has_not_learnt_blocks_no_claim():
    made, store = deciding(CLEAR), Store()
    complete(made, Sometimes(1, means={1: -2.0}, stuck={1: (2,)}), store)
    last = store.decisions()[-1]
    assert (last.verdict, last.step) == ("holds", "decided")
    assert last.estimate == pytest.approx(math.exp(-2.0), rel=0.3)
    assert last.learnt == f"{last.runs - 1} of {last.runs} and {last.runs} of {last.runs}"
    assert f"learnt: {last.learnt}" in last.end


def test_learnt_runs_that_differ_little_leave_the_counts_to_decide():
    made, store = deciding(CLEAR), Store()
    complete(made, Sometimes(1, stuck={2: range(2, 40)}), store)
    last = store.decisions()[-1]
    assert (last.verdict, last.step) == ("learns more often", "decided")
    assert last.learnt == f"{last.runs} of {last.runs} and 1 of {last.runs}"
    assert 3 < last.seeds < 27


def test_a_claim_goes_on_while_enough_runs_learn_and_ends_if_no_side_does():
    made, store = deciding(SAME), Store()
    complete(made, Sometimes(3, stuck={4: range(1, 40, 4), 8: range(2, 40, 4)}), store)
    assert store.decisions()[-1].seeds > 3
    neither = Store()
    complete(made, Sometimes(3, stuck={4: range(1, 40), 8: range(1, 40)}), neither)
    assert steps(neither) == [("4 beats 8", 3, "not learnt", "not learnt")]
    assert "only 0 of 3 and 0 of 3 runs have learnt" in neither.decisions()[-1].end


def test_a_replicate_that_diverges_is_replaced_by_another_seed():
    def fate(job: Job) -> str:
        return (
            "diverged"
            if job.seed == 2 and isinstance(job.work, Trial) and job.work.training.loops == 2
            else ""
        )

    made, store = deciding(CLEAR), Store()
    complete(made, Trained(1, fate, means={1: -2.0}), store)
    assert replicates(made, store) == {1: 4, 2: 3, 4: 3, 8: 3}
    (decision,) = store.decisions()
    assert (decision.verdict, decision.runs) == ("holds", 3)


def test_a_cell_that_never_finishes_blocks_no_end():
    def fate(job: Job) -> str:
        return "diverged" if isinstance(job.work, Trial) and job.work.training.loops == 2 else ""

    made, store = deciding(CLEAR, SAME), Store()
    complete(made, Trained(1, fate, means={4: -2.0}), store)
    assert steps(store) == [("1 beats 2", 3, "not run", "no data"), ("4 beats 8", 3, "holds", "decided")]


def test_a_look_waits_for_replicates_that_failed_and_the_next_run_trains_them():
    def fails(job: Job) -> str:
        return (
            "failed" if job.seed == 2 and isinstance(job.work, Trial) and job.work.training.loops == 2 else ""
        )

    made, store, workers = deciding(CLEAR), Store(), Trained(1, fails, means={1: -2.0})
    complete(made, workers, store)
    assert not store.decisions()
    workers.fate = lambda _: ""
    complete(made, workers, store)
    assert steps(store) == [("1 beats 2", 3, "holds", "decided")]


def recorded(store: Store) -> list[str]:
    """The decisions as texts, because NaN differs from NaN."""
    return [repr(replace(each, at=0)) for each in store.decisions()]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_driver_that_dies_repeatedly_decides_the_same_and_trains_nothing_twice(seed: int):
    claims = [CLEAR, SAME, claim(1, 4, margin=0.05), claim(8, {"solver": "least_squares"}, margin=0.05)]
    made = deciding(*claims, until={"looks": [3, 5, 8], "futile": 0.0})
    means = {1: -2.0, 4: -1.9}
    plain, killed = Store(), Store()
    complete(made, Trained(1, means=means), plain)
    workers = Trained(1, means=means)
    complete(made, workers, killed, random.Random(seed))
    assert ends(killed.records()) == ends(plain.records())
    assert recorded(killed) == recorded(plain)
    assert len({each.seeds for each in plain.decisions()}) == 3
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.parametrize("count", [2, 5])
def test_the_number_of_workers_changes_no_decision(count: int):
    made, stores = deciding(CLEAR, SAME), (Store(), Store())
    for workers, store in zip((1, count), stores, strict=True):
        complete(made, Trained(workers, means={1: -2.0}), store)
    assert recorded(stores[0]) == recorded(stores[1])
    assert ends(stores[0].records()) == ends(stores[1].records())


def test_decisions_are_recorded_before_the_ordered_replicates_start():
    made, store = deciding(SAME), Store()
    complete(made, Trained(3), store)
    looks = [place for place, note in enumerate(store.notes) if tags_below(DECISION, note.tags)]
    first_start = {
        int(note.tags["seed"]): place
        for place, note in reversed(list(enumerate(store.notes)))
        if "seed" in note.tags
    }
    assert len(looks) > 1
    assert first_start[3] < looks[0] < first_start[4]
    assert first_start[5] < looks[1] < first_start[6]


def test_a_finished_study_runs_nothing_and_records_nothing_more():
    made, store = deciding(CLEAR, SAME), Store()
    complete(made, Trained(1, means={1: -2.0}), store)
    before = len(store.notes)
    assert resumed(made, store).start_next() is Idle.DONE
    assert len(store.notes) == before


def test_more_replicates_than_before_continue_an_undecided_study():
    short, longer = (deciding(SAME, until={"most": most, "futile": 0.0}) for most in (5, 8))
    store, workers = Store(), Trained(1)
    complete(short, workers, store)
    assert steps(store)[-1][1:] == (5, "undecided", "most")
    complete(longer, workers, store)
    assert replicates(longer, store)[4] == 8
    assert len(set(workers.trained)) == len(workers.trained)


def test_a_claim_that_is_added_later_is_judged_without_training_anything_again():
    store, workers = Store(), Trained(1, means={1: -2.0, 4: -2.0})
    complete(deciding(CLEAR), workers, store)
    trained = list(workers.trained)
    complete(deciding(CLEAR, SAME), workers, store)
    assert steps(store)[-1] == ("4 beats 8", 3, "holds", "decided")
    assert workers.trained == trained


def test_a_futile_claim_names_the_trainings_that_a_verdict_would_take():
    made, store = deciding(SAME, until={"futile": 0.4}), Store()
    complete(made, Trained(1), store)
    last = store.decisions()[-1]
    assert last.step == "futile"
    assert last.ordered == last.replicates == 0
    assert last.chance < 0.4
    assert last.needed > 2 * (27 - last.seeds)


def test_a_decision_survives_its_record():
    decision = Decision(
        question="0" * 12,
        kind="claim",
        text="a" * 600,
        seeds=3,
        runs=2,
        estimate=1.5,
        low=math.nan,
        high=math.inf,
        p=0.1,
        adjusted_p=1.0,
        verdict="undecided",
        chance=0.3,
        step="train",
        replicates=5,
        cells=("one", "two"),
        ordered=4,
        needed=math.inf,
        family="f" * 12,
    )
    note = decision_note([decision])
    store = Store([note])
    (read,) = store.decisions()
    assert note.key == STUDY
    assert json.loads(note.tags[decision.tag])["word"] == "undecided", (
        "stores of older versions have this key"
    )
    assert read.at == note.at
    assert repr(replace(read, at=0)) == repr(replace(decision, text="a" * 500))


def test_a_damaged_decision_is_left_out():
    store = Store([decision_note([])])
    store.notes[0].tags["decision/3/x"] = "{"
    assert store.decisions() == ()


def test_a_tuned_study_replicates_its_best_point_and_never_tunes_again():
    changes = {
        "nuisance": {"training.lr": {"real": [1e-5, 1.0], "scale": "log"}},
        "search": {"kind": "tpe", "trials": 4},
    }
    made, store = deciding(SAME, **changes), Store()
    complete(made, Trained(1, lambda _: ""), store)
    records = store.records()
    assert sum(record.role == "tuning" for record in records) == 4 * len(LOOPS)
    for each in made.cells():
        points = {
            repr(record.point) for record in records if record.cell == each.key and record.role == "replicate"
        }
        assert len(points) == 1
    assert replicates(made, store)[4] > 3


LAW: dict[str, Any] = {
    "along": "training.loops",
    "form": ["power"],
    "theory": {"kind": "ista", "smoothness": 1, "distance": 1},
}
"""The bound falls as 1 / T."""


def falling(rate: float) -> dict[int, float]:
    """Mean log errors that fall as T^-rate."""
    return {loops: -rate * math.log(loops) for loops in LOOPS}


@pytest.mark.parametrize(("rate", "word"), [(1.0, "agrees"), (0.5, "slower"), (1.5, "faster")])
def test_a_clear_law_is_decided_at_the_first_look(rate: float, word: str):
    made, store = deciding(laws=[LAW]), Store()
    complete(made, Trained(1, means=falling(rate), sd=0.02), store)
    (decision,) = store.decisions()
    assert (decision.kind, decision.verdict, decision.step) == ("law", word, "decided")
    assert decision.low < rate < decision.high
    assert decision.text == "error along training.loops, ista"
    assert set(replicates(made, store).values()) == {3}


def test_an_open_law_trains_all_its_cells_and_a_claim_beside_it_its_own():
    made, store = deciding(SAME, laws=[LAW], until={"looks": [3, 5, 8], "futile": 0.0}), Store()
    complete(made, Trained(1, means=falling(0.95) | {8: falling(0.95)[4]}, sd=0.1), store)
    laws = [each for each in store.decisions() if each.kind == "law"]
    assert laws[0].step == "train"
    assert len(laws[0].cells) == 4
    assert laws[0].ordered == 4 * 2
    assert replicates(made, store)[1] == replicates(made, store)[2] == laws[-1].seeds > 3


def test_a_law_that_theory_does_not_judge_orders_nothing():
    alone = [LAW | {"theory": None}, LAW | {"of": "emerged_at"}, {"along": "loop", "theory": "chebyshev"}]
    made, store = deciding(CLEAR, laws=alone), Store()
    complete(made, Trained(1, means={1: -2.0}), store)
    assert steps(store) == [("1 beats 2", 3, "holds", "decided")]


def test_a_law_on_nets_that_have_not_learnt_gets_no_replicates():
    made, store = deciding(laws=[LAW]), Store()
    complete(made, Trained(1, means=falling(1.0), sd=0.3, learning=PLATEAU), store)
    assert steps(store)[0][2:] == ("not learnt", "not learnt")
    assert set(replicates(made, store).values()) == {3}


def test_a_futile_law_names_the_trainings_that_it_would_take():
    made, store = deciding(laws=[LAW], until={"futile": 0.4}), Store()
    complete(made, Trained(1, means=falling(1.3), sd=0.6), store)
    last = store.decisions()[-1]
    assert (last.step, last.ordered) == ("futile", 0)
    assert last.chance < 0.4
    assert last.needed > 4 * (27 - last.seeds)


def test_values_that_scatter_about_a_law_make_it_futile_because_no_replicate_helps():
    means = falling(0.93) | {2: falling(0.93)[2] + 0.6, 4: falling(0.93)[4] - 0.6}
    made, store = deciding(laws=[LAW]), Store()
    complete(made, Trained(1, means=means, sd=0.03), store)
    (last,) = store.decisions()
    assert (last.verdict, last.step, last.needed) == ("undecided", "futile", math.inf)


def test_a_law_is_fitted_without_its_held_out_cells():
    axes = {"training.loops": [1, 2, 4, 8, 16]}
    changes: dict[str, Any] = {"scientific": axes, "evaluate": {"loops": 16}}
    made = deciding(laws=[LAW | {"hold_out": 1}], until={"looks": [3, 5], "futile": 0.0}, **changes)
    store = Store()
    complete(made, Trained(1, means=falling(0.95) | {16: 5.0}, sd=0.1), store)
    assert {len(each.cells) for each in store.decisions()} == {4}
    assert store.decisions()[-1].estimate == pytest.approx(0.95, abs=0.2)


def test_a_law_without_runs_in_one_cell_ends_without_data():
    def fate(job: Job) -> str:
        return "diverged" if isinstance(job.work, Trial) and job.work.training.loops == 2 else ""

    made, store = deciding(laws=[LAW]), Store()
    complete(made, Trained(1, fate, means=falling(1.0)), store)
    assert steps(store)[0][2:] == ("undecided", "no data")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(5))
def test_a_driver_that_dies_repeatedly_decides_the_same_on_laws(seed: int):
    made = deciding(SAME, CLEAR, laws=[LAW], until={"looks": [3, 4, 5], "futile": 0.0})
    plain, killed = Store(), Store()
    means = falling(0.95) | {8: falling(0.95)[4]}
    complete(made, Trained(1, means=means, sd=0.1), plain)
    workers = Trained(3, means=means, sd=0.1)
    complete(made, workers, killed, random.Random(seed))
    assert ends(killed.records()) == ends(plain.records())
    assert recorded(killed) == recorded(plain)
    assert len({each.seeds for each in plain.decisions() if each.kind == "law"}) > 1
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_that_ends_within_a_look_leaves_the_last_verdicts_and_a_larger_one_continues_exactly(
    seed: int,
):
    questions: dict[str, Any] = {"laws": [LAW], "until": {"looks": [3, 4, 5], "futile": 0.0}}
    unlimited = deciding(SAME, CLEAR, **questions)
    means = falling(0.95) | {8: falling(0.95)[4]}
    plain = Store()
    complete(unlimited, Trained(1, means=means, sd=0.1), plain)
    site = Machines(unlimited, random.Random(seed), Trained(4, lambda _: "", means=means, sd=0.1))
    stops, within = 0, 0
    while True:
        site.study = deciding(SAME, CLEAR, budget={"core_hours": 0.13 + 0.05 * stops}, **questions)
        if site.run_drivers(deaths=False):
            break
        stops += 1
        records = site.store.records()
        assert not [record.key for record in records if record.status == "RUNNING"]
        so_far = recorded(site.store)
        assert so_far == recorded(plain)[: len(so_far)]
        conductor = site.store.resumed(site.study)
        conductor.meter = site.meter()
        text = str(conductor.budget_spent())
        if so_far and (
            still := [each for each in site.store.decisions() if each.seeds == 3 and not each.over]
        ):
            within += any(len(run.answers) < run.replicates for run in conductor.cell_runs.values())
            assert f"4 beats 8 ({still[0].verdict} after" in text
            assert "a verdict takes about" in text
        elif not so_far:
            assert "3 questions stay open: 4 beats 8 (the first look takes 3 replicates)" in text
    assert within
    assert recorded(site.store) == recorded(plain)
    assert ends(site.store.records()) == ends(plain.records())
    assert len(site.workers.trained) == len(set(site.workers.trained)), "a step was trained twice"
