"""One layer of linear attention on sampled prompts: the best weights and the excess."""

from collections.abc import Callable

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound
from tests.theory.checks import assert_agrees, assert_refused

DIM = 4
SPECTRUM = (3.0, 1.5, 0.5, 0.2)


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind, "dim": DIM} | settings)


def prompts(count: int, pairs: int, noise: float, w_scale: float, fresh: bool, seed: int):
    """w [prompts, DIM], h = (1/M) Σ y x [prompts, DIM] and the covariance Λ [prompts, DIM, DIM].

    With `fresh` every prompt has its own basis of Λ.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, pairs, DIM)) * np.sqrt(SPECTRUM)
    basis = np.broadcast_to(np.eye(DIM), (count, DIM, DIM))
    if fresh:
        basis = np.linalg.qr(rng.standard_normal((count, DIM, DIM)))[0]
        x = np.einsum("pnd,pde->pne", x, basis)
    w = w_scale * rng.standard_normal((count, DIM))
    y = np.einsum("pnd,pd->pn", x, w) + noise * rng.standard_normal((count, pairs))
    covariance = np.einsum("pdi,d,pdj->pij", basis, SPECTRUM, basis)
    return w, np.einsum("pnd,pn->pd", x, y) / pairs, covariance


def excess(w: np.ndarray, guess: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Excess of each prompt [prompts], with the exact expectation over the query."""
    return np.einsum("pi,pij,pj->p", w - guess, covariance, w - guess)


def best_weights(w: np.ndarray, h: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The matrix G that minimises the mean of (w - G h)' Λ (w - G h), by its normal equations."""
    squares = (h[:, :, None] * h[:, None, :]).reshape(-1, DIM**2)
    normal = (covariance.reshape(-1, DIM**2).T @ squares).reshape((DIM,) * 4)
    normal = normal.transpose(0, 2, 1, 3).reshape(DIM**2, DIM**2)
    right = (np.einsum("pij,pj->pi", covariance, w).T @ h).reshape(DIM**2)
    return np.linalg.solve(normal, right).reshape(DIM, DIM)


BASES = pytest.mark.parametrize("basis", ["fixed", "prompt"])


@BASES
def test_fitted_weights_equal_the_exact_optimum(basis: str):
    settings = {"spectrum": SPECTRUM, "basis": basis, "noise": 0.7, "w_scale": 2.0}
    w, h, covariance = prompts(120_000, 6, 0.7, 2.0, basis == "prompt", 0)
    fitted = best_weights(w, h, covariance)
    exact = np.diag(
        [1 / bound("lsa_matrix", trained=6, direction=i + 1, **settings).value() for i in range(DIM)]
    )
    np.testing.assert_allclose(fitted, exact, atol=0.03 * exact.max())
    assert_agrees(excess(w, h @ fitted.T, covariance), bound("lsa_min", point=6, **settings).value())


@BASES
@pytest.mark.parametrize(("seen", "count"), [(3, 60_000), (12, 30_000)])
def test_the_excess_at_another_length_is_exact(basis: str, seen: int, count: int):
    risk = bound("lsa_risk", spectrum=SPECTRUM, basis=basis, noise=0.7, w_scale=2.0, trained=6, point=seen)
    gains = [1 / bound("lsa_matrix", direction=i + 1, **attention_settings(risk)).value() for i in range(DIM)]
    w, h, covariance = prompts(count, seen, 0.7, 2.0, basis == "prompt", 1)
    assert_agrees(excess(w, h * gains, covariance), risk.value())


def attention_settings(risk: Bound) -> dict:
    return {name: value for name, value in risk.model_dump().items() if name not in ("kind", "point")}


def test_scaling_the_inputs_equals_scaling_the_spectrum():
    scaled = bound("lsa_risk", spectrum=SPECTRUM, basis="fixed", x_scale=3.0, noise=0.5).value()
    spectrum = tuple(9 * s for s in SPECTRUM)
    assert scaled == pytest.approx(bound("lsa_risk", spectrum=spectrum, basis="fixed", noise=0.5).value())


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_for_isotropic_inputs_the_layer_is_one_gradient_step_of_the_best_size(noise: float):
    settings = {"dim": 7, "point": 11, "noise": noise, "x_scale": 2.0, "w_scale": 0.5}
    exact = bound("lsa_min", **settings).value()
    assert exact == pytest.approx(bound("one_step_best", **settings).value(), rel=1e-12)
    steps = bound("gd_risk_1", **settings).along("rate", np.linspace(0.01, 0.25, 200))
    assert exact <= steps.min() < 1.001 * exact


def test_by_default_every_prompt_has_its_own_basis():
    """Weights that know the directions are much better, so a confusion of the two bases would be visible."""
    settings = {"dim": 20, "point": 40, "condition": 100.0}
    blind, seeing = (bound("lsa_min", basis=basis, **settings).value() for basis in ("prompt", "fixed"))
    assert seeing < blind
    levels = {"spectrum": (9.0,) * 2 + (1.0,) * 2, "point": 40}
    assert bound("lsa_min", **levels).value() > 1.3 * bound("lsa_min", basis="fixed", **levels).value()


RELATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "linear": lambda x: x @ np.array([0.3, -1.0, 0.8, 0.5]),
    "cubic": lambda x: x[..., 0] ** 3 / 9,
}


