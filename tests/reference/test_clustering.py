"""Measures and solvers of clustering against scikit-learn, scipy and closed forms."""

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr
from scipy.stats import multivariate_normal, multivariate_t
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.clustering import (
    SINGULAR,
    ClusteringSolver,
    GaussianMixtureEM,
    Lloyd,
    MixturePosterior,
    SpectralClustering,
)
from loopscale.tasks import relabelling
from loopscale.tasks.clustering import Clustering
from loopscale.theory.bounds.clustering import GmmBayes, GmmCeFloor

TASK = Clustering(components=3, dim=4, points=40, snr=3)
BROKEN = Clustering(components=3, dim=4, points=40, snr=3, condition=9, imbalance=4, tails=5)


def labels_of(answers: torch.Tensor) -> np.ndarray:
    return answers.argmax(-1).numpy()


@pytest.mark.parametrize("size", [2, 3, 6])
def test_cross_entropy_takes_the_best_naming_of_the_clusters(size: int):
    logits = torch.randn(2, 3, 10, size, generator=stream("logits"), dtype=torch.float64)
    truth = torch.randint(size, (3, 10), generator=stream("truth"))
    targets = torch.nn.functional.one_hot(truth, size).float()
    entropy = relabelling.cross_entropy(logits, targets)
    log_p = logits.log_softmax(-1)
    by_order = torch.stack(
        [
            torch.stack([-log_p[:, b, range(10), torch.tensor(order)[truth[b]]] for b in range(3)], dim=1)
            for order in permutations(range(size))
        ]
    )
    torch.testing.assert_close(entropy.sum(-1), by_order.sum(-1).amin(0))
    assert entropy.shape == (2, 3, 10)


@pytest.mark.parametrize("find", [relabelling.naming, relabelling.by_subsets])
@pytest.mark.parametrize("size", [1, 2, 5, 6, 8, relabelling.BY_SUBSETS])
def test_the_naming_has_the_lowest_cost_that_scipy_finds(find: Callable[[Tensor], Tensor], size: int):
    """Also for whole numbers, where many namings are equally good, and for costs that are not numbers."""
    rng = stream("costs", size)
    real = torch.randn(40, size, size, generator=rng, dtype=torch.float64)
    for cost in (real, (2 * real).round(), 1e6 * real.exp()):
        named = find(cost)
        assert (named.sort(-1).values == torch.arange(size)).all()
        found = cost.gather(-1, named[..., None]).sum((-1, -2))
        lowest = [matrix[linear_sum_assignment(matrix)].sum() for matrix in cost.numpy()]
        torch.testing.assert_close(found, torch.tensor(np.array(lowest)), rtol=1e-14, atol=1e-13)
    assert find(real).tolist() == [linear_sum_assignment(matrix)[1].tolist() for matrix in real.numpy()]
    broken = torch.full((2, size, size), torch.nan)
    assert (relabelling.naming(broken).sort(-1).values == torch.arange(size)).all()


def test_measures_equal_scikit_learn():
    truth = torch.randint(4, (6, 30), generator=stream("truth"))
    guess = torch.where(torch.rand(6, 30, generator=stream("kept")) < 0.7, (truth + 1) % 4, 0)
    guess[4], guess[5] = 2, (truth[5] + 2) % 4
    truth[3], guess[3] = 1, 0
    one_hot = torch.nn.functional.one_hot
    measures = relabelling.cluster_agreement(one_hot(guess, 4)[None].double(), one_hot(truth, 4).float())
    for prompt in range(6):
        pair = truth[prompt].numpy(), guess[prompt].numpy()
        assert measures["ari"][0, prompt] == pytest.approx(adjusted_rand_score(*pair), abs=1e-12)
        assert measures["nmi"][0, prompt] == pytest.approx(normalized_mutual_info_score(*pair), abs=1e-12)
        least = min(np.mean(np.array(order)[pair[0]] != pair[1]) for order in permutations(range(4)))
        assert measures["misclassification"][0, prompt] == pytest.approx(least)


def test_nan_logits_give_nan_errors():
    targets = torch.nn.functional.one_hot(torch.arange(14) % 7, 7).float()[None]
    assert relabelling.cross_entropy(torch.full((1, 14, 7), torch.nan), targets).isnan().all()


