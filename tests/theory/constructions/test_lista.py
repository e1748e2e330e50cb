"""LISTA and ISTA by causal attention, held against the iterations themselves at every prefix and after every step."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.linear_model import Lasso
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.lista import Ista, Lista, iterates, posed

EXACT = 1e-10
FORMATS = pytest.mark.parametrize("tokens", ["turns", "repeated"])


def problem(dim: int, points: int, prompts: int = 3) -> tuple[Tensor, Tensor]:
    """xs [prompts, points, dim] and ys [prompts, points], of weights of which a third is not 0."""
    rng = torch.Generator().manual_seed(1000 * dim + points)
    xs = torch.randn(prompts, points, dim, generator=rng, dtype=torch.float64)
    weights = torch.randn(prompts, dim, generator=rng, dtype=torch.float64)
    weights[:, math.ceil(dim / 3) :] = 0
    return xs, torch.einsum("pnd,pd->pn", xs, weights)


def learned(dim: int, layers: int) -> tuple[list[Tensor], list[float]]:
    """Matrices near a small multiple of the identity, and thresholds in no order."""
    rng = np.random.default_rng(dim)
    near = [torch.tensor(0.4 * np.eye(dim) + 0.03 * rng.standard_normal((dim, dim))) for _ in range(layers)]
    return near, rng.uniform(0.0, 0.3, layers).tolist()


@FORMATS
@pytest.mark.parametrize(("dim", "points", "layers"), [(1, 2, 1), (4, 9, 6), (12, 20, 10)])
def test_layers_are_steps_of_lista_at_every_prefix(tokens: str, dim: int, points: int, layers: int):
    xs, ys = problem(dim, points)
    matrices, thresholds = learned(dim, layers)
    settings = {"tokens": tokens, "layers": layers, "thresholds": thresholds}
    settings["matrices"] = [matrix.tolist() for matrix in matrices]
    expected = iterates(xs, ys, matrices, thresholds)
    weights = Lista.model_validate(settings | {"answer": "weights"}).net(Prompt(2 * points - 1, dim + 1, dim))
    guesses = Lista.model_validate(settings).net(Prompt(2 * points - 1, dim + 1, 1))
    before = 2 if tokens == "turns" else 0
    assert (weights.depth, guesses.depth) == (before + layers, before + layers + 1)
    found = weights(posed(xs, ys, tokens), before + layers)[before:]
    assert (found[:, :, 0::2] - expected).abs().max() < EXACT
    assert (found[:, :, 1::2] == 0).all(), "nothing is learned at a y"
    said = guesses(posed(xs, ys, tokens), before + layers + 1)[before + 1 :, :, 0::2, 0]
    assert (said - torch.einsum("kpnd,pnd->kpn", expected, xs)).abs().max() < EXACT


def test_a_lista_without_matrices_has_falling_thresholds():
    xs, ys = problem(5, 8)
    made = Lista(layers=7, rate=0.5, threshold=0.2, decay=0.7, answer="weights")
    found = made.net(Prompt(15, 6, 5))(posed(xs, ys, "turns"), 9)[2:, :, 0::2]
    steps = iterates(xs, ys, 7 * [0.5 * torch.eye(5).double()], [0.2 * 0.7**k for k in range(7)])
    assert (found - steps).abs().max() < EXACT


@FORMATS
@pytest.mark.parametrize("given", [True, False])
def test_loops_are_steps_of_ista(tokens: str, given: bool):
    (dim, points, steps), matrix = (5, 12, 60), learned(5, 1)[0][0]
    xs, ys = problem(dim, points)
    settings = {"tokens": tokens, "threshold": 0.05} | (
        {"matrix": matrix.tolist()} if given else {"rate": 0.4}
    )
    expected = iterates(xs, ys, steps * [matrix if given else 0.4 * torch.eye(dim).double()], steps * [0.05])
    guesses = Ista.model_validate(settings).net(Prompt(2 * points - 1, dim + 1, 1))(
        posed(xs, ys, tokens), steps
    )
    assert (guesses[:, :, 0::2, 0] - torch.einsum("kpnd,pnd->kpn", expected, xs)).abs().max() < EXACT
    weights = Ista.model_validate(settings | {"answer": "weights"}).net(Prompt(2 * points - 1, dim + 1, dim))
    assert (weights(posed(xs, ys, tokens), steps)[:, :, 0::2] - expected).abs().max() < EXACT


def test_looped_long_it_is_the_lasso_at_every_prefix():
    dim, points, threshold, rate = 4, 14, 0.05, 0.5
    xs, ys = problem(dim, points, prompts=1)
    made = Ista(rate=rate, threshold=threshold, answer="weights")
    weights = made.net(Prompt(2 * points - 1, dim + 1, dim))(posed(xs, ys, "turns"), 1000, first=1000)[
        -1, 0, 0::2
    ]
    for n in range(dim + 2, points):
        penalty = threshold * (2 * n + 1) / (rate * n)
        lasso = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(
            xs[0, :n], ys[0, :n]
        )
        np.testing.assert_allclose(weights[n], lasso.coef_, atol=1e-7)
        assert 0 < (lasso.coef_ != 0).sum() < dim, "a lasso that selects nothing tests nothing"


@FORMATS
def test_a_bound_that_is_too_small_is_seen(tokens: str):
    xs, ys = problem(4, 10)
    wide, narrow = (Ista(rate=0.4, tokens=tokens, bound=bound).net(Prompt(19, 5, 1)) for bound in (1e3, 0.01))
    far = (wide(posed(xs, ys, tokens), 20) - narrow(posed(xs, ys, tokens), 20))[:, :, 0::2].abs().max()
    assert far > 1e-2


@pytest.mark.parametrize(
    ("settings", "prompt", "condition"),
    [
        ({}, Prompt(12, 1, 1), "x's coordinates and then one of y"),
        ({}, Prompt(12, 4, 3), "one output, the guess"),
        ({"answer": "weights"}, Prompt(12, 4, 1), "as many outputs as x has coordinates, 3"),
        ({"matrix": [[1.0, 0.0], [0.0, 1.0]]}, Prompt(12, 4, 1), "x has 2 coordinates"),
        ({"matrix": [[1.0], [0.0], [0.0]]}, Prompt(12, 4, 1), "x has 3 coordinates"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(settings: dict, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction ista is for .*{condition}"):
        Ista.model_validate(settings).net(prompt)


def test_matrices_and_thresholds_are_given_for_every_layer():
    with pytest.raises(ValidationError, match="2 thresholds are not one for each of the 3 layers"):
        Lista(layers=3, thresholds=(0.1, 0.1))
