"""`until: decided` through the real conductor in simulated time: the cost, and the share of wrong verdicts."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loopscale.questions.claim import VERDICTS_OF_RATIO
from loopscale.questions.until import UntilDecided
from loopscale.runner.simulation.curves import LearningCurves, RecordedTrial
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from loopscale.runner.simulation.until import (
    EFFECTS,
    UNKNOWN_ERROR,
    AssumedErrors,
    UntilForecast,
    recorded_noise,
    until_forecasts,
)
from loopscale.stats.contrasts import Array
from loopscale.stats.looks import LookSchedule, looks_at
from loopscale.studies.spec import Study
from tests.runner.decide.test_until import LAW, claim, deciding
from tests.stats.simulations import LAW_VALUES, stop_laws

SEEDS = dict(zip(EFFECTS, (16.4, 17.9, 19.4, 12.8, 4.6), strict=True))
"""Mean seeds of 40,000 vectorised studies with noise .15, from docs/statistics.md."""
ONE_PAIR = claim(1, 2, margin=None)


def forecasts(
    study: Study, courses: int, sd: float | None = 0.15, recorded: tuple[RecordedTrial, ...] = ()
) -> list[UntilForecast]:
    curves = LearningCurves(study, recorded, 1e12)
    return until_forecasts(study, curves, SimulatedCluster(4), courses, sd)


def stopped(logs: Array, schedule: LookSchedule) -> tuple[int, str]:
    """The seeds and the word with which a study of two cells stops, from all its possible log errors."""
    for seeds in schedule.seeds:
        looks = looks_at(logs[:, :seeds], 0, 1, schedule)
        assert looks is not None
        if looks.verdict() != "undecided" or looks.is_futile():
            return seeds, VERDICTS_OF_RATIO[looks.verdict()]
    return schedule.seeds[-1], "undecided"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("effect", [0.0, 0.2, 0.5])
def test_the_conductor_stops_where_the_rule_of_the_looks_stops(effect: float):
    study = deciding(ONE_PAIR, scientific={"training.loops": [1, 2]})
    first, second = study.cells()
    schedule = UntilDecided().schedule(3)
    for draw in range(6):
        errors = AssumedErrors({first.key: np.log(UNKNOWN_ERROR) - effect}, 0.15, draw)
        curves = LearningCurves(study, [], 1e12)
        simulation = Simulation(study, curves, SimulatedCluster(2), errors=errors)
        simulation.run()
        last = simulation.records.decisions()[-1]
        seeds = range(1, schedule.seeds[-1] + 1)
        keys = [[study.at(cell, {}, seed).key for seed in seeds] for cell in (first, second)]
        rows = zip((first, second), keys, strict=True)
        logs = np.array([[errors.log_error(cell.key, key) for key in own] for cell, own in rows])
        assert (last.seeds, last.verdict) == stopped(logs, schedule)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_conductor_needs_as_many_seeds_as_the_vectorised_studies():
    """The figures of docs/statistics.md. The tolerances are 3.5 standard errors."""
    courses = 400
    eight = deciding(ONE_PAIR, scientific={"training.loops": list(range(1, 9))})
    for each in forecasts(eight, courses):
        print(each)  # for docs/statistics.md
        assert each.effect is not None
        assert each.covered is not None
        assert each.covered >= 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / courses)
        error = each.replicates_sd / np.sqrt(courses)
        assert each.replicates == pytest.approx(SEEDS[each.effect], abs=3.5 * error)
        false = each.words.get("does not hold", 0.0) + (
            each.words.get("holds", 0.0) if not each.effect else 0
        )
        assert false <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / courses)


@pytest.mark.slow
def test_a_clear_effect_costs_fewer_trials_than_no_effect():
    study = deciding(ONE_PAIR, scientific={"training.loops": [1, 2]})
    none, *_, clear = forecasts(study, 5)
    assert clear.trials < none.trials
    assert clear.words == {"holds": 1.0}


def test_the_largest_number_of_trials_follows_from_the_last_look():
    none, *_ = forecasts(deciding(ONE_PAIR, until={"looks": [3, 5], "futile": 0.0}), 3)
    assert none.most_trials == 4 * 3 + 2 * 2


def recorded(study: Study, errors: dict[int, list[float]]) -> tuple[RecordedTrial, ...]:
    """Recorded replicates with these final errors, by the loops of the cell."""
    trials: list[RecordedTrial] = []
    settings: dict[str, Any] = {"training.steps": 90}
    for cell in study.cells():
        for seed, error in enumerate(errors.get(cell.values["training.loops"], []), start=1):
            identity = f"{cell.key}{seed}", cell.key, "finished"
            trials.append(RecordedTrial(*identity, settings, [(1.0, error)], 1.0, 1.0, "replicate"))
    return tuple(trials)


def test_recorded_replicates_give_the_means_and_the_noise():
    study = deciding(ONE_PAIR)
    errors = {1: [0.10, 0.11, 0.12], 2: [0.50, 0.55, 0.60]}
    (only,) = forecasts(study, 5, None, recorded(study, errors))
    assert only.effect is None
    assert only.sd == pytest.approx(np.sqrt(np.log(list(errors.values())).var(axis=1, ddof=1).mean()))
    assert only.words == {"holds": 1.0}


def test_without_records_the_shipped_table_gives_the_noise():
    none, *_ = forecasts(deciding(ONE_PAIR, until={"most": 3}), 1, None)
    assert 0.01 < none.sd < 1


LOOPS_OF_LAWS = {"training.loops": [1, 2, 4, 8]}


def test_a_law_has_a_line_for_exact_theory_and_a_line_for_theory_that_is_a_quarter_off():
    study = deciding(laws=[LAW], scientific=LOOPS_OF_LAWS)
    exact, off = forecasts(study, 2, 0.02)
    assert (exact.share, exact.words, exact.trials) == (1.0, {"agrees": 1.0}, 12)
    assert (off.share, off.words, off.covered) == (0.75, {"slower": 1.0}, 1.0)


@pytest.mark.slow
def test_the_conductor_decides_laws_as_the_vectorised_studies():
    """The figures of docs/statistics.md, through the real conductor. The tolerances are 3.5 standard errors."""
    courses = 40
    study = deciding(laws=[LAW], scientific=LOOPS_OF_LAWS)
    for each in forecasts(study, courses, 0.2):
        print(each)  # for docs/statistics.md
        assert each.share
        fast = stop_laws(11, 20_000, LAW_VALUES, 0.2, each.share, LookSchedule())
        error = np.hypot(each.replicates_sd, fast.seeds.std()) / np.sqrt(courses)
        assert each.replicates == pytest.approx(fast.seeds.mean(), abs=3.5 * error)
        assert each.covered
        assert each.covered >= 0.95 - 3.5 * np.sqrt(0.95 * 0.05 / courses)
        wrong = each.words.get("faster", 0.0) + (each.words.get("slower", 0.0) if each.share == 1 else 0)
        assert wrong <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / courses)


def test_recorded_noise_is_that_of_the_longest_trainings():
    study = deciding(ONE_PAIR)
    short = recorded(study, {1: [0.9, 0.8, 0.7], 2: [0.5, 0.5, 0.5]})
    long = [
        replace(trial, key=f"{trial.key}x", steps_factor=2) for trial in recorded(study, {1: [0.1, 0.2, 0.4]})
    ]
    means, _ = recorded_noise([*short, *long])
    first, second = study.cells()[:2]
    assert means == pytest.approx({first.key: np.log(0.2), second.key: np.log(0.5)})