@pytest.mark.parametrize("steps", [1, 3, 30])
def test_lloyd_equals_k_means_of_scikit_learn(steps: int):
    batch, solver = TASK.sample(6, stream("reference")), Lloyd(restarts=1)
    labels = labels_of(solver.predict(batch, steps)[-1])
    starts = solver.starts(batch.problem.xs.double(), 3)[:, 0].numpy()
    for xs, start, predicted in zip(batch.problem.xs.double().numpy(), starts, labels, strict=True):
        reference = KMeans(3, init=start, n_init=1, max_iter=steps, tol=0, algorithm="lloyd").fit(xs)
        assert (reference.labels_ == predicted).all()


@pytest.mark.filterwarnings("ignore:Best performing initialization did not converge")
@pytest.mark.parametrize("covariance", ["spherical", "full"])
@pytest.mark.parametrize("steps", [1, 6])
def test_em_equals_the_gaussian_mixture_of_scikit_learn(covariance: str, steps: int):
    batch = Clustering(components=2, dim=3, points=60, snr=2).sample(4, stream("reference"))
    solver = GaussianMixtureEM.model_validate({"restarts": 1, "covariance": covariance, "floor": 0.05})
    posteriors = solver.predict(batch, steps)[-1].exp().numpy()
    starts = solver.starts(batch.problem.xs.double(), 2)[:, 0].numpy()
    for xs, start, posterior in zip(batch.problem.xs.double().numpy(), starts, posteriors, strict=True):
        variance = np.square(xs - xs.mean(0)).mean()
        precision = {"spherical": np.full(2, 1 / variance), "full": np.stack([np.eye(3) / variance] * 2)}
        reference = GaussianMixture(
            2,
            covariance_type=covariance,
            max_iter=steps,
            tol=0,
            reg_covar=0.05 * variance,
            means_init=start,
            weights_init=[0.5, 0.5],
            precisions_init=precision[covariance],
            init_params="random",
        ).fit(xs)
        np.testing.assert_allclose(posterior, reference.predict_proba(xs), atol=1e-8)


