"""Signs of projections on the first component, compared with numpy."""

import numpy as np
import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.spectral_clustering import SpectralClustering


@pytest.mark.slow
@pytest.mark.parametrize(("dim", "count"), [(4, 60), (2, 15), (8, 6)])
@pytest.mark.parametrize(("pieces", "polish"), [(4, 0), (64, 2)])
def test_signs_equal_the_signs_of_the_first_component(dim: int, count: int, pieces: int, polish: int):
    rng = np.random.default_rng(100 * dim + count)
    centre = 2 * rng.standard_normal(dim) / dim**0.5
    x = rng.choice([-1.0, 1.0], (3, count, 1)) * centre + 0.5 * rng.standard_normal((3, count, dim))
    construction = SpectralClustering(
        iterations=40, pieces=pieces, polish=polish, margin=1e-2, eigenvalues=(0.1, 30.0)
    )
    net = construction.net(Prompt(count, dim, 1))
    assert net.depth == 2 + 2 * construction.iterations + construction.polish
    labels = net(torch.tensor(x), net.depth)[-1, :, :, 0].numpy()
    for points, outputs in zip(x, labels, strict=True):
        v = np.linalg.eigh(points.T @ points)[1][:, -1]
        projections = points @ v * np.sign(construction.starts(dim, 1).numpy()[0] @ v)
        clear = np.abs(projections) > 2e-2
        assert clear.mean() > 0.9
        assert np.abs(outputs[clear] - np.sign(projections[clear])).max() < 1e-11


def test_targets_of_more_coordinates_are_refused():
    with pytest.raises(
        ValueError, match="construction spectral_clustering requires targets of one coordinate"
    ):
        SpectralClustering().net(Prompt(9, 4, 2))
