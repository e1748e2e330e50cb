"""Bandits and their policies beside closed forms, scipy, plain loops and the bounds on regret."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import acting, outcomes
from loopscale.solvers.base import Solver
from loopscale.tasks import policies
from loopscale.tasks.bandit import Bandit, BanditTask
from loopscale.tasks.bandit_games import Games, Rules, Tally, pick
from loopscale.tasks.base import Task
from loopscale.tasks.decisions import GAMES
from loopscale.tasks.linear_bandit import LinearBandit
from loopscale.theory.bounds.bandits import (
    BayesOptimal2Arm,
    DptTarget,
    LinUcb,
    RandomRegret,
    TsBayes,
    TsLinearBayes,
    Ucb1,
)
from loopscale.training.loop import train
from loopscale.training.trial import Trial

BERNOULLI = Rules("bernoulli", 0.3, "uniform", 3)
GAUSSIAN = Rules("gaussian", 0.3, "uniform", 3)


def posed(kind: str = "bandit", **settings: Any) -> BanditTask:
    task = Task.model_validate({"kind": kind, **settings})
    assert isinstance(task, BanditTask)
    return task


def tally(counts: Any, sums: Any, rules: Rules, actions: Any = None) -> Tally:
    rows = [torch.tensor(np.array(each), dtype=torch.float64) for each in (counts, sums)]
    features = None if actions is None else torch.as_tensor(actions, dtype=torch.float64)
    return Tally(*rows, rules, features)


def regrets(policy: policies.Policy, means: torch.Tensor, rounds: int, rules: Rules, actions: Any = None):
    """The regrets of a policy in one game for every row of `means`."""
    rng, draw = stream("luck"), torch.rand if rules.rewards == "bernoulli" else torch.randn
    chances = draw(len(means), rounds, generator=rng)
    games = Games(means, actions, rules, chances, torch.rand(len(means), rounds, generator=rng))
    for _ in range(rounds):
        games.play(policy(games.tally()))
    return games.regrets().double()


def sem(values: torch.Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)


# Thompson sampling


def test_thompson_sampling_of_bernoulli_arms_is_the_posterior_of_the_best_arm():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 40, (20, 3))
    wins = rng.binomial(counts, rng.random((20, 3)))
    found = policies.thompson(tally(counts, wins, BERNOULLI))
    torch.testing.assert_close(found.sum(-1), torch.ones(20, dtype=torch.float64))
    for row in range(20):
        for arm in range(3):
            successes, failures = tuple(wins[row].tolist()), tuple((counts - wins)[row].tolist())
            expected = DptTarget(successes=successes, failures=failures, arm=arm).value()
            assert float(found[row, arm]) == pytest.approx(expected, abs=1e-11)


def test_thompson_sampling_of_bernoulli_arms_is_exact_after_many_rounds():
    found = policies.thompson(tally([[500, 500, 40]], [[300, 310, 10]], BERNOULLI))
    assert float(found.sum()) == pytest.approx(1, abs=1e-10)
    expected = DptTarget(successes=(300, 310, 10), failures=(200, 190, 30), arm=1).value()
    assert float(found[0, 1]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize(
    ("counts", "sums"),
    [
        ((3, 1, 5), (1.2, 0.9, 2.0)),
        ((0, 2, 1), (0, 0.5, 1.4)),
        ((20, 1, 1), (-1.0, 1.5, -0.4)),
        ((0, 0, 0), (0, 0, 0)),
    ],
)
def test_thompson_sampling_of_gaussian_rewards_integrates_truncated_normals(counts: Any, sums: Any):
    found = policies.thompson(tally([counts], [sums], GAUSSIAN))[0]
    arms = []
    for count, total in zip(counts, sums, strict=True):
        if not count:
            arms.append(scipy.stats.uniform())
            continue
        centre, scale = total / count, 0.3 / count**0.5
        arms.append(scipy.stats.truncnorm(-centre / scale, (1 - centre) / scale, centre, scale))
    for k, arm in enumerate(arms):
        others = [other for j, other in enumerate(arms) if j != k]
        integrand = lambda x, arm=arm, others=others: arm.pdf(x) * math.prod(o.cdf(x) for o in others)  # noqa: E731
        expected, _ = scipy.integrate.quad(integrand, 0, 1, epsabs=1e-10, limit=200)
        assert float(found[k]) == pytest.approx(expected, abs=1e-8)


def test_thompson_sampling_of_two_normal_arms_is_a_closed_form():
    rules = Rules("gaussian", 0.3, "normal", 2)
    counts, sums = np.array([7, 2]), np.array([3.1, 1.3])
    precision = 12 + counts / 0.09
    centre = (6 + sums / 0.09) / precision
    expected = scipy.stats.norm.cdf((centre[0] - centre[1]) / math.sqrt((1 / precision).sum()))
    found = policies.thompson(tally([counts], [sums], rules))
    assert float(found[0, 0]) == pytest.approx(expected, abs=1e-9)


def test_thompson_sampling_of_a_linear_bandit_follows_the_posterior_of_theta():
    rng = np.random.default_rng(1)
    rules = Rules("gaussian", 1.5, "normal", 4)
    actions = rng.uniform(-1, 1, (4, 3))
    counts, sums = np.array([4, 0, 2, 7]), np.array([1.3, 0.0, -2.0, 3.0])
    precision = np.eye(3) + actions.T @ np.diag(counts) @ actions / 1.5**2
    centre = np.linalg.solve(precision, actions.T @ sums / 1.5**2)
    draws = rng.multivariate_normal(centre, np.linalg.inv(precision), 200_000)
    shares = np.bincount((draws @ actions.T).argmax(1), minlength=4) / 200_000
    found = policies.thompson(tally([counts], [sums], rules, actions[None]), draws=8192)[0].numpy()
    np.testing.assert_allclose(found, shares, atol=0.005)
    two = Rules("gaussian", 1.5, "normal", 2)
    pair = policies.thompson(tally([counts[:2]], [sums[:2]], two, actions[None, :2]), draws=8192)
    gap = actions[0] - actions[1]
    precision = np.eye(3) + actions[:2].T @ np.diag(counts[:2]) @ actions[:2] / 1.5**2
    centre = np.linalg.solve(precision, actions[:2].T @ sums[:2] / 1.5**2)
    expected = scipy.stats.norm.cdf(gap @ centre / math.sqrt(gap @ np.linalg.solve(precision, gap)))
    assert float(pair[0, 0]) == pytest.approx(expected, abs=0.002)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 4},
        {"dim": 3, "rewards": "gaussian"},
        {"dim": 3, "rewards": "gaussian", "prior": "normal"},
        {"dim": 4, "context": "ucb1"},
        {"dim": 4, "active": 2},
    ],
)
def test_the_best_arms_are_drawn_from_the_posterior(settings: dict[str, Any]):
    """The cross entropy of a calibrated distribution is its own entropy."""
    task = posed(points=12, **settings)
    batch = task.sample(600, stream("calibration"))
    probabilities = policies.thompson(batch.problem.tally())
    entropy = torch.special.entr(probabilities).sum(-1)
    logits = Solver.model_validate({"kind": "thompson"}).predict(batch, 1)[0]
    ahead = (task.raw_error(logits, batch) - entropy).mean(-1)
    assert abs(float(ahead.mean())) < 4 * sem(ahead)
    assert float(entropy[:, -1].mean()) < 0.95 * float(entropy[:, 0].mean())


# Upper confidence bounds


def test_ucb1_equals_a_plain_loop():
    counts, sums = [[3, 1, 9], [2, 0, 1]], [[1, 1, 5], [2, 0, 0]]
    theory = policies.ucb1(tally(counts, sums, BERNOULLI))
    authors = policies.ucb1(tally(counts, sums, BERNOULLI), "authors")
    scores = [s / n + math.sqrt(2 * math.log(13) / n) for n, s in zip(counts[0], sums[0], strict=True)]
    assert int(theory[0].argmax()) == int(np.argmax(scores))
    assert theory[1].tolist() == [0, 1, 0]
    for row in range(2):
        scores = [s / (1 + n) + 1 / math.sqrt(1 + n) for n, s in zip(counts[row], sums[row], strict=True)]
        assert int(authors[row].argmax()) == int(np.argmax(scores))
    first = policies.ucb1(tally([[0, 0, 0]], [[0, 0, 0]], BERNOULLI))
    torch.testing.assert_close(first, torch.full((1, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("exploration", [2.0, 0.0, "theory"])
def test_lin_ucb_equals_ridge_regression_on_the_history(exploration: policies.Exploration):
    task = posed("linear_bandit", dim=3, arms=5, points=25, context="uniform", prior="normal")
    batch = task.sample(3, stream("history"))
    settings = {"kind": "lin_ucb", "exploration": exploration}
    found = Solver.model_validate(settings).predict(batch, 1)[0].exp() / 5
    soft = Solver.model_validate(settings | {"kind": "soft_lin_ucb"}).predict(batch, 1)[0].exp() / 5
    history = batch.problem
    for game in range(3):
        arms = history.actions[game].double().numpy()
        for seen in (1, 4, 24):
            xs = (history.plays[game, :seen].double().numpy()) @ arms
            ys = history.ys[game, :seen].double().numpy()
            v = np.eye(3) + xs.T @ xs
            w = np.linalg.solve(v, xs.T @ ys)
            width = exploration
            if width == "theory":
                width = 1.5 * math.sqrt(2 * math.log(10) + np.linalg.slogdet(v)[1]) + math.sqrt(3)
            scores = arms @ w + width * np.sqrt(np.einsum("kd,de,ke->k", arms, np.linalg.inv(v), arms))
            assert int(found[game, seen].argmax()) == int(scores.argmax())
            expected = scipy.special.softmax(scores / policies.TEMPERATURE).clip(1e-9)
            np.testing.assert_allclose(soft[game, seen].numpy(), expected, rtol=1e-6, atol=1e-9)


def test_the_empirical_mean_plays_every_arm_once_and_then_the_best():
    found = policies.empirical_mean(tally([[1, 0, 0], [2, 1, 4]], [[1, 0, 0], [1, 1, 3]], BERNOULLI))
    assert found.tolist() == [[0, 0.5, 0.5], [0, 1, 0]]


# Regret


def test_uniform_play_has_the_exact_regret():
    task = posed(points=50)
    found = task.play(policies.uniform)
    assert float(found.mean()) == pytest.approx(RandomRegret(arms=5, horizon=50).value(), abs=4 * sem(found))


@pytest.mark.parametrize("rounds", [20, 100])
def test_thompson_sampling_lies_between_the_optimum_and_its_bound(rounds: int):
    found = posed(dim=2, points=rounds).play(policies.thompson)
    least, most = BayesOptimal2Arm(horizon=rounds).value(), TsBayes(arms=2, horizon=rounds).value()
    assert least - 4 * sem(found) < float(found.mean()) < most


def test_the_regret_of_ucb1_is_below_its_bound_and_grows_as_a_logarithm():
    means = (0.3, 0.5, 0.8)
    rows, growth = torch.tensor(means).expand(200, -1), []
    for rounds in (100, 400, 1600):
        found = regrets(policies.ucb1, rows, rounds, BERNOULLI)
        assert float(found.mean()) < Ucb1(means=means, horizon=rounds).value()
        growth.append(float(found.mean()))
    # ln T grows by the same amount in both steps. √T would grow twice as much in the second step.
    assert growth[2] - growth[1] < 1.4 * (growth[1] - growth[0])


@pytest.mark.parametrize("exploration", [2.0, "theory"])
def test_the_regret_of_lin_ucb_is_below_its_bound_and_grows_at_most_as_the_bound(
    exploration: policies.Exploration,
):
    rng, rules = stream("linear"), Rules("gaussian", 0.5, "normal", 8)
    actions = torch.nn.functional.normalize(torch.randn(200, 8, 3, generator=rng), dim=-1)
    theta = torch.nn.functional.normalize(torch.randn(200, 3, generator=rng), dim=-1)
    means = (actions @ theta[..., None]).squeeze(-1)
    policy = Solver.model_validate({"kind": "lin_ucb", "exploration": exploration})
    assert policy.kind == "lin_ucb"
    found, bound = [], []
    for rounds in (50, 200):
        values = regrets(lambda each: policies.lin_ucb(each, exploration), means, rounds, rules, actions)
        found.append(float(values.mean()))
        bound.append(LinUcb(dim=3, noise=0.5, horizon=rounds).value())
        assert found[-1] < bound[-1]
    assert found[1] / found[0] < bound[1] / bound[0]


def test_thompson_sampling_of_linear_bandits_is_below_its_bound():
    task = posed("linear_bandit", dim=2, arms=3, points=15, prior="normal")
    found = task.play(lambda each: policies.thompson(each, draws=128))
    scale = math.sqrt(1.5**2 + 2)
    assert float(found.mean()) < TsLinearBayes(dim=2, arms=3, horizon=15, scale=scale).value()


def test_the_curve_of_play_is_the_regret_after_every_round():
    """A loop over games and rounds, with tables of plays and means, in place of running sums."""
    task = posed("bandit", dim=3, points=7)
    played = acting(Solver.model_validate({"kind": "ucb1"}), task, 3).play
    games = task.played_games(GAMES)
    for _ in range(7):
        games.play(policies.ucb1(games.tally()))
    totals = np.zeros((GAMES, 7))
    for game in range(GAMES):
        means, lost = games.means[game].tolist(), 0.0
        for n in range(7):
            lost += max(means) - means[int(games.plays[game, n].argmax())]
            totals[game, n] = lost
    assert played
    np.testing.assert_allclose(played.sampled, totals.mean(0), rtol=1e-5)
    np.testing.assert_allclose(played.sem, totals.std(0, ddof=1) / GAMES**0.5, rtol=1e-5)
    assert played.greedy.shape == (7,)


def test_the_oracle_has_no_regret():
    for task in (posed(points=12), posed("linear_bandit", points=12)):
        found = outcomes(Solver.model_validate({"kind": "best_arm"}), task, 1)
        assert found["play_regret"] == found["play_regret_greedy"] == found["play_regret_ratio"] == 0


@pytest.mark.parametrize(
    ("kind", "solver"), [("bandit", "thompson"), ("bandit", "ucb1"), ("linear_bandit", "lin_ucb")]
)
def test_a_solver_plays_as_its_policy(kind: str, solver: str):
    task = posed(kind, points=12)
    found = outcomes(Solver.model_validate({"kind": solver}), task, 3)
    expected = task.play(policies.POLICIES[solver])  # pyright: ignore[reportArgumentType]
    assert found["play_regret"] == pytest.approx(float(expected.mean()), rel=1e-6)
    assert found["play_regret_sem"] == pytest.approx(sem(expected), rel=1e-6)
    lost = expected - task.reference_regrets()
    assert found["play_gap"] == pytest.approx(float(lost.mean()), abs=1e-6)
    assert found["play_gap_sem"] == pytest.approx(sem(lost), abs=1e-6)
    if solver == task.reference:
        assert found["play_regret_ratio"] == pytest.approx(1)
        # Both players lose the same in every game, so the ratio has no noise.
        assert found["play_regret_ratio_sem"] == pytest.approx(0, abs=1e-6)


def test_a_game_of_one_round_has_no_exponent():
    assert "play_exponent" in posed(points=2).outcome_names
    task = posed(points=1)
    found = outcomes(Solver.model_validate({"kind": "thompson"}), task, 1)
    assert "play_exponent" not in task.outcome_names
    assert "play_exponent" not in found
    assert all(math.isfinite(value) for value in found.values())


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "model",
    [
        {"kind": "gpt2", "layers": 2},
        {"kind": "gpt2", "layers": 2, "attention": "relu"},
        {"kind": "looped"},
        {"kind": "algoformer"},
    ],
    ids=lambda model: f"{model['kind']} {model.get('attention', '')}".strip(),
)
@pytest.mark.parametrize(("kind", "round_tokens"), [("bandit", 1), ("linear_bandit", 2)])
def test_a_trained_net_answers_in_play_as_it_answers_whole_prompts(
    model: dict[str, Any], kind: str, round_tokens: int
):
    trial = Trial.model_validate(
        {
            "task": {"kind": kind, "points": 6, "round_tokens": round_tokens},
            "model": {"width": 8, "heads": 2} | model,
            "training": {"steps": 3, "batch_size": 4, "loops": 2, "window": 2, "eval_every": 3},
        }
    )
    *_, last = train(trial)
    net, steps, answers, batches = (
        last.learner.net,
        trial.steps_per_prompt,
        list[torch.Tensor](),
        list[Batch](),
    )

    def answer(batch: Batch) -> torch.Tensor:
        batches.append(batch)
        answers.append(net.answers(batch, steps, first=steps)[0])
        return answers[-1]

    with torch.no_grad():
        assert isinstance(trial.task, BanditTask)
        found = trial.task.outcomes(answer)
        assert all(values.isfinite().all() for values in found.values())
        queries = torch.arange(0, 6 * round_tokens, round_tokens)
        whole = Batch(
            batches[-1].tokens, torch.zeros(len(batches[-1].tokens), 6, trial.task.arm_count), queries, None
        )
        expected = net.answers(whole, steps, first=steps)[0]
    torch.testing.assert_close(torch.cat(answers, 1), expected, rtol=1e-4, atol=1e-5)


# Prompts


@pytest.mark.parametrize("round_tokens", [1, 2])
@pytest.mark.parametrize("kind", ["bandit", "linear_bandit"])
def test_a_query_sees_the_arms_and_the_earlier_rounds_only(kind: str, round_tokens: int):
    task = posed(kind, points=9, round_tokens=round_tokens)
    batch = task.sample(4, stream("prompts"))
    history, arms = batch.problem, task.arm_count
    told = batch.tokens[:, 1::2] if round_tokens == 2 else batch.tokens[:, 1:]
    rounds = told.shape[1]
    plays = told[..., -arms - 1 : -1] + 1 / arms
    torch.testing.assert_close(plays, history.plays[:, :rounds])
    torch.testing.assert_close(told[..., -1], history.ys[:, :rounds])
    assert batch.queries.tolist() == list(range(0, 9 * round_tokens, round_tokens))
    if isinstance(task, LinearBandit):
        asked = batch.tokens[:, batch.queries, : arms * task.dim].unflatten(-1, (arms, task.dim))
        torch.testing.assert_close(asked, history.actions[:, None].expand_as(asked))
        shown = told[..., -arms - 1 - task.dim : -arms - 1]
        torch.testing.assert_close(shown, history.plays[:, :rounds] @ history.actions)
    else:
        assert (batch.tokens[:, 0] == 0).all()


def test_mixed_contexts_range_from_uniform_play_to_one_favourite():
    shares = posed(points=100).sample(2000, stream("contexts")).problem.plays.mean(1)
    most = shares.amax(-1)
    assert float(shares.mean(0).std()) < 0.02
    assert 0.15 < float((most > 0.9).float().mean()) < 0.35
    assert 0.1 < float((most < 0.5).float().mean()) < 0.4


def test_arms_out_of_play_are_never_played_nor_best():
    task = posed(points=15).easier(dim=3, points=15)
    assert isinstance(task, Bandit)
    for context in ("mixed", "uniform", "ucb1", "thompson", "empirical_mean"):
        batch = task.model_copy(update={"context": context}).sample(50, stream("arms"))
        assert (batch.problem.plays[..., 3:] == 0).all()
        assert (batch.targets[..., 3:] == 0).all()
    for solver in ("thompson", "ucb1", "uniform_play", "empirical_mean"):
        logits = Solver.model_validate({"kind": solver}).predict(batch, 1)[0]
        assert (logits[..., 3:] < -18).all()


def test_labels_of_an_algorithm_are_its_actions():
    task = posed("linear_bandit", points=20)
    batch = task.sample(16, stream("labels"))
    probabilities = policies.lin_ucb(batch.problem.tally())
    assert ((probabilities * batch.targets).sum(-1) == 1).all()
    agreement = (batch.problem.plays * batch.targets).sum(-1).mean()
    assert float(agreement) > 0.999  # the expert is the context policy


def test_draws_follow_the_distribution_and_never_take_an_arm_of_probability_zero():
    probabilities = torch.tensor([0.0, 0.2, 0.5, 0.3, 0.0]).expand(4001, 5)
    drawn = pick(probabilities, torch.linspace(0, 1, 4001))
    torch.testing.assert_close(drawn.mean(0), probabilities[0], atol=0.001, rtol=0)
    assert (drawn[:, [0, 4]] == 0).all()


def test_a_net_that_overflows_has_no_regret_number():
    task = posed(points=3)
    found = task.outcomes(lambda batch: torch.full((len(batch.tokens), 1, 5), torch.nan))
    assert all(values.isnan().all() for values in found.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"expert": "lin_ucb"}, "expert lin_ucb needs arms with features"),
        ({"context": "soft_lin_ucb"}, "context soft_lin_ucb needs arms with features"),
        ({"prior": "normal"}, "write prior: uniform, or rewards: gaussian"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        posed(**settings)
