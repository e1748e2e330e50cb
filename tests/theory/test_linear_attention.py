"""One layer of linear attention on sampled prompts: its best weights, and its excess within 4 standard errors."""

from collections.abc import Callable

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound

DIM = 4
SPECTRUM = (3.0, 1.5, 0.5, 0.2)


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind, "dim": DIM} | settings)


def prompts(count: int, pairs: int, noise: float, w_scale: float, fresh: bool, seed: int):
    """w, and h = (1/M) Σ y x, in the basis of the task; Λ in it, one for every prompt if the basis is."""
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
    """[prompts]: the mean over the query, exactly."""
    return np.einsum("pi,pij,pj->p", w - guess, covariance, w - guess)


def assert_agrees(sampled: np.ndarray, exact: float) -> None:
    sem = sampled.std() / len(sampled) ** 0.5
    assert 4 * sem < 0.05 * exact, "too few prompts to tell"
    assert sampled.mean() == pytest.approx(exact, abs=4 * sem)


def best_weights(w: np.ndarray, h: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The matrix G that minimises the mean of (w - G h)' Λ (w - G h), by its normal equations."""
    squares = (h[:, :, None] * h[:, None, :]).reshape(-1, DIM**2)
    normal = (covariance.reshape(-1, DIM**2).T @ squares).reshape((DIM,) * 4)
    normal = normal.transpose(0, 2, 1, 3).reshape(DIM**2, DIM**2)
    right = (np.einsum("pij,pj->pi", covariance, w).T @ h).reshape(DIM**2)
    return np.linalg.solve(normal, right).reshape(DIM, DIM)


BASES = pytest.mark.parametrize("basis", ["fixed", "prompt"])


@BASES
def test_no_other_weights_are_better_than_its_own(basis: str):
    settings = {"spectrum": SPECTRUM, "basis": basis, "noise": 0.7, "w_scale": 2.0, "trained": 6}
    w, h, covariance = prompts(120_000, 6, 0.7, 2.0, basis == "prompt", 0)
    fitted = best_weights(w, h, covariance)
    exact = np.diag([1 / bound("lsa_matrix", direction=i + 1, **settings).value() for i in range(DIM)])
    np.testing.assert_allclose(fitted, exact, atol=0.03 * exact.max())
    assert_agrees(excess(w, h @ fitted.T, covariance), bound("lsa_min", point=6, **without(settings)).value())


def without(settings: dict) -> dict:
    return {name: value for name, value in settings.items() if name != "trained"}


@BASES
@pytest.mark.parametrize(("seen", "count"), [(3, 60_000), (12, 30_000)])
def test_the_excess_at_another_length_is_the_exact_one(basis: str, seen: int, count: int):
    made = bound("lsa_risk", spectrum=SPECTRUM, basis=basis, noise=0.7, w_scale=2.0, trained=6, point=seen)
    gains = [1 / bound("lsa_matrix", direction=i + 1, **shared(made)).value() for i in range(DIM)]
    w, h, covariance = prompts(count, seen, 0.7, 2.0, basis == "prompt", 1)
    assert_agrees(excess(w, h * gains, covariance), made.value())


def shared(made: Bound) -> dict:
    return {name: value for name, value in made.model_dump().items() if name not in ("kind", "point")}


def test_scaling_the_inputs_is_scaling_the_spectrum():
    scaled = bound("lsa_risk", spectrum=SPECTRUM, basis="fixed", x_scale=3.0, noise=0.5).value()
    spectrum = tuple(9 * s for s in SPECTRUM)
    assert scaled == pytest.approx(bound("lsa_risk", spectrum=spectrum, basis="fixed", noise=0.5).value())


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_isotropic_inputs_give_one_gradient_step_of_the_best_size(noise: float):
    made = {"dim": 7, "point": 11, "noise": noise, "x_scale": 2.0, "w_scale": 0.5}
    exact = bound("lsa_min", **made).value()
    assert exact == pytest.approx(bound("one_step_best", **made).value(), rel=1e-12)
    steps = bound("gd_risk_1", **made).along("rate", np.linspace(0.01, 0.25, 200))
    assert exact <= steps.min() < 1.001 * exact


def test_the_tasks_own_condition_is_a_basis_for_every_prompt():
    """Weights that knew the directions would be better: so much that the two must not be taken for each other."""
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
        # By hand, s = 3: E x⁴ = 3s², E x⁶ = 15s³, E x⁸ = 105s⁴, E x² of the others is theirs.
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
def test_other_labels_cost_what_their_moments_say(relation: str, settings: dict):
    """Trained on 7 pairs without noise, tested on 11 of one fixed relation."""
    made = bound("lsa_general", spectrum=SPECTRUM, basis="fixed", trained=7, point=11, **settings)
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
    a = np.array(made.model_dump()["weights"])
    best = (y - x @ a)[:, -1]
    error = excess(a, h * gains, np.diag(SPECTRUM)[None].repeat(len(x), 0))
    if relation == "cubic":
        assert (best**2).mean() == pytest.approx(settings["misfit"], rel=0.1)
        error = error + settings["misfit"]
    assert_agrees(error, made.value())


def test_other_labels_that_are_the_prior_s_own_cost_what_the_prior_does():
    settings = {
        "spectrum": SPECTRUM,
        "basis": "fixed",
        "noise": 0.6,
        "w_scale": 1.7,
        "trained": 5,
        "point": 9,
    }
    assert bound("lsa_general", **settings).value() == pytest.approx(bound("lsa_risk", **settings).value())


def test_the_printed_bound_is_above_the_risk_and_comes_near_it():
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
def test_its_slope_is_that_of_its_formula(kind: str, settings: dict, setting: str, slope: float):
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
def test_outside_its_conditions_it_names_them(kind: str, settings: dict, condition: str):
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        bound(kind, **settings).value()


def test_a_spectrum_survives_a_round_trip():
    made = bound("lsa_risk", spectrum=SPECTRUM)
    assert Bound.model_validate(made.model_dump(mode="json")) == made
