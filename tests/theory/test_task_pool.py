"""Finite pools of tasks: fitted attention and the posterior mean on sampled prompts, against what is predicted."""

import math

import numpy as np
import pytest

from loopscale.theory.bounds.base import Bound


def bound(kind: str, **settings) -> Bound:
    return Bound.model_validate({"kind": kind} | settings)


def value(kind: str, **settings) -> float:
    return bound(kind, **settings).value()


def assert_agrees(sampled: np.ndarray, exact: float, within: float = 0.05) -> None:
    sem = sampled.std() / len(sampled) ** 0.5
    assert 4 * sem < within * exact, "too few draws to tell"
    assert sampled.mean() == pytest.approx(exact, abs=4 * sem)


def means(w: np.ndarray, pairs: int, noise: float, x_scale: float, rng: np.random.Generator) -> np.ndarray:
    """(1/N) Σ y x of a prompt for each row of w."""
    x = x_scale * rng.standard_normal((len(w), pairs, w.shape[1]))
    y = np.einsum("pnd,pd->pn", x, w) + noise * rng.standard_normal((len(w), pairs))
    return np.einsum("pnd,pn->pd", x, y) / pairs


@pytest.mark.parametrize("tasks", [2, 6])
def test_attention_fitted_to_a_pool_costs_what_its_spectrum_says(tasks: int):
    dim, pairs, noise, x_scale, w_scale, count = 4, 6, 0.8, 1.5, 0.6, 150_000
    rng = np.random.default_rng(tasks)
    pool = w_scale * rng.standard_normal((tasks, dim))
    known, new = pool[rng.integers(tasks, size=count)], w_scale * rng.standard_normal((count, dim))
    h = {"pool": means(known, pairs, noise, x_scale, rng), "new": means(new, pairs, noise, x_scale, rng)}
    # The regression of w on h, on half of the prompts: what attention is trained to; measured on the other.
    gains = np.linalg.lstsq(h["pool"][::2], known[::2], rcond=None)[0]
    spectrum = np.linalg.eigvalsh(pool.T @ pool / tasks).clip(0)
    settings = {"dim": dim, "point": pairs, "noise": noise, "x_scale": x_scale, "w_scale": w_scale}
    for where, w in (("pool", known), ("new", new)):
        miss = x_scale**2 * ((w - h[where] @ gains)[1::2] ** 2).sum(-1)
        exact = value("lsa_task_pool", pool=tuple(spectrum.tolist()), measured_on=where, **settings)
        assert_agrees(miss, exact)


def test_an_endless_pool_is_the_prior_itself():
    settings = {"dim": 5, "point": 9, "noise": 0.7, "x_scale": 2.0, "w_scale": 0.5}
    for where in ("pool", "new"):
        exact = value("lsa_task_pool", measured_on=where, **settings)
        assert exact == pytest.approx(value("lsa_min", **settings))
        assert value("lsa_task_pool_mp", tasks=10**8, measured_on=where, **settings) == pytest.approx(exact)


def over_pools(dim: int, tasks: int, draws: int, **settings) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    pools = rng.standard_normal((draws, tasks, dim))
    spectra = np.linalg.eigvalsh(pools.mT @ pools / tasks).clip(0).tolist()
    return {
        where: np.array(
            [
                value("lsa_task_pool", dim=dim, pool=tuple(spectrum), measured_on=where, **settings)
                for spectrum in spectra
            ]
        )
        for where in ("pool", "new")
    }


@pytest.mark.parametrize(
    ("tasks", "pool", "new"), [(4, 1.75, 5.67), (8, 2.26, 4.29), (16, 2.59, 3.45), (64, 2.85, 3.02)]
)
def test_the_catalogued_means_over_random_pools_come_out(tasks: int, pool: float, new: float):
    """They were simulated: two digits after the point, and as many draws as that takes."""
    sampled = over_pools(8, tasks, 1500, point=16, noise=0.5)
    for where, catalogued in (("pool", pool), ("new", new)):
        sem = sampled[where].std() / len(sampled[where]) ** 0.5
        assert sampled[where].mean() == pytest.approx(catalogued, abs=4 * sem + 0.01), where


