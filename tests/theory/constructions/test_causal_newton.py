"""Newton's iteration in a decoder, compared with the iteration on every prefix."""

import pytest
import torch
from torch.nn.functional import pad

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.causal_newton import CausalNewton, prefix_newton_iterates
from loopscale.theory.constructions.regression import interleaved_tokens, random_linear_regression


@pytest.mark.parametrize(("dim", "points"), [(1, 3), (2, 7), (3, 12)])
def test_a_decoder_runs_newton_on_every_prefix_at_once(dim: int, points: int):
    xs, ys = random_linear_regression(
        torch.Generator().manual_seed(1000 * dim + points), dim, points - 1, prompts=3
    )
    sums = (xs[..., None] * xs[..., None, :]).cumsum(1)
    shares = 1 / (2 * torch.arange(2, points + 1) - 1)
    start = 1 / torch.linalg.eigvalsh(shares[:, None, None] * sums[:, :-1]).max().item() ** 2
    whole = torch.cat([interleaved_tokens(xs, ys), pad(ys[:, -1:], (dim, 0))], 1)
    guesses = CausalNewton(start=start).net(Prompt(2 * points, dim + 1, 1))(whole, 14)[:, :, ::2]
    torch.testing.assert_close(guesses, prefix_newton_iterates(xs, ys, start, 14), atol=1e-9, rtol=1e-9)


def test_a_too_small_bound_changes_the_predictions():
    tokens = interleaved_tokens(*random_linear_regression(torch.Generator().manual_seed(0), 2, 6))
    sharp, blunt = (CausalNewton(bound=bound).net(Prompt(13, 3, 1)) for bound in (300.0, 0.1))
    assert (sharp(tokens, 3) - blunt(tokens, 3)).abs().max() > 1e-3
