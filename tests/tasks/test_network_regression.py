"""Regression on random networks."""

from loopscale.tasks.network_regression import NetworkRegression, _mean_square


def test_one_simulation_of_the_variance_serves_prompts_of_all_lengths_formats_and_noises():
    _mean_square.cache_clear()
    task = NetworkRegression(dim=2, points=20, layers=2, width=4)
    first = task.variance
    for other in (
        task.model_copy(update={"points": 3000}),
        task.easier(2, 3),
        task.model_copy(update={"format": "encoder"}),
    ):
        assert other.variance == first
    assert task.model_copy(update={"noise": 0.5}).variance == first + 0.25
    assert _mean_square.cache_info().misses == 1
