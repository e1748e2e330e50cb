"""First-order methods at finite size, compared with exact formulas, limits, and independent prompts."""

import numpy as np
import pytest

from loopscale.tasks.spectrum import level_spectrum
from tests.theory.checks import value

SMALL = {"dim": 4, "points": 12, "spectrum_levels": 4}


@pytest.mark.parametrize(("dim", "point"), [(4, 11), (20, 40), (8, 30)])
def test_one_step_and_two_steps_have_the_exact_excess(dim: int, point: int):
    one, two = (value("first_order_sampled", dim=dim, point=point, loops=loops) for loops in (1, 2))
    assert one == pytest.approx(value("one_step_best", dim=dim, point=point), rel=0.01)
    assert two == pytest.approx(value("first_order_best_2", dim=dim, point=point), rel=0.02)
    assert value("tied_descent_sampled", dim=dim, point=point, loops=1) == pytest.approx(one, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("condition", [1.0, 16.0])
def test_many_dimensions_approach_the_limit_and_few_do_not(condition: float):
    for kind, limit in (
        ("first_order_sampled", "first_order_spectrum"),
        ("tied_descent_sampled", "tied_descent"),
    ):
        large = {"dim": 100, "points": 201, "condition": condition, "loops": 2}
        assert value(kind, **large) == pytest.approx(value(limit, **large), rel=0.05)
        small = SMALL | {"condition": condition, "loops": 8}
        assert value(kind, **small) > 2 * value(limit, **small)


@pytest.mark.slow
@pytest.mark.parametrize("condition", [1.0, 16.0])
def test_a_step_of_one_size_on_other_prompts_has_the_excess(condition: float):
    rng, levels = np.random.default_rng(1), np.array(level_spectrum(4, condition, 4))
    x = rng.standard_normal((20_000, 11, 4)) * np.sqrt(levels)
    nodes, vectors = np.linalg.eigh(np.swapaxes(x, 1, 2) @ x / 11)
    weights = (vectors**2 * levels[:, None]).sum(1)
    for loops in (1, 2, 4):
        least = min(
            (weights * (1 - rate * nodes) ** (2 * loops)).sum(1).mean() for rate in np.linspace(0.1, 1, 91)
        )
        excess = value("tied_descent_sampled", **SMALL, condition=condition, loops=loops)
        assert excess == pytest.approx(least, rel=0.1)
        assert value("first_order_sampled", **SMALL, condition=condition, loops=loops) <= excess * (1 + 1e-9)
