import math
from pathlib import Path

import numpy as np
import pytest

from loopscale.analysis.answers.pareto import compares_models, fronts, stretches
from loopscale.analysis.recorded.equal_cost import error_at_cost
from loopscale.analysis.recorded.load import find_results
from loopscale.analysis.recorded.prices import study_prices
from loopscale.contracts.planted_study import comparison

DATA = Path(__file__).parents[3] / "notebooks" / "data"


@pytest.fixture(scope="module")
def figure2a():
    return find_results("algoformer/reduced/figure2a", beside=DATA)


@pytest.mark.parametrize("basis", ["flops", "seconds"])
def test_no_cell_has_less_regret_than_the_front_at_any_cost(figure2a, basis: str):
    [front] = fronts(figure2a, basis)
    assert front.measure == "regret"
    priced = study_prices(figure2a)
    costs = [point.cost for point in front.best]
    assert costs == sorted(costs)
    for budget in np.geomspace(min(costs), 2 * max(costs), 50):
        [*_, best] = [point for point in front.best if point.cost <= budget * (1 + 1e-9)]
        for cell in figure2a.cells:
            reached = (p.value for p in front.points if p.cell == cell.key and p.cost <= budget)
            assert best.value <= min(reached, default=math.inf)
    for cell in figure2a.cells:  # the points are means of single runs at their cost
        [*_, last] = [point for point in front.points if point.cell == cell.key]
        single = [
            error_at_cost(run, **{basis: last.cost}, of="regret", price=priced[run.trial])
            for run in cell.runs
        ]
        assert last.value == pytest.approx(np.mean(single))
        assert last.complete


def test_the_table_has_one_row_for_each_stretch_of_a_cell(figure2a):
    [front] = fronts(figure2a, "flops")
    rows = stretches(front)
    assert [row.label for row in rows] == ["gpt2", "algoformer"]
    assert rows[0].to_cost < rows[1].from_cost
    assert rows[0].first > rows[0].last > rows[1].first > rows[1].last
    assert [row.schedule for row in rows] == ["complete at its end"] * 2


def test_a_front_of_a_task_without_a_known_floor_is_of_the_error():
    planted = comparison()
    rows = planted.results.trials.assign(**{"task.kind": "of_the_future", "training.steps": 1000})
    [front] = fronts(planted.changed(trials=rows), "flops")
    assert front.measure == "error"
    assert min(point.value for point in front.points) == front.best[-1].value > 0


def test_a_study_of_one_kind_of_model_compares_no_models(figure2a):
    assert compares_models(figure2a)
    assert not compares_models(find_results("algoformer/reduced/figure5", beside=DATA))