@pytest.mark.parametrize(
    ("relation", "settings"),
    [
        ("linear", {"weights": (0.3, -1.0, 0.8, 0.5)}),
        # By hand, s = 3: E x⁴ = 3s², E x⁶ = 15s³, E x⁸ = 105s⁴; the other coordinates have E x² = s_i.
        (
            "cubic",
            {
                "weights": (1.0, 0.0, 0.0, 0.0),
                "misfit": 15 * 27 / 81 - 3,
                "variances": (105 - 9, 1.5 * 5, 0.5 * 5, 0.2 * 5),
            },
        ),
    ],
)
def test_the_excess_on_other_relations_follows_from_their_moments(relation: str, settings: dict):
    """The layer is trained on 7 pairs without noise and tested on 11 pairs of one fixed relation."""
    risk = bound("lsa_general", spectrum=SPECTRUM, basis="fixed", trained=7, point=11, **settings)
    gains = 1 / np.array(
        [
            bound("lsa_matrix", spectrum=SPECTRUM, basis="fixed", trained=7, direction=i).value()
            for i in (1, 2, 3, 4)
        ]
    )
    rng = np.random.default_rng(2)
    x = rng.standard_normal((150_000, 12, DIM)) * np.sqrt(SPECTRUM)
    y = RELATIONS[relation](x)
    h = np.einsum("pnd,pn->pd", x[:, :-1], y[:, :-1]) / 11
    a = np.array(risk.model_dump()["weights"])
    best = (y - x @ a)[:, -1]
    error = excess(a, h * gains, np.diag(SPECTRUM)[None].repeat(len(x), 0))
    if relation == "cubic":
        assert (best**2).mean() == pytest.approx(settings["misfit"], rel=0.1)
        error = error + settings["misfit"]
    assert_agrees(error, risk.value())


def test_a_relation_from_the_prior_has_the_excess_of_the_prior():
    settings = {
        "spectrum": SPECTRUM,
        "basis": "fixed",
        "noise": 0.6,
        "w_scale": 1.7,
        "trained": 5,
        "point": 9,
    }
    assert bound("lsa_general", **settings).value() == pytest.approx(bound("lsa_risk", **settings).value())


def test_the_risk_approaches_but_never_exceeds_the_printed_bound():
    rng, ratios = np.random.default_rng(3), []
    for trained, seen in rng.integers(1, 400, (200, 2)).tolist():
        spectrum = tuple(np.exp(rng.normal(0, rng.uniform(0, 2), DIM)).tolist())
        settings = {"spectrum": spectrum, "basis": "fixed", "trained": trained, "point": seen}
        ratios.append(bound("lsa_risk", **settings).value() / bound("lsa_zhang", **settings).value())
    assert 0.9 < max(ratios) <= 1


@pytest.mark.parametrize(
    ("kind", "settings", "setting", "slope"),
    [
        ("lsa_min", {"point": 10**6}, "point", -1),
        ("lsa_risk", {"trained": 10**6, "point": 1000}, "point", -1),
        ("lsa_risk", {"trained": 10**4, "point": 10**15}, "trained", -2),
        ("lsa_zhang", {"trained": 10**6, "point": 40}, "point", -1),
        ("lsa_zhang", {"trained": 40, "point": 10**9}, "trained", -2),
    ],
)
def test_the_slope_matches_the_formula(kind: str, settings: dict, setting: str, slope: float):
    assert bound(kind, **settings).slope(setting) == pytest.approx(slope, abs=0.005)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("lsa_min", {"point": 0}, "N >= 1"),
        ("lsa_min", {"spectrum": (1.0, 2.0)}, "a spectrum of `dim` eigenvalues"),
        ("lsa_min", {"spectrum": SPECTRUM, "condition": 10}, "not both"),
        ("lsa_matrix", {"direction": 5}, "direction <= dim"),
        ("lsa_zhang", {"noise": 1}, "noise 0"),
        ("lsa_zhang", {"condition": 10}, "a fixed basis"),
        ("lsa_zhang", {"point": 0}, "M >= 1"),
        ("lsa_general", {"condition": 10}, "a fixed basis"),
        ("lsa_general", {"weights": (1.0,)}, "`dim` weights"),
        ("lsa_general", {"variances": (1.0,)}, "`dim` variances"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, {"dim": DIM} | settings, condition)


def test_a_spectrum_survives_a_round_trip_through_json():
    risk = bound("lsa_risk", spectrum=SPECTRUM)
    assert Bound.model_validate(risk.model_dump(mode="json")) == risk
