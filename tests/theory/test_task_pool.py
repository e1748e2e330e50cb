"""Finite pools of tasks: fitted attention and the posterior mean on sampled prompts, compared with the bounds."""

import math

import numpy as np
import pytest

from tests.theory.checks import assert_agrees, assert_refused, bound, value


def means(w: np.ndarray, pairs: int, noise: float, x_scale: float, rng: np.random.Generator) -> np.ndarray:
    """(1/N) Σ y x of one prompt per row of w [prompts, dim]."""
    x = x_scale * rng.standard_normal((len(w), pairs, w.shape[1]))
    y = np.einsum("pnd,pd->pn", x, w) + noise * rng.standard_normal((len(w), pairs))
    return np.einsum("pnd,pn->pd", x, y) / pairs


@pytest.mark.parametrize("tasks", [2, 6])
def test_the_excess_of_attention_fitted_to_a_pool_follows_from_its_spectrum(tasks: int):
    dim, pairs, noise, x_scale, w_scale, count = 4, 6, 0.8, 1.5, 0.6, 150_000
    rng = np.random.default_rng(tasks)
    pool = w_scale * rng.standard_normal((tasks, dim))
    known, new = pool[rng.integers(tasks, size=count)], w_scale * rng.standard_normal((count, dim))
    h = {"pool": means(known, pairs, noise, x_scale, rng), "new": means(new, pairs, noise, x_scale, rng)}
    # Training of attention is the regression of w on h. One half of the prompts is for the fit, the other for the test.
    gains = np.linalg.lstsq(h["pool"][::2], known[::2], rcond=None)[0]
    spectrum = np.linalg.eigvalsh(pool.T @ pool / tasks).clip(0)
    settings = {"dim": dim, "point": pairs, "noise": noise, "x_scale": x_scale, "w_scale": w_scale}
    for measured_on, w in (("pool", known), ("new", new)):
        errors = x_scale**2 * ((w - h[measured_on] @ gains)[1::2] ** 2).sum(-1)
        exact = value("lsa_task_pool", pool=tuple(spectrum.tolist()), measured_on=measured_on, **settings)
        assert_agrees(errors, exact)


def test_an_infinite_pool_equals_the_prior():
    settings = {"dim": 5, "point": 9, "noise": 0.7, "x_scale": 2.0, "w_scale": 0.5}
    for measured_on in ("pool", "new"):
        exact = value("lsa_task_pool", measured_on=measured_on, **settings)
        assert exact == pytest.approx(value("lsa_min", **settings))
        assert value("lsa_task_pool_mp", tasks=10**8, measured_on=measured_on, **settings) == pytest.approx(
            exact
        )


