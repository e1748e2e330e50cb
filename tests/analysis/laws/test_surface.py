from dataclasses import replace

import numpy as np
import pytest

from loopscale.analysis.laws.surface import EXPONENT_LIMITS, fit_surface

LOOPS, WIDTHS = np.array([1.0, 2, 4, 8]), np.array([8.0, 16, 24, 40])
FLOOR, SCALES, EXPONENTS = 0.05, (0.6, 2.0), (0.8, 0.6)


def planted(seed: int, noise: float, replicates: int, p: float = 1.0, q: float = 2.0, floor: float = FLOOR):
    """Runs at every pair of loops and widths. A run costs loops^p width^q."""
    x, z = (np.tile(each.ravel(), replicates) for each in np.meshgrid(LOOPS, WIDTHS))
    y = floor + SCALES[0] * x ** -EXPONENTS[0] + SCALES[1] * z ** -EXPONENTS[1]
    y = y * np.exp(noise * np.random.default_rng(seed).standard_normal(len(x)))
    return x, z, y, 3e4 * x**p * z**q


def test_a_surface_without_noise_is_fitted_exactly():
    surface = fit_surface(*planted(0, 0.0, 1))
    assert surface.exponents == pytest.approx(EXPONENTS, rel=1e-3)
    assert surface.scales == pytest.approx(SCALES, rel=1e-3)
    assert surface.floor == pytest.approx(FLOOR, rel=1e-2)
    assert surface.cost == pytest.approx((np.log(3e4), 1, 2))
    assert surface.cost_off < 1e-9
    assert surface.intervals is None, "one run in each cell says nothing about the noise"


def test_the_best_pair_has_less_error_than_any_other_at_the_same_cost():
    surface = fit_surface(*planted(0, 0.0, 1))
    for budget in (1e6, 1e7, 1e9):
        x, z = surface.best(budget)
        assert surface.flops(x, z) == pytest.approx(budget)
        others = x * np.geomspace(0.2, 5, 201)
        beside = np.exp(
            (np.log(budget) - surface.cost[0] - surface.cost[1] * np.log(others)) / surface.cost[2]
        )
        assert surface.value(x, z) == pytest.approx(surface.value(others, beside).min(), rel=1e-6)
        assert surface.envelope()(budget) == pytest.approx(surface.value(x, z), rel=1e-9)


def test_the_share_is_the_exponent_of_hoffmann_if_the_cost_is_the_product():
    surface = fit_surface(*planted(0, 0.0, 1, p=1, q=1))
    alpha, beta = EXPONENTS
    assert surface.share == pytest.approx(beta / (alpha + beta), rel=1e-3)
    (x, z), (more, wider) = surface.best(1e6), surface.best(1e8)
    assert np.log(more / x) / np.log(100) == pytest.approx(surface.share)
    assert surface.growth == pytest.approx((surface.share, 1 - surface.share))
    assert np.log(wider / z) / np.log(100) == pytest.approx(1 - surface.share)


def test_a_floor_is_never_below_zero():
    surface = fit_surface(*planted(1, 0.02, 3, floor=0.0))
    assert 0 <= surface.floor < 0.05
    assert min(surface.scales) > 0


def test_a_surface_of_too_few_values_is_an_error():
    x, z, y, flops = planted(0, 0.0, 1)
    with pytest.raises(ValueError, match="2 by 4 values in 8 cells are too few for a surface"):
        fit_surface(x[x < 3], z[x < 3], y[x < 3], flops[x < 3])


def test_an_error_that_does_not_fall_along_an_axis_has_no_best_pair():
    x, z, _, flops = planted(0, 0.0, 1)
    with pytest.raises(ValueError, match="no pair of them is best"):
        fit_surface(x, z, 0.3 * x**-0.5 + 0.1 * z**0.3, flops).best(1e6)


def test_exponents_at_the_limit_or_without_an_upper_end_are_unknown():
    x, z, y, flops = planted(0, 0.0, 1)
    surface = fit_surface(x, z, y, flops)
    assert surface.unknown == ("", "")
    assert replace(surface, exponents=(0.8, EXPONENT_LIMITS[1])).unknown == (
        "",
        "is at the limit of the search",
    )
    open_ended = replace(surface, intervals=((0.1, 2.0), (0.2, np.inf)))
    assert open_ended.unknown == ("", "has no upper bound")
    with pytest.raises(ValueError, match="has no upper bound, so that the best share of FLOPs"):
        open_ended.envelope()


def coverage(simulations: int, each: int) -> dict[str, float]:
    """The share of intervals that cover the truth, for both exponents, the share and the envelope's exponent."""
    alpha, beta = EXPONENTS
    truth = {
        "α": alpha,
        "β": beta,
        "share": beta / (2 * alpha + beta),
        "envelope": alpha * beta / (2 * alpha + beta),
    }
    hits = {name: [] for name in truth}
    for seed in range(simulations * each):
        surface = fit_surface(*planted(seed, noise=(0.01, 0.02, 0.05)[seed % 3], replicates=2 + seed % 2))
        intervals = dict(
            zip(truth, (*surface.intervals, surface.share_interval, surface.envelope_interval), strict=True)
        )
        for name, (low, high) in intervals.items():
            hits[name].append(low <= truth[name] <= high)
    return {name: float(np.mean(each)) for name, each in hits.items()}


@pytest.mark.slow
def test_95_percent_intervals_cover_in_40_studies():
    covered = coverage(40, each=2)
    assert 0.91 <= np.mean(list(covered.values())) <= 0.98, covered


@pytest.mark.slow
def test_95_percent_intervals_cover_in_200_studies():
    for name, share in coverage(200, each=1).items():
        assert 0.91 <= share <= 0.98, name
