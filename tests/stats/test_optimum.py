"""The optimum of an axis: the vertex, its interval, and what cannot be said."""

import numpy as np
import pytest

from loopscale.stats.optimum import find_optimum

X = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0)


def drawn(
    random: np.random.Generator, noise: float, replicates: int = 5, best: float = 4.0
) -> list[np.ndarray]:
    """Errors about a parabola in the logarithms with its vertex at `best`."""
    return [
        np.exp(0.8 * (np.log(x) - np.log(best)) ** 2 + noise * random.standard_normal(replicates)) for x in X
    ]


def test_the_vertex_of_an_exact_parabola_is_found():
    found = find_optimum(X, [np.repeat(error, 2) for error in drawn(np.random.default_rng(0), 0.0, 1, 5.0)])
    assert (found.place, found.least) == ("inside", 6.0)
    assert found.fitted == (3.0, 4.0, 6.0, 8.0, 12.0)
    assert found.value == pytest.approx(5.0)


def test_the_order_of_the_values_does_not_matter():
    errors = drawn(np.random.default_rng(1), 0.1)
    shuffled = np.random.default_rng(2).permutation(len(X))
    found = find_optimum([X[index] for index in shuffled], [errors[index] for index in shuffled])
    assert found == find_optimum(X, errors)


def test_the_interval_holds_the_optimum_in_95_of_100_cases():
    random = np.random.default_rng(3)
    held, bounded = 0, 0
    for _ in range(1000):
        found = find_optimum(X, drawn(random, 0.2))
        if found.low is not None and found.high is not None:
            bounded += 1
            held += found.low <= 4.0 <= found.high
    assert bounded > 950
    assert 0.93 <= held / bounded <= 0.97


def test_a_least_value_at_the_end_of_the_axis_is_no_optimum():
    falling = [np.array([1 / x, 1.1 / x]) for x in X]
    found = find_optimum(X, falling)
    assert (found.place, found.least, found.value, found.low) == ("at the edge", 12.0, None, None)


def test_noise_as_large_as_the_curve_leaves_the_optimum_undecided():
    random = np.random.default_rng(4)
    places = [find_optimum(X, drawn(random, 3.0, 3)).place for _ in range(200)]
    assert places.count("inside") < 20


def test_values_that_scatter_about_the_parabola_widen_the_interval():
    errors = drawn(np.random.default_rng(5), 0.01)
    scattered = [error * factor for error, factor in zip(errors, (1, 1.2, 0.8, 1, 1.3, 0.8, 1), strict=True)]
    narrow, wide = find_optimum(X, errors), find_optimum(X, scattered)
    assert narrow.high is not None
    assert narrow.low is not None
    assert wide.high is None or wide.low is None or wide.high / wide.low > 3 * narrow.high / narrow.low


def test_one_replicate_has_no_interval():
    found = find_optimum(X, drawn(np.random.default_rng(6), 0.0, 1, 4.0))
    assert (found.place, found.low, found.high) == ("undecided", None, None)
    assert found.value == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("x", "errors", "problem"),
    [((1, 2), ([1.0], [2.0]), "too few"), ((0, 1, 2), ([1.0], [1.0], [1.0]), "above 0")],
)
def test_what_has_no_optimum_is_refused(x, errors, problem: str):
    with pytest.raises(ValueError, match=problem):
        find_optimum(x, [np.array(group) for group in errors])
