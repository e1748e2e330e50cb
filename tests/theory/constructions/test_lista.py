"""LISTA and ISTA by causal attention, compared with the iterations at every prefix and after every step."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.linear_model import Lasso
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.lista import Ista, Lista, lista_iterates, sparse_tokens

EXACT = 1e-10
FORMATS = pytest.mark.parametrize("tokens", ["turns", "repeated"])


def problem(dim: int, points: int, prompts: int = 3) -> tuple[Tensor, Tensor]:
    """xs [prompts, points, dim] and ys [prompts, points], with a third of the weights not 0."""
    rng = torch.Generator().manual_seed(1000 * dim + points)
    xs = torch.randn(prompts, points, dim, generator=rng, dtype=torch.float64)
    weights = torch.randn(prompts, dim, generator=rng, dtype=torch.float64)
    weights[:, math.ceil(dim / 3) :] = 0
    return xs, torch.einsum("pnd,pd->pn", xs, weights)


def learned(dim: int, layers: int) -> tuple[list[Tensor], list[float]]:
    """Matrices near a small multiple of the identity, and thresholds in random order."""
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
    expected = lista_iterates(xs, ys, matrices, thresholds)
    weights = Lista.model_validate(settings | {"answer": "weights"}).net(Prompt(2 * points - 1, dim + 1, dim))
    guesses = Lista.model_validate(settings).net(Prompt(2 * points - 1, dim + 1, 1))
    before = 2 if tokens == "turns" else 0
    assert (weights.depth, guesses.depth) == (before + layers, before + layers + 1)
    weight_outputs = weights(sparse_tokens(xs, ys, tokens), before + layers)[before:]
    assert (weight_outputs[:, :, 0::2] - expected).abs().max() < EXACT
    assert (weight_outputs[:, :, 1::2] == 0).all(), "β stays 0 at every y"
    guess_outputs = guesses(sparse_tokens(xs, ys, tokens), before + layers + 1)[before + 1 :, :, 0::2, 0]
    assert (guess_outputs - torch.einsum("kpnd,pnd->kpn", expected, xs)).abs().max() < EXACT


def test_default_thresholds_decay():
    xs, ys = problem(5, 8)
    construction = Lista(layers=7, rate=0.5, threshold=0.2, decay=0.7, answer="weights")
    weight_outputs = construction.net(Prompt(15, 6, 5))(sparse_tokens(xs, ys, "turns"), 9)[2:, :, 0::2]
    steps = lista_iterates(xs, ys, 7 * [0.5 * torch.eye(5).double()], [0.2 * 0.7**k for k in range(7)])
    assert (weight_outputs - steps).abs().max() < EXACT


@FORMATS
@pytest.mark.parametrize("given", [True, False])
def test_loops_are_steps_of_ista(tokens: str, given: bool):
    (dim, points, steps), matrix = (5, 12, 60), learned(5, 1)[0][0]
    xs, ys = problem(dim, points)
    settings = {"tokens": tokens, "threshold": 0.05} | (
        {"matrix": matrix.tolist()} if given else {"rate": 0.4}
    )
    expected = lista_iterates(
        xs, ys, steps * [matrix if given else 0.4 * torch.eye(dim).double()], steps * [0.05]
    )
    guesses = Ista.model_validate(settings).net(Prompt(2 * points - 1, dim + 1, 1))(
        sparse_tokens(xs, ys, tokens), steps
    )
    assert (guesses[:, :, 0::2, 0] - torch.einsum("kpnd,pnd->kpn", expected, xs)).abs().max() < EXACT
    weights = Ista.model_validate(settings | {"answer": "weights"}).net(Prompt(2 * points - 1, dim + 1, dim))
    assert (weights(sparse_tokens(xs, ys, tokens), steps)[:, :, 0::2] - expected).abs().max() < EXACT


def test_many_loops_converge_to_the_lasso_at_every_prefix():
    dim, points, threshold, rate = 4, 14, 0.05, 0.5
    xs, ys = problem(dim, points, prompts=1)
    construction = Ista(rate=rate, threshold=threshold, answer="weights")
    weights = construction.net(Prompt(2 * points - 1, dim + 1, dim))(
        sparse_tokens(xs, ys, "turns"), 1000, first=1000
    )[-1, 0, 0::2]
    for n in range(dim + 2, points):
        penalty = threshold * (2 * n + 1) / (rate * n)
        lasso = Lasso(alpha=penalty, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(
            xs[0, :n], ys[0, :n]
        )
        np.testing.assert_allclose(weights[n], lasso.coef_, atol=1e-7)
        assert 0 < (lasso.coef_ != 0).sum() < dim, "a lasso that selects nothing would test nothing"


@FORMATS
def test_a_too_small_bound_changes_the_guesses(tokens: str):
    xs, ys = problem(4, 10)
    wide, narrow = (Ista(rate=0.4, tokens=tokens, bound=bound).net(Prompt(19, 5, 1)) for bound in (1e3, 0.01))
    far = (
        (wide(sparse_tokens(xs, ys, tokens), 20) - narrow(sparse_tokens(xs, ys, tokens), 20))[:, :, 0::2]
        .abs()
        .max()
    )
    assert far > 1e-2


@pytest.mark.parametrize(
    ("settings", "prompt", "condition"),
    [
        ({}, Prompt(12, 1, 1), "x's coordinates and then one y"),
        ({}, Prompt(12, 4, 3), "one output, the guess"),
        ({"answer": "weights"}, Prompt(12, 4, 1), "3 outputs, one per coordinate of x"),
        ({"matrix": [[1.0, 0.0], [0.0, 1.0]]}, Prompt(12, 4, 1), "x of 2 coordinates"),
        ({"matrix": [[1.0], [0.0], [0.0]]}, Prompt(12, 4, 1), "x of 3 coordinates"),
    ],
)
def test_unsuitable_prompts_raise(settings: dict, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction ista requires .*{condition}"):
        Ista.model_validate(settings).net(prompt)


def test_a_wrong_number_of_thresholds_raises():
    with pytest.raises(ValidationError, match="2 thresholds for 3 layers"):
        Lista(layers=3, thresholds=(0.1, 0.1))
