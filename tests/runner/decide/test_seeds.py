"""A search with several seeds of each point: its value, its pruning, its Optuna trials, and its death."""

import math
import random
from collections import defaultdict
from dataclasses import dataclass

import pytest
from optuna.trial import TrialState

from loopscale.records.model import Record
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.runner.simulated_study import Store, Workers, complete, ends, resumed, study

SECOND = 10_001
"""The second seed of every point."""


def two_seeds(**changes: object) -> Study:
    search = {"kind": "tpe", "trials": 8, "seeds": 2}
    return study(**{"scientific": {"training.loops": [2, 4]}, "search": search, **changes})


@dataclass
class NoisyWorkers(Workers):
    """The error of seed 0 misleads: the lowest error of seed 0 is the highest of the second seed."""

    def error_at(self, job: Job, step: int) -> float:
        assert isinstance(job.work, Trial)
        first = 1e-3 + job.work.training.lr
        return (1 / first**3 if job.seed == SECOND else first) + 1 / step


def by_point(records: list[Record], role: str = "tuning") -> dict[tuple[str, int], dict[int | None, Record]]:
    points = defaultdict[tuple[str, int], dict[int | None, Record]](dict)
    for record in records:
        if record.role == role:
            points[record.cell, record.number][record.seed] = record
    return points


def test_every_point_that_finishes_one_seed_trains_the_next():
    records = complete(two_seeds(), Workers(1), Store())
    points = by_point(records)
    assert len(points) == 2 * 8
    for seeds in points.values():
        assert set(seeds) == ({0, SECOND} if seeds[0].outcome == "finished" else {0})
        assert len({repr(record.point) for record in seeds.values()}) == 1


def test_the_second_seeds_are_compared_with_each_other():
    records = complete(two_seeds(), NoisyWorkers(1, fate=lambda job: ""), Store())
    outcomes = {seeds[SECOND].outcome for seeds in by_point(records).values() if SECOND in seeds}
    assert {"finished", "pruned"} == outcomes


def test_the_best_point_has_the_lowest_mean_log_error():
    plain = two_seeds(scheduler={"kind": "none"}, scientific={"training.loops": [2]})
    records = complete(plain, NoisyWorkers(1, fate=lambda job: ""), Store())
    points = by_point(records).values()
    best = min(points, key=lambda seeds: sum(math.log(record.error) for record in seeds.values()))
    assert best is not min(points, key=lambda seeds: seeds[0].error)
    assert [r.point for r in records if r.role == "replicate"] == [best[0].point] * 2


def test_replicates_never_have_a_seed_of_the_search():
    records = complete(two_seeds(replicates=3), Workers(1), Store())
    assert {r.seed for r in records if r.role == "replicate"} == {1, 2, 3}


def test_a_point_is_one_trial_of_optuna_with_the_geometric_mean_of_its_errors():
    plain, store = two_seeds(scheduler={"kind": "none"}), Store()
    records = complete(plain, Workers(1, fate=lambda job: ""), store)
    for cell, cell_run in resumed(plain, store).cell_runs.items():
        values = [trial.value for trial in cell_run.sampler.study.trials]
        points = [seeds for (of, _), seeds in by_point(records).items() if of == cell]
        assert values == pytest.approx([math.sqrt(seeds[0].error * seeds[SECOND].error) for seeds in points])


def test_optuna_knows_at_which_seed_a_point_was_pruned():
    pruned, store = two_seeds(), Store()
    records = complete(pruned, Workers(1), store)
    for cell, cell_run in resumed(pruned, store).cell_runs.items():
        for trial, ((_, _), seeds) in zip(
            cell_run.sampler.study.trials,
            [each for each in by_point(records).items() if each[0][0] == cell],
            strict=True,
        ):
            if trial.state is TrialState.PRUNED:
                last = seeds[max(seeds, key=lambda seed: seed or 0)]
                assert trial.last_step == 90 * (len(seeds) - 1) + max(last.rungs)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["tpe", "random", "gp", "nsga2", "grid"])
def test_a_killed_study_equals_the_uninterrupted_study(kind: str, seed: int):
    changes = {
        "grid": {
            "search": {"kind": "grid", "seeds": 2},
            "nuisance": {"training.lr": {"choice": [1e-3, 1e-2, 0.1, 0.9]}},
        },
        "nsga2": {
            "search": {"kind": "nsga2", "trials": 8, "seeds": 2, "objectives": ["error", "flops"]},
            "scheduler": {"kind": "none"},
        },
    }.get(kind, {"search": {"kind": kind, "trials": 6, "seeds": 3}})
    several = two_seeds(**changes)
    killed = complete(several, Workers(1), Store(), random.Random(seed))
    assert ends(killed) == ends(complete(several, Workers(1), Store()))


@pytest.mark.parametrize("kind", ["median", "hyperband"])
def test_every_scheduler_decides_the_same_after_a_death(kind: str):
    several = two_seeds(scheduler={"kind": kind, "first_rung": 10})
    killed = complete(several, Workers(1), Store(), random.Random(2))
    assert ends(killed) == ends(complete(several, Workers(1), Store()))


def test_a_study_that_asks_for_more_seeds_trains_only_these():
    store, workers = Store(), Workers(2)
    one = two_seeds(search={"kind": "tpe", "trials": 8})
    before = {r.key for r in complete(one, Workers(2), store)}
    records = complete(two_seeds(), workers, store)
    added = [r for r in records if r.key not in before]
    assert {r.seed for r in added if r.role == "tuning"} == {SECOND}
    assert {key for key, _ in workers.trained} <= {r.key for r in added}
    again = Workers(2)
    complete(one, again, store)  # fewer seeds: the second seeds no longer count
    assert not again.trained


def test_one_seed_is_the_default_and_changes_no_trial():
    plain, explicit = study(), study(search={"kind": "tpe", "trials": 12, "seeds": 1})
    assert ends(complete(plain, Workers(1), Store())) == ends(complete(explicit, Workers(1), Store()))
    assert {r.seed for r in complete(plain, Workers(1), Store()) if r.role == "tuning"} == {0}


def test_the_plan_counts_every_seed_and_the_progress_leaves_out_what_pruning_saves():
    plain = two_seeds(scheduler={"kind": "none"}, baselines=[])
    assert plain.planned == 2 * (8 * 2 + 2)
    assert len(complete(plain, Workers(1, fate=lambda job: ""), Store())) == plain.planned
    store = Store()
    records = complete(two_seeds(baselines=[]), Workers(1), store)
    conductor = Conductor(two_seeds(baselines=[]), store.records(), store)
    assert sum(run.planned for run in conductor.cell_runs.values()) == len(records) < plain.planned
