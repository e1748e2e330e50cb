"""The noise of planned runs: from the table that ships with the package, and from a study's own records."""

import math
from pathlib import Path

import pytest

from loopscale.foresight.noise import ANY, Noise, NoiseRow, NoiseTable, pooled, shipped_noise
from loopscale.questions.axes.loop import Loop
from loopscale.stats.power import ReplicateNoise

ALONG_LOOP = Loop().rate_measure


def row(sd: float, freedom: int, model: str = "looped", learnt: float = 1.0, gap: float = 0.0) -> NoiseRow:
    return NoiseRow("linear_regression", model, "error", 2 * freedom, learnt, sd, 0.0, freedom, gap, 0.0)


def test_the_shipped_table_has_the_recorded_tasks_and_models():
    places = set(shipped_noise().rows)
    for task, model in [("linear_regression", "looped"), ("pca", "encoder"), ("sparse_recovery", "lista")]:
        assert {(task, model, measure) for measure in ("error", "regret")} <= places
        assert (task, ANY, "error") in places
    assert (ANY, ANY, ALONG_LOOP) in places
    looped = shipped_noise().rows["linear_regression", "looped", "error"]
    assert 0.5 < looped.learnt < 0.9
    assert looped.noise.total == pytest.approx(0.14, abs=0.05), (
        "Muon from .1 scatters less than Adam: 0.2 before"
    )


def test_a_table_equals_the_table_read_from_its_file():
    table = NoiseTable.with_totals([row(0.25, 4), row(0.5, 8, "gpt2", 0.75, 1.5)])
    read = NoiseTable.parse(table.text())
    assert read.text() == table.text()
    assert list(read.rows) == list(table.rows)
    assert read.rows["linear_regression", "gpt2", "error"] == row(0.5, 8, "gpt2", 0.75, 1.5)


def test_variances_are_pooled_by_their_degrees_of_freedom():
    both = pooled([row(0.1, 2), row(0.4, 6, learnt=0.5, gap=2.0)])
    assert both.sd == pytest.approx(math.sqrt((2 * 0.01 + 6 * 0.16) / 8))
    assert (both.freedom, both.runs) == (8, 16)
    assert both.learnt == pytest.approx((4 + 0.5 * 12) / 16)
    assert both.gap == 2.0, "only runs that have not learnt have a gap"


def test_own_records_come_first_and_few_of_them_count_little():
    general = Noise().find("linear_regression", "looped", "error")
    assert general.source == "looped on linear_regression"
    few, many = (
        Noise(NoiseTable([row(1.5, freedom)])).find("linear_regression", "looped", "error")
        for freedom in (1, 10_000)
    )
    assert few.source == many.source == "looped in this study"
    assert general.noise.sd < few.noise.sd < 0.75
    assert many.noise.sd == pytest.approx(1.5, rel=0.01)
    assert (few.noise.learnt, general.noise.learnt < 1) == (1.0, True)


def test_an_unknown_model_has_the_noise_of_the_task_and_an_unknown_task_the_noise_of_all_tasks():
    assert Noise().find("linear_regression", "new", "regret").source == "all models on linear_regression"
    assert Noise().find("new", "new", "regret").source == "all models on all tasks"
    assert Noise().find("pca", "encoder", "no such measure") == Noise().find("pca", "encoder", "error")
    assert Noise().find("pca", "encoder", "raw_error") == Noise().find("pca", "encoder", "error")


def test_a_row_has_the_noise_of_the_runs_behind_the_row():
    noise = ReplicateNoise(0.2, 0.1, 0.75, 1.5, 0.3)
    assert NoiseRow.of("pca", "encoder", "error", noise, 8, 5).noise == noise


def test_the_table_is_part_of_the_package():
    file = Path(__file__).parents[2] / "src/loopscale/foresight/noise.csv"
    assert NoiseTable.parse(file.read_text()).rows == shipped_noise().rows
