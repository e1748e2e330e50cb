"""Best matches and their growth, from planted similarities and matches."""

import math

import numpy as np
import pytest
from scipy.optimize import differential_evolution

from loopscale.papers.best_matches import fit_trend
from loopscale.stats.best_matches import Matches, best_matches, between_iterates


def test_the_first_of_equal_iterates_is_the_match_and_the_last_iterate_is_marked():
    matches = best_matches(np.array([[0.5, 0.9, 0.9 + 1e-8], [0.1, 0.2, 0.3]]))
    assert matches.iterates.tolist() == [2, 3]
    assert matches.last.tolist() == [False, True]


def planted(replicates: list[list[int]], similarity: float = 0.95, last: int | None = None) -> list[Matches]:
    return [
        Matches(
            np.arange(1, len(iterates) + 1),
            np.array(iterates),
            np.full(len(iterates), similarity),
            np.array([iterate == last for iterate in iterates]),
        )
        for iterates in replicates
    ]


def test_planted_trends_are_found_and_their_intervals_hold_the_planted_rates():
    rng, covered = np.random.default_rng(0), []
    for _ in range(30):
        lines = [
            np.round(1 + (3 + rng.normal(0, 0.2)) * np.arange(1, 9) + rng.normal(0, 0.4, 8)) for _ in range(3)
        ]
        trend = fit_trend(planted([np.maximum(line, 1).astype(int).tolist() for line in lines]))
        assert trend.kind == "linear"
        assert trend.fit
        assert trend.fit.interval
        covered.append(trend.fit.interval[0] <= 3 <= trend.fit.interval[1])
    assert sum(covered) >= 25
    powers = [np.round(2.0 ** (np.arange(1, 9) + rng.normal(0, 0.2, 8))) for _ in range(3)]
    trend = fit_trend(planted([power.astype(int).tolist() for power in powers]))
    assert trend.kind == "exponential"
    assert trend.fit
    assert trend.fit.interval
    assert trend.fit.interval[0] < math.log(2) < trend.fit.interval[1]


@pytest.mark.parametrize(
    ("iterates", "similar", "kind", "why"),
    [
        ([[3, 19, 2, 14, 1, 9], [9, 2, 17, 1, 20, 3]], 0.95, "none", "jumps about"),
        ([[4] * 6, [4] * 6], 0.95, "none", "stays where it is"),
        ([[1, 3, 5, 7, 9, 11], [12, 10, 8, 6, 4, 2]], 0.95, "undecided", "contains 0"),
        ([[1, 2, 3, 4]], 0.95, "undecided", "too few steps"),
        ([[1, 2, 3], [1, 2, 3]], 0.95, "undecided", "fewer than 4"),
        ([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]], 0.3, "undecided", "fewer than 4"),
        ([[4, 5, 6, 7, 8, 9]], 0.95, "undecided", "fit alike"),
    ],
)
def test_matches_without_a_clear_growth_have_no_trend(
    iterates: list[list[int]], similar: float, kind: str, why: str
):
    trend = fit_trend(planted(iterates, similar))
    assert (trend.kind, why in trend.why) == (kind, True), trend


def test_the_line_is_the_nearest_one_also_where_the_matches_grow_fast():
    steps, iterates = np.arange(2, 7), np.array([3, 5, 17, 33, 37])
    matches = Matches(steps, iterates, np.full(5, 0.95), np.zeros(5, dtype=bool))
    fit = fit_trend([matches] * 2).fits["linear"]

    def loss(line: tuple[float, float]) -> float:
        return float(np.sum(np.log(np.maximum(line[0] + line[1] * steps, 1e-3) / iterates) ** 2))

    wanted = differential_evolution(loss, [(-60, 60), (-20, 20)], rng=0, tol=1e-10)
    assert loss((fit.levels[0], fit.rates[0])) == pytest.approx(wanted.fun, rel=1e-4)
    assert fit.rates[0] == pytest.approx(wanted.x[1], rel=1e-2)
    assert fit.levels[0] + 2 * fit.rates[0] > 0, "above 0 at every step"


def test_matches_at_the_last_iterate_are_left_out():
    assert fit_trend(planted([[2, 4, 6, 8, 10, 10, 10]], last=10)).steps == (1, 2, 3, 4)


def test_a_match_between_iterates_is_the_top_of_a_parabola_near_the_best_iterate():
    iterates = np.arange(1.0, 9.0)
    tops = np.array([1.3, 4.2, 6.49, 7.0])
    parabolas = 1 - 0.01 * (iterates - tops[:, None]) ** 2
    np.testing.assert_allclose(between_iterates(parabolas)[1:], tops[1:], atol=1e-9)
    assert between_iterates(parabolas)[0] == 1, "the first iterate has no neighbour before it"
    constant = np.full((1, 8), 0.9)
    rising = iterates[None] / 10
    steep = np.array([[0.0, 0.9, 0.9 - 1e-9, 0.2]])
    assert [between_iterates(each)[0] for each in (constant, rising)] == [1, 8]
    assert between_iterates(steep)[0] == pytest.approx(2.5, abs=1e-6)
