"""The model of the steps to emergence: fits of simulated and of few records, and chances for planned studies."""

import math

import numpy as np
import pytest

from loopscale.stats.emergence_times import Cell, EmergenceTimes, PlannedCell, fit_emergence_times

TRUTH = EmergenceTimes(math.log(1500), 0.0, 0.6, 0.5, 0.3)


def simulated(rng: np.random.Generator, studies: int, cells: int, runs: int, most: int) -> list[list[Cell]]:
    """Trainings of `most` steps with a report every 100 steps."""
    drawn = list[list[Cell]]()
    for _ in range(studies):
        level = TRUTH.level + TRUTH.study_sd * rng.standard_normal()
        of_cells = level + TRUTH.cell_sd * rng.standard_normal(cells)
        logs = of_cells[:, None] + TRUTH.run_sd * rng.standard_normal((cells, runs))
        drawn.append([Cell([_interval(math.exp(log), most) for log in cell]) for cell in logs])
    return drawn


def _interval(steps: float, most: int) -> tuple[float, float]:
    by = 100.0 * math.ceil(steps / 100)
    return (by - 100, by) if by <= most else (float(most), math.inf)


@pytest.mark.slow
def test_a_fit_finds_the_effects_behind_censored_records():
    fitted = fit_emergence_times(simulated(np.random.default_rng(0), 40, 4, 3, 3000))
    assert math.exp(fitted.level) == pytest.approx(1500, rel=0.25)
    assert abs(fitted.level - TRUTH.level) < 3 * fitted.level_error
    sds = (fitted.study_sd, fitted.cell_sd, fitted.run_sd)
    assert sds == pytest.approx((TRUTH.study_sd, TRUTH.cell_sd, TRUTH.run_sd), rel=0.25)


def test_chances_equal_the_share_of_simulated_studies():
    drawn = simulated(np.random.default_rng(1), 4000, 3, 4, 2000)
    learnt = np.array([[[math.isfinite(by) for _, by in cell.runs] for cell in study] for study in drawn])
    assert TRUTH.share(2000) == pytest.approx(learnt.mean(), abs=0.02)
    planned = [PlannedCell(2000, 4)] * 3
    assert TRUTH.chance(planned) == pytest.approx(learnt.all(axis=(1, 2)).mean(), abs=0.02)
    assert TRUTH.chance(planned) > 5 * TRUTH.share(2000) ** 12, "runs of one study learn together"


def test_records_of_the_study_come_first():
    early, late = Cell([(300.0, 400.0)] * 3), Cell([(2000.0, math.inf)] * 3)
    unknown = TRUTH.share(2000)
    assert TRUTH.chance([PlannedCell(2000, 1, early)]) > 0.99
    assert TRUTH.chance([PlannedCell(2000, 1, late)]) < 0.1
    assert (
        TRUTH.chance([PlannedCell(2000, 1)], [late]) < unknown < TRUTH.chance([PlannedCell(2000, 1)], [early])
    )
    assert TRUTH.chance([PlannedCell(100_000, 1, late)]) > 0.9


def test_records_that_determine_no_model_move_the_prior():
    prior = EmergenceTimes(math.log(1000), 0.0, 1.0, 0.5, 0.5)
    first_report, never = (
        fit_emergence_times([[Cell([run] * 3)]], prior) for run in ((0.0, 100.0), (2000.0, math.inf))
    )
    assert math.exp(first_report.level) < 300 < 1500 < math.exp(never.level)
    assert first_report.share(1000) > 0.8
    assert never.share(2000) < 0.5
    assert never.level_error > 0.3


def test_far_tails_of_the_interval_have_a_probability():
    narrow = EmergenceTimes(math.log(1000), 0.0, 1e-3, 1e-3, 0.01)
    for run in ((10.0, 11.0), (1e6, math.inf), (0.0, 1.0), (1e5, 2e5)):
        assert 0 <= narrow.chance([PlannedCell(1000, 1, Cell([run]))]) <= 1


@pytest.mark.slow
def test_a_fit_finds_the_slopes_of_covariates_and_chances_use_them():
    rng = np.random.default_rng(2)
    studies = list[list[Cell]]()
    for study in simulated(rng, 30, 4, 3, 10**9):
        values = rng.integers(-1, 3, 4)
        studies.append(
            [
                Cell([_interval(by * math.exp(0.6 * value), 3000) for _, by in cell.runs], (float(value),))
                for cell, value in zip(study, values, strict=True)
            ]
        )
    fitted = fit_emergence_times(studies)
    assert fitted.slopes == pytest.approx((0.6,), abs=0.1)
    assert fitted.share(1500, (2.0,)) < fitted.share(1500, (0.0,)) < fitted.share(1500, (-1.0,))
    assert fit_emergence_times(studies[:3], fitted).slopes == fitted.slopes