@pytest.mark.parametrize("ratio", [0.25, 1, 3])
def test_the_mean_over_pools_tends_to_its_limit_in_large_dimensions(ratio: float):
    apart = {}
    for dim in (8, 64):
        tasks, settings = int(ratio * dim), {"point": 2 * dim, "noise": 0.5}
        sampled = over_pools(dim, tasks, 4000 // dim, **settings)
        for where in ("pool", "new"):
            limit = value("lsa_task_pool_mp", dim=dim, tasks=tasks, measured_on=where, **settings)
            apart[dim, where] = abs(sampled[where].mean() / limit - 1)
    assert max(apart[64, "pool"], apart[64, "new"]) < 0.01
    assert apart[64, "new"] < apart[8, "new"]


def test_new_tasks_cost_more_than_an_endless_pool_by_one_over_its_size():
    settings = {"dim": 8, "point": 16, "noise": 0.5}
    few, many = (
        value("lsa_task_pool_mp", tasks=k, **settings) - value("lsa_task_pool", **settings)
        for k in (200, 800)
    )
    assert math.log(many / few) / math.log(4) == pytest.approx(-1, abs=0.03)


# The posterior mean over the pool.


def posterior_mean(pool: np.ndarray, x: np.ndarray, y: np.ndarray, noise: float) -> np.ndarray:
    misses = ((y[:, None] - np.einsum("pnd,pkd->pkn", x, pool)) ** 2).sum(-1)
    weights = np.exp(-(misses - misses.min(1, keepdims=True)) / (2 * noise**2))
    return np.einsum("pk,pkd->pd", weights / weights.sum(1, keepdims=True), pool)


def test_the_posterior_mean_tends_to_the_nearest_task():
    dim, tasks, x_scale, w_scale, noise = 3, 8, 1.5, 0.8, 0.5
    exact = value("dmmse", dim=dim, tasks=tasks, x_scale=x_scale, w_scale=w_scale, noise=noise)
    rng, away = np.random.default_rng(1), {}
    for pairs, count in ((3, 8000), (400, 4000)):
        pool, w = (
            w_scale * rng.standard_normal((count, tasks, dim)),
            w_scale * rng.standard_normal((count, dim)),
        )
        x = x_scale * rng.standard_normal((count, pairs, dim))
        y = np.einsum("pnd,pd->pn", x, w) + noise * rng.standard_normal((count, pairs))
        miss = x_scale**2 * ((posterior_mean(pool, x, y, noise) - w) ** 2).sum(-1)
        away[pairs] = miss.mean() / exact - 1
    assert abs(away[400]) < 0.06
    assert away[3] > 0.3, "a limit that holds everywhere tests nothing"


@pytest.mark.parametrize(("dim", "tasks"), [(1, 4), (4, 30), (16, 10)])
def test_the_distance_of_the_nearest_task_is_that_of_draws(dim: int, tasks: int):
    rng = np.random.default_rng(2)
    w, pool = rng.standard_normal((30_000, 1, dim)), rng.standard_normal((30_000, tasks, dim))
    assert_agrees(((w - pool) ** 2).sum(-1).min(1), value("dmmse", dim=dim, tasks=tasks), within=0.07)


@pytest.mark.parametrize("dim", [1, 2, 3, 9, 40, 300])
def test_the_nearer_of_two_tasks_has_a_closed_form(dim: int):
    """The difference of the two squared distances is <u, v>, u and v independent, of variances 2 and 6."""
    norm = math.sqrt(2) * math.exp(math.lgamma((dim + 1) / 2) - math.lgamma(dim / 2))
    exact = 2 * dim - math.sqrt(12) * norm * math.sqrt(2 / math.pi) / 2
    assert value("dmmse", dim=dim, tasks=2) == pytest.approx(exact, rel=1e-9)
    assert value("dmmse", dim=dim, tasks=1) == pytest.approx(2 * dim, rel=1e-9)


@pytest.mark.parametrize("dim", [3, 8, 12])
def test_its_slope_tends_to_that_of_the_nearest_of_many_points(dim: int):
    """-2/d, as for points of density p: E min = Γ(1 + 2/d) E (k p V)^(-2/d), V the volume of the unit ball."""
    ball = math.exp(dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1))
    scale = 2 * math.pi * (dim / (dim - 2)) ** (dim / 2) * ball ** (-2 / dim) * math.gamma(1 + 2 / dim)
    far = scale * 1e10 ** (-2 / dim)
    assert value("dmmse", dim=dim, tasks=10**10) == pytest.approx(far, rel=0.02)
    assert bound("dmmse", dim=dim).slope("tasks", (10**9, 10**11)) == pytest.approx(-2 / dim, rel=0.02)


def test_on_the_line_its_slope_is_ruled_by_the_tasks_beyond_the_pool():
    assert bound("dmmse", dim=1).slope("tasks", (10**8, 10**10)) == pytest.approx(-1, abs=0.06)


def test_where_it_was_simulated_the_slope_is_the_catalogued_one():
    """At 16 pairs and d = 8 it was -.240 and at d = 4 -.475, over 64 to 4096 tasks; draws of a few per cent."""
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
def test_outside_its_conditions_it_names_them(kind: str, settings: dict, condition: str):
    with pytest.raises(ValueError, match=f"{kind} requires .*{condition}"):
        value(kind, **settings)
