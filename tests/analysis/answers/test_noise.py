"""The noise between the replicates of recorded studies."""

import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from loopscale.analysis.answers.noise import exported_studies, noise_rows, noise_table, recorded_cells
from loopscale.analysis.recorded.load import load_results
from loopscale.foresight.learning_times import EmergenceTable
from loopscale.foresight.learning_times import shipped_times as known_times
from loopscale.foresight.noise import NoiseTable, shipped_noise
from loopscale.questions.axes.loop import Loop
from loopscale.records.stores.opening import open_store
from loopscale.stats.contrasts import pool

ALONG_LOOP = Loop().rate_measure

DATA = Path(__file__).parents[3] / "notebooks/data"


def recorded(name: str, study: str) -> NoiseTable:
    return NoiseTable(noise_rows(load_results(open_store(DATA / name), study)))


def test_the_noise_comes_from_the_replicates_of_each_model():
    results = load_results(open_store(DATA / "quickstart"), "quickstart")
    table = NoiseTable(noise_rows(results))
    for cell in results.cells:
        model = str(cell.runs[0].settings["model.kind"])
        spread = pool([np.log(cell.values_of("error"))])
        assert spread is not None
        row = table.rows["linear_regression", model, "error"]
        assert row.noise.total == pytest.approx(np.sqrt(spread.variance))
        assert (row.runs, row.freedom, row.learnt) == (5, 4, 1.0)
    assert table.rows["linear_regression", "looped", "regret"].sd > row.sd
    assert table.rows["linear_regression", "looped", ALONG_LOOP].sd > 0


def test_runs_on_the_plateau_are_no_noise_of_learnt_runs():
    table = recorded("scaling_loop_rates", "scaling/loop_rates")
    row = table.rows["linear_regression", "looped", "error"]
    assert (row.runs, row.learnt) == (44, 31 / 44)
    assert row.gap > 0.3
    assert row.freedom < 22, "22 pairs of replicates, some of them on the plateau"


def test_tasks_without_room_do_not_count():
    table = recorded("clustering_tables", "clustering/reduced/tables")
    assert table.rows["clustering", "encoder", "error"].runs == 42 - 6


def test_recorded_cells_have_the_intervals_of_their_replicates():
    cells = list(recorded_cells(load_results(open_store(DATA / "scaling_loop_rates"), "scaling/loop_rates")))
    assert (len(cells), {len(cell.runs) for cell in cells}, {cell.steps for cell in cells}) == (
        22,
        {2},
        {8_000},
    )
    ends = [by for cell in cells for _, by in cell.runs]
    assert (len(ends), sum(map(math.isfinite, ends))) == (44, 31)
    assert all(after < by for cell in cells for after, by in cell.runs)
    tables = recorded_cells(load_results(open_store(DATA / "clustering_tables"), "clustering/reduced/tables"))
    assert sum(len(cell.runs) for cell in tables) == 42 - 6, "tasks without room do not count"


@pytest.mark.slow
def test_the_shipped_times_equal_the_times_of_the_recorded_studies():
    table = EmergenceTable.of(cell for results in exported_studies(DATA) for cell in recorded_cells(results))
    assert list(table.by_kinds) == list(known_times().by_kinds)
    for row, known in zip(table.rows, known_times().rows, strict=True):
        for field in fields(row):
            value, expected = getattr(row, field.name), getattr(known, field.name)
            assert value == (pytest.approx(expected, abs=0.01) if isinstance(value, float) else expected), (
                field.name
            )


@pytest.mark.slow
def test_the_shipped_table_equals_the_table_of_the_recorded_studies():
    """`make noise` writes the table. Floors are computed again, so the last digits may differ."""
    made = NoiseTable.parse(noise_table(exported_studies(DATA)).text())
    assert made.rows.keys() == shipped_noise().rows.keys()
    for place, row in made.rows.items():
        known = shipped_noise().rows[place]
        assert (row.runs, row.freedom) == (known.runs, known.freedom)
        for name in ("learnt", "sd", "seed_sd", "gap", "plateau_sd"):
            assert getattr(row, name) == pytest.approx(getattr(known, name), rel=0.01, abs=1e-3), place
