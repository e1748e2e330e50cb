"""`until: decided` through the real conductor in simulated time: what it spends, and how often it is wrong."""

from typing import Any

import numpy as np
import pytest

from loopscale.runner.simulation.curves import LearningCurves, RecordedTrial
from loopscale.runner.simulation.simulate import SimulatedCluster
from loopscale.runner.simulation.until import EFFECTS, UntilForecast, until_forecasts
from loopscale.studies.spec import Study
from loopscale.studies.until import UntilDecided
from tests.runner.decide.test_until import claim, deciding

SEEDS = dict(zip(EFFECTS, (16.4, 17.9, 19.4, 12.8, 4.6), strict=True))
"""Mean seeds of 40,000 vectorised studies with noise .15, from docs/statistics.md."""
SD_SEEDS = 9.5
"""The largest standard deviation of the seeds between studies: half of the range from 3 to 27, and less."""


def forecasts(
    study: Study, courses: int, sd: float, recorded: list[RecordedTrial] = []
) -> list[UntilForecast]:
    return until_forecasts(study, LearningCurves(study, recorded, 1e12), SimulatedCluster(4), courses, sd)


ONE_PAIR = claim(1, 2, margin=None)


def check_against_the_vectorised_studies(courses: int) -> None:
    for each in forecasts(deciding(ONE_PAIR), courses, 0.15):
        assert each.effect is not None
        allowed = 3.5 * SD_SEEDS / np.sqrt(courses)
        assert each.replicates == pytest.approx(SEEDS[each.effect], abs=allowed)
        false = each.words.get("does not hold", 0.0) + (
            each.words.get("holds", 0.0) if each.effect == 0 else 0.0
        )
        assert false <= 0.05 + 3.5 * np.sqrt(0.05 * 0.95 / courses)


def test_the_conductor_needs_as_many_seeds_as_the_vectorised_studies():
    check_against_the_vectorised_studies(40)


@pytest.mark.slow
def test_the_conductor_needs_as_many_seeds_as_the_vectorised_studies_in_many_courses():
    check_against_the_vectorised_studies(400)


def test_a_clear_effect_costs_fewer_trials_than_none():
    none, *_, clear = forecasts(deciding(ONE_PAIR), 10, 0.15)
    assert clear.trials < none.trials
    assert clear.words == {"holds": 1.0}


def test_the_most_trials_are_those_of_the_last_look():
    until = {"looks": [3, 5], "futile": 0.0}
    none, *_ = forecasts(deciding(ONE_PAIR, until=until), 5, 0.15)
    assert none.most_trials == 4 * 3 + 2 * 2
    assert UntilDecided(**until).schedule(3).seeds == (3, 5)


def recorded(study: Study, errors: dict[int, list[float]]) -> list[RecordedTrial]:
    """Recorded replicates with these final errors, by the loops of the cell."""
    trials: list[RecordedTrial] = []
    for cell in study.cells():
        for seed, error in enumerate(errors.get(cell.values["training.loops"], []), start=1):
            settings: dict[str, Any] = {"training.steps": 90}
            trials.append(
                RecordedTrial(
                    f"{cell.key}{seed}", cell.key, "finished", settings, [(1.0, error)], 1.0, 1.0, "replicate"
                )
            )
    return trials


def test_recorded_replicates_give_the_means_and_the_noise():
    study = deciding(ONE_PAIR)
    records = recorded(study, {1: [0.10, 0.11, 0.12], 2: [0.50, 0.55, 0.60]})
    (only,) = until_forecasts(study, LearningCurves(study, records, 1e12), SimulatedCluster(4), 5)
    logs = np.log([[0.10, 0.11, 0.12], [0.50, 0.55, 0.60]])
    assert only.effect is None
    assert only.sd == pytest.approx(np.sqrt(logs.var(axis=1, ddof=1).mean()))
    assert only.words == {"holds": 1.0}


def test_without_records_the_noise_is_that_of_the_shipped_table():
    study = deciding(ONE_PAIR)
    none, *_ = until_forecasts(study, LearningCurves(study, [], 1e12), SimulatedCluster(4), 1)
    assert 0.01 < none.sd < 1