def within(answers: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Sum of squared distances of the points to the mean of their cluster: [steps, batch]."""
    shares = torch.nn.functional.one_hot(answers.argmax(-1), answers.shape[-1]).double()
    xs = batch.problem.xs.double()
    means = shares.mT @ xs / shares.sum(-2)[..., None].clamp_min(1)
    return (xs - shares @ means).square().sum((-1, -2))


def test_the_cost_of_lloyd_never_rises_and_more_restarts_are_no_worse():
    batch = Clustering(components=4, dim=2, points=30, snr=2, centres="random").sample(8, stream("reference"))
    few, many = (within(Lloyd(restarts=n).predict(batch, 20), batch) for n in (1, 20))
    assert (few.diff(dim=0) <= 1e-9).all()
    assert (many[-1] <= few[-1] + 1e-9).all()
    assert (many[-1] < few[-1] - 1e-6).any()


def test_spectral_clustering_of_two_clusters_is_the_sign_of_the_principal_component():
    batch = Clustering(components=2, dim=6, points=50, snr=3).sample(5, stream("reference"))
    labels = labels_of(SpectralClustering().predict(batch, 2)[-1])
    for xs, predicted in zip(batch.problem.xs.double().numpy(), labels, strict=True):
        reference = (PCA(1).fit_transform(xs)[:, 0] > 0).astype(int)
        assert adjusted_rand_score(reference, predicted) == 1


def test_a_singular_full_covariance_is_regularised_or_refused():
    batch = Clustering(components=2, dim=8, points=4).sample(30, stream(0))
    least = GaussianMixtureEM(covariance="full", floor=SINGULAR)
    assert least.predict(batch, 300).isfinite().all()
    for floor in (0, SINGULAR / 10):
        with pytest.raises(
            ValidationError, match=r"with floor .* a full covariance .* no inverse; write floor: 0\.01"
        ):
            GaussianMixtureEM(covariance="full", floor=floor)
    assert GaussianMixtureEM(floor=0).predict(batch, 3).isfinite().all()


def test_spectral_clustering_of_more_clusters_is_k_means_on_principal_components():
    batch = Clustering(components=3, dim=8, points=60, snr=6).sample(4, stream("reference"))
    labels = labels_of(SpectralClustering().predict(batch, 30)[-1])
    for xs, predicted in zip(batch.problem.xs.double().numpy(), labels, strict=True):
        reference = KMeans(3, n_init=20, random_state=0).fit_predict(PCA(2).fit_transform(xs))
        assert adjusted_rand_score(reference, predicted) == 1


@pytest.mark.parametrize("task", [TASK, BROKEN, BROKEN.model_copy(update={"standardised": True})])
def test_the_posterior_equals_the_posterior_from_scipy_densities(task: Clustering):
    batch = task.sample(2, stream("reference"))
    posteriors = MixturePosterior().predict(batch, 1)[0].exp().numpy()
    for n, posterior in enumerate(posteriors):
        xs, centres, whitener, log_weights = (
            tensor[n].double().numpy()
            for tensor in (
                batch.problem.xs,
                batch.problem.centres,
                batch.problem.whitener,
                batch.problem.log_weights,
            )
        )
        covariance = np.linalg.inv(whitener.T @ whitener)
        if task.tails:
            shape = covariance * (task.tails - 2) / task.tails
            density = [multivariate_t(centre, shape, df=task.tails).pdf(xs) for centre in centres]
        else:
            density = [multivariate_normal(centre, covariance).pdf(xs) for centre in centres]
        joint = np.exp(log_weights)[:, None] * np.stack(density)
        np.testing.assert_allclose(posterior, (joint / joint.sum(0)).T, atol=1e-5)


def misplaced(solver: ClusteringSolver, batch: Batch) -> tuple[float, float]:
    """The share of points with a wrong label, and its standard error over points."""
    wrong = (solver.predict(batch, 1)[0].argmax(-1) != batch.targets.argmax(-1)).double().flatten()
    return wrong.mean().item(), (wrong.std() / len(wrong) ** 0.5).item()


@pytest.mark.parametrize("snr", [1.0, 2.0, 4.0])
@pytest.mark.parametrize("condition", [1.0, 30.0])
def test_the_posterior_with_two_centres_has_the_exact_bayes_risk(snr: float, condition: float):
    batch = Clustering(components=2, dim=5, points=100, snr=snr, condition=condition).sample(600, stream(1))
    risk, error = misplaced(MixturePosterior(), batch)
    apart = batch.problem.whitener @ (batch.problem.centres[:, 0] - batch.problem.centres[:, 1])[..., None]
    expected = torch.special.ndtr(-apart.double().norm(dim=(1, 2)) / 2).mean().item()
    assert risk == pytest.approx(expected, abs=4 * error)
    if condition == 1:
        assert expected == pytest.approx(float(ndtr(-snr / 2)), rel=1e-5)


@pytest.mark.parametrize("components", [3, 5])
def test_the_posterior_with_equidistant_centres_has_the_risk_of_the_bound(components: int):
    batch = Clustering(components=components, dim=6, points=100).sample(500, stream(1))
    risk, error = misplaced(MixturePosterior(), batch)
    assert risk == pytest.approx(GmmBayes(components=components, snr=4).value(), abs=4 * error)


@pytest.mark.parametrize("snr", [2.0, 4.0])
def test_no_solver_is_below_the_floor_and_the_posterior_reaches_the_floor(snr: float):
    task = Clustering(components=2, dim=2, points=100, snr=snr)
    batch = task.sample(200, stream(2))
    floor = GmmCeFloor(snr=snr).value()
    solvers = (
        MixturePosterior(),
        Lloyd(restarts=2),
        GaussianMixtureEM(restarts=2),
        SpectralClustering(),
    )
    for solver in solvers:
        raw = task.raw_error(solver.predict(batch, 10)[-1], batch).mean(-1)
        error = (raw.std() / len(raw) ** 0.5).item()
        assert raw.mean().item() > floor - math.log(2) / 100 - 3 * error, solver.kind
        if isinstance(solver, MixturePosterior):
            assert raw.mean().item() == pytest.approx(floor, abs=4 * error)


def test_with_many_points_solvers_are_close_to_the_bayes_risk():
    task = Clustering(components=2, dim=4, points=500, snr=3)
    batch = task.sample(49, stream(3))
    bayes = float(ndtr(-1.5))
    for solver in (Lloyd(restarts=2), GaussianMixtureEM(restarts=2), SpectralClustering()):
        wrong = task.measures(solver.predict(batch, 15)[-1:], batch)["misclassification"][0]
        assert wrong.mean().item() == pytest.approx(bayes, abs=0.004 + 4 * (wrong.std() / 7).item())