def sampled_excess(dim: int, tasks: int, draws: int, **settings) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    pools = rng.standard_normal((draws, tasks, dim))
    spectra = np.linalg.eigvalsh(pools.mT @ pools / tasks).clip(0).tolist()
    return {
        measured_on: np.array(
            [
                value("lsa_task_pool", dim=dim, pool=tuple(spectrum), measured_on=measured_on, **settings)
                for spectrum in spectra
            ]
        )
        for measured_on in ("pool", "new")
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tasks", "pool", "new"), [(4, 1.75, 5.67), (8, 2.26, 4.29), (16, 2.59, 3.45), (64, 2.85, 3.02)]
)
def test_means_over_random_pools_match_the_catalogue(tasks: int, pool: float, new: float):
    """The catalogued means are simulated and have two decimals."""
    sampled = sampled_excess(8, tasks, 1500, point=16, noise=0.5)
    for measured_on, catalogued in (("pool", pool), ("new", new)):
        sem = sampled[measured_on].std() / len(sampled[measured_on]) ** 0.5
        assert sampled[measured_on].mean() == pytest.approx(catalogued, abs=4 * sem + 0.01), measured_on


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [0.25, 1, 3])
def test_the_mean_over_pools_tends_to_its_limit_in_large_dimensions(ratio: float):
    deviation = {}
    for dim in (8, 64):
        tasks, settings = int(ratio * dim), {"point": 2 * dim, "noise": 0.5}
        sampled = sampled_excess(dim, tasks, 4000 // dim, **settings)
        for measured_on in ("pool", "new"):
            limit = value("lsa_task_pool_mp", dim=dim, tasks=tasks, measured_on=measured_on, **settings)
            deviation[dim, measured_on] = abs(sampled[measured_on].mean() / limit - 1)
    assert max(deviation[64, "pool"], deviation[64, "new"]) < 0.01
    assert deviation[64, "new"] < deviation[8, "new"]


def test_the_excess_on_new_tasks_approaches_the_excess_of_an_infinite_pool_as_1_over_k():
    settings = {"dim": 8, "point": 16, "noise": 0.5}
    few_tasks, many_tasks = (
        value("lsa_task_pool_mp", tasks=k, **settings) - value("lsa_task_pool", **settings)
        for k in (200, 800)
    )
    assert math.log(many_tasks / few_tasks) / math.log(4) == pytest.approx(-1, abs=0.03)


# The posterior mean over the pool


def posterior_mean(pool: np.ndarray, x: np.ndarray, y: np.ndarray, noise: float) -> np.ndarray:
    squared_errors = ((y[:, None] - np.einsum("pnd,pkd->pkn", x, pool)) ** 2).sum(-1)
    weights = np.exp(-(squared_errors - squared_errors.min(1, keepdims=True)) / (2 * noise**2))
    return np.einsum("pk,pkd->pd", weights / weights.sum(1, keepdims=True), pool)


def test_the_posterior_mean_tends_to_the_nearest_task():
    dim, tasks, x_scale, w_scale, noise = 3, 8, 1.5, 0.8, 0.5
    exact = value("dmmse", dim=dim, tasks=tasks, x_scale=x_scale, w_scale=w_scale, noise=noise)
    rng, deviation = np.random.default_rng(1), {}
    for pairs, count in ((3, 8000), (400, 4000)):
        pool, w = (
            w_scale * rng.standard_normal((count, tasks, dim)),
            w_scale * rng.standard_normal((count, dim)),
        )
        x = x_scale * rng.standard_normal((count, pairs, dim))
        y = np.einsum("pnd,pd->pn", x, w) + noise * rng.standard_normal((count, pairs))
        errors = x_scale**2 * ((posterior_mean(pool, x, y, noise) - w) ** 2).sum(-1)
        deviation[pairs] = errors.mean() / exact - 1
    assert abs(deviation[400]) < 0.06
    assert deviation[3] > 0.3, "a limit that also holds for few pairs tests nothing"


@pytest.mark.parametrize(("dim", "tasks"), [(1, 4), (4, 30), (16, 10)])
def test_the_distance_to_the_nearest_task_matches_samples(dim: int, tasks: int):
    rng = np.random.default_rng(2)
    w, pool = rng.standard_normal((30_000, 1, dim)), rng.standard_normal((30_000, tasks, dim))
    assert_agrees(((w - pool) ** 2).sum(-1).min(1), value("dmmse", dim=dim, tasks=tasks), within=0.07)


@pytest.mark.parametrize("dim", [1, 2, 3, 9, 40, 300])
def test_the_distance_to_the_nearest_of_two_tasks_has_a_closed_form(dim: int):
    """The difference of the two squared distances is <u, v> with independent u and v of variances 2 and 6."""
    norm = math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    exact = 2 * dim - math.sqrt(12) * norm * math.sqrt(2 / math.pi) / 2
    assert value("dmmse", dim=dim, tasks=2) == pytest.approx(exact, rel=1e-9)
    assert value("dmmse", dim=dim, tasks=1) == pytest.approx(2 * dim, rel=1e-9)


@pytest.mark.parametrize("dim", [3, 8, 12])
def test_the_slope_of_dmmse_tends_to_minus_2_over_d(dim: int):
    """Slope -2/d: points of density p have E min = Γ(1 + 2/d) E (k p V)^(-2/d), V the volume of the unit ball."""
    ball = math.exp(dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1))
    scale = 2 * math.pi * (dim / (dim - 2)) ** (dim / 2) * ball ** (-2 / dim) * math.gamma(1 + 2 / dim)
    far = scale * 1e10 ** (-2 / dim)
    assert value("dmmse", dim=dim, tasks=10**10) == pytest.approx(far, rel=0.02)
    assert bound("dmmse", dim=dim).slope("tasks", (10**9, 10**11)) == pytest.approx(-2 / dim, rel=0.02)


def test_in_one_dimension_the_slope_of_dmmse_tends_to_minus_1():
    assert bound("dmmse", dim=1).slope("tasks", (10**8, 10**10)) == pytest.approx(-1, abs=0.06)


def test_the_slope_of_dmmse_matches_the_catalogue():
    """The catalogued slopes, -.240 for d = 8 and -.475 for d = 4, are simulated at 16 pairs and 64 to 4096 tasks."""
    for dim, slope in ((8, -0.240), (4, -0.475)):
        assert bound("dmmse", dim=dim).slope("tasks", (64, 4096)) == pytest.approx(slope, abs=0.015)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("lsa_task_pool", {"condition": 10}, "isotropic inputs"),
        ("lsa_task_pool", {"point": 0}, "N >= 1"),
        ("lsa_task_pool", {"pool": (1.0, 1.0)}, "a pool of `dim` eigenvalues"),
        ("lsa_task_pool", {"dim": 2, "pool": (0.0, 0.0)}, "a task other than 0"),
        ("lsa_task_pool_mp", {"point": 0}, "N >= 1"),
        ("dmmse", {"condition": 10}, "isotropic inputs"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)
