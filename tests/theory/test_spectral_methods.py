"""Shapes of the bounds for transformers on spectral problems, as corrected and as printed."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.theory.checks import assert_refused, bound, slope, value


@pytest.mark.parametrize("overlap", [0.05, 1])
def test_the_accuracy_solves_the_equation_for_the_number_of_steps(overlap: float):
    """ε₀ solves τ = ln(1/(ε₀δ))/ε₀."""
    eps = value("he_pca", eigenvalues=(1.0,), overlap=overlap) ** 2
    assert math.log(1 / (eps * overlap)) / eps == pytest.approx(100)


def test_the_slope_in_the_iterations_matches_the_catalogue_at_its_overlap():
    values = [value("he_pca", loops=tau, overlap=1 / math.log(tau)) for tau in (100, 1000)]
    assert math.log10(values[1] / values[0]) == pytest.approx(-0.41, abs=0.005)


def test_the_product_has_one_factor_per_earlier_component():
    lam = (9.0, 6.0, 4.0, 1.0)
    first, second, third = (value("he_pca", eigenvalues=lam, gap=2.0, component=k) for k in (1, 2, 3))
    assert (second / first, third / second) == pytest.approx((15, 10))
    printed = value("he_pca", eigenvalues=lam, gap=2.0, reading="printed")
    assert printed / first == pytest.approx(15 * 10 * 2.5)


def test_the_joint_error_is_the_root_of_the_sum_of_squares():
    lam = (9.0, 6.0, 4.0)
    errors = [value("he_pca", eigenvalues=lam, gap=2.0, component=k) for k in (1, 2, 3)]
    joint = value("he_pca", eigenvalues=lam, gap=2.0, component=3, joint=True)
    assert joint == pytest.approx(math.hypot(*errors))
    printed = value("he_pca", eigenvalues=lam, gap=2.0, component=3, joint=True, reading="printed")
    assert printed == pytest.approx(errors[0] ** 2 * (15 + 150))


@pytest.mark.parametrize("reading", ["printed", "corrected"])
def test_after_infinite_pretraining_the_joint_bound_of_theorem_7_remains(reading: str):
    lam, shared = (9.0, 6.0, 4.0), {"gap": 2.0, "accuracy": 0.01, "overlap": 0.2, "reading": reading}
    theorem = bound("he_pca", loops=500, eigenvalues=lam, component=3, joint=True, **shared)
    after = value(
        "he_pca_erm",
        unconverged=theorem.unconverged,
        eigenvalues=lam,
        dim=4,
        radius=9.0,
        prompts=10**60,
        **shared,
    )
    assert after == pytest.approx(theorem.value())


@pytest.mark.parametrize(("reading", "exponent"), [("printed", 1 / 7), ("corrected", 1 / 10)])
def test_the_least_printed_bound_falls_more_slowly_than_the_printed_exponent(reading: str, exponent: float):
    """The paper prints n^(-1/5). The logarithms in the bound fade slowly, so that n is very large."""

    def least(prompts: int) -> float:
        def log_bound(logs: np.ndarray) -> float:
            accuracy, unconverged = np.exp(logs).tolist()
            if not unconverged < 0.01:
                return math.inf
            shared = {"eigenvalues": (3.0, 2.0), "overlap": 0.01, "reading": reading, "prompts": prompts}
            return math.log(value("he_pca_erm", accuracy=accuracy, unconverged=unconverged, **shared))

        start = [-0.3 * math.log(prompts), -0.15 * math.log(prompts)]
        return minimize(log_bound, start, method="Nelder-Mead", options={"maxiter": 4000}).fun

    fall = (least(10**60) - least(10**80)) / math.log(10**20)
    assert fall == pytest.approx(exponent, abs=0.004)


@pytest.mark.parametrize(("iterations", "power"), [("growing", 1), ("fixed", 0)])
@pytest.mark.parametrize(("term", "root"), [("root", 0.5), ("linear", 1.0)])
def test_the_tuned_exponent_minimises_the_sum_of_the_terms(iterations, power, term, root):
    def best(n: float) -> float:
        def total(logs: np.ndarray) -> float:
            eps, eps0 = np.exp(logs)
            return math.log(eps * eps0**-power + eps0**root + (n * eps0 * eps**2) ** -0.5)

        return minimize(
            total, [-2.0, -2.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
        ).fun

    exponent = slope("he_pca_tuned", "prompts", iterations=iterations, term=term)
    assert (best(1e12) - best(1e8)) / math.log(1e4) == pytest.approx(exponent, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "setting", "over", "settings", "expected"),
    [
        ("he_gmm", "points", (100, 1000), {}, -0.216),
        ("he_gmm", "points", (10**9, 10**10), {}, -1 / 3 + 2 / 3 * math.log10(10 / 9)),
        ("he_gmm", "prompts", (10**4, 10**5), {"factor": 1e9}, -1 / 7),
        ("he_pca_n", "prompts", (10**4, 10**5), {}, -0.5),
        ("he_pca_n", "dim", (10**3, 10**4), {}, 1),
        (
            "he_pca_erm",
            "prompts",
            (1, 4),
            {"unconverged": 0.09, "accuracy": 1e-6, "eigenvalues": (1.0,)},
            -0.5,
        ),
    ],
)
def test_the_slope_matches_the_catalogue(kind, setting, over, settings, expected):
    assert slope(kind, setting, over, **settings) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("he_pca", {"component": 3}, "component <= the number of eigenvalues"),
        ("he_pca", {"gap": 1.5}, "fall by the gap or more"),
        ("he_pca", {"eigenvalues": (1.0, 2.0)}, "fall by the gap or more"),
        ("he_pca_erm", {"dim": 1}, "the number of eigenvalues <= d"),
        ("he_pca_erm", {"gap": 1.5}, "fall by the gap or more"),
        ("he_pca_erm", {"radius": 2.0}, "up to the radius"),
        ("he_pca_erm", {"dim": 20}, "overlap < 1 / d"),
        ("he_pca_erm", {"unconverged": 0.2}, "unconverged < overlap as printed"),
        ("he_gmm", {"points": 1}, "points >= 2"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
