"""Tabular Markov decision processes and their policies beside linear programs, closed forms and plain sums."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import outcomes
from loopscale.solvers.base import Solver
from loopscale.tasks import mdp_policies
from loopscale.tasks.base import Task
from loopscale.tasks.decisions import growth, log_mean_ratio, log_mixed, mixed
from loopscale.tasks.mdp import Mdp
from loopscale.tasks.mdp_games import optimal_values
from loopscale.theory.bounds.decision_making import Ucbvi
from loopscale.theory.constructions.ucb_vi import value_sweeps

ENVIRONMENTS: list[dict[str, Any]] = [{}, {"stationary": False}, {"environment": "chain"}]


def posed(**settings: Any) -> Mdp:
    task = Task.model_validate({"kind": "mdp", **settings})
    assert isinstance(task, Mdp)
    return task


def sem(values: torch.Tensor) -> float:
    return float(values.std() / len(values) ** 0.5)


# Value iteration


@pytest.mark.parametrize("stationary", [True, False])
def test_value_iteration_solves_the_linear_program(stationary: bool):
    task = posed(dim=3, actions=3, horizon=4, stationary=stationary)
    means, transitions = task.problems(3, stream("programs"))
    values = optimal_values(means, transitions, 4).amax(-1)
    for game in range(3):
        rows, limits = [], []
        for h, s, a in itertools.product(range(4), range(3), range(3)):
            layer = 0 if stationary else h
            row = np.zeros((4, 3))
            row[h, s] = -1
            if h < 3:
                row[h + 1] += transitions[game, layer, s, a].double().numpy()
            rows.append(row.ravel())
            limits.append(-float(means[game, layer, s, a]))
        found = scipy.optimize.linprog(np.ones(12), np.array(rows), np.array(limits), bounds=(None, None))
        np.testing.assert_allclose(values[game].numpy().ravel(), found.x, atol=1e-9)


def test_value_iteration_is_the_best_of_all_policies():
    means, transitions = posed(dim=2, horizon=2, stationary=False).problems(4, stream("policies"))
    values = optimal_values(means, transitions, 2).amax(-1)[:, 0]
    for game in range(4):
        r, p = means[game].double(), transitions[game].double()
        for start in range(2):
            found = [
                float(r[0, start, a] + sum(p[0, start, a, z] * r[1, z, later[z]] for z in range(2)))
                for a in range(2)
                for later in itertools.product(range(2), repeat=2)
            ]
            assert float(values[game, start]) == pytest.approx(max(found), abs=1e-9)


@pytest.mark.parametrize(("states", "horizon", "slip"), [(4, 4, 0.1), (3, 6, 0.3), (2, 5, 0.0), (4, 3, 0.1)])
def test_the_value_of_a_chain_is_the_expected_time_at_its_end(states: int, horizon: int, slip: float):
    task = posed(environment="chain", dim=states, horizon=horizon, slip=slip)
    values = optimal_values(*task.problems(5, stream("chains")), horizon).amax(-1)[:, 0, 0]
    expected = sum(scipy.stats.binom.sf(states - 2, t, 1 - slip) for t in range(horizon))
    np.testing.assert_allclose(values.numpy(), expected, atol=1e-6)


# UCB-VI


@pytest.mark.parametrize("episodes", [3, 15])
def test_ucb_vi_with_the_theorys_bonus_has_the_values_of_the_construction(episodes: int):
    task = posed(stationary=False, points=episodes, horizon=3)
    history = task.sample(40, stream("sweeps")).problem
    tally = history.tally()
    last = mdp_policies.Counts(*(each[:, -1] for each in vars(tally.begun).values()))
    found = mdp_policies.optimistic_policy(last, task.rules, "theory")
    steps = 3 * (episodes - 1)
    stage = torch.nn.functional.one_hot(torch.arange(steps) % 3, 3).double().expand(40, -1, -1)
    parts = (history.states, history.plays, history.ys[..., None])
    states, plays, rewards = (each[:, :steps].double() for each in parts)
    following = history.states[:, 1 : steps + 1].double()
    confidence = mdp_policies.theory_confidence(task.rules)
    q = value_sweeps(stage, states, plays, rewards, following, confidence, 3)[-1]
    best = (q >= q.amax(-1, keepdim=True) - 1e-9).double()
    torch.testing.assert_close(found, best / best.sum(-1, keepdim=True))


def test_ucb_vi_with_a_small_bonus_has_the_values_of_a_plain_loop():
    task = posed(points=4)
    history = task.sample(5, stream("loop")).problem
    found = Solver.model_validate({"kind": "ucb_vi", "bonus": 0.3}).predict(
        Batch(torch.zeros(5, 16, 1), torch.zeros(5, 16, 2), torch.arange(16), history), 1
    )[0]
    for game in range(5):
        states, plays = (each[game].argmax(-1).tolist() for each in (history.states, history.plays))
        rewards = history.ys[game].tolist()
        for query in range(16):
            seen = range(query - query % 4)
            value, best = [0.0] * 4, np.zeros(2, dtype=bool)
            for h in (3, 2, 1, 0):
                q = np.zeros((4, 2))
                for s, a in itertools.product(range(4), range(2)):
                    visits = [n for n in seen if (states[n], plays[n]) == (s, a)]
                    moves = [n for n in visits if n % 4 < 3]
                    known = visits if h == 3 else moves
                    q[s, a] = 4 - h
                    if known:
                        after = np.mean([value[states[n + 1]] for n in moves]) if moves else 0.0
                        gain = np.mean([rewards[n] for n in visits])
                        q[s, a] = min(4 - h, gain + after + 0.3 / math.sqrt(len(known)))
                value = q.max(1).tolist()
                if h == query % 4:
                    row = q[states[query]]
                    best = row >= row.max() - 1e-9
            expected = np.log(2 * np.clip(best / best.sum(), 1e-9, None))
            np.testing.assert_allclose(found[game, query].numpy(), expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
def test_the_regret_of_ucb_vi_is_below_its_bound_and_grows_at_most_as_a_root(settings: dict[str, Any]):
    found = list[float]()
    for episodes in (50, 200):  # about eight visits of a cell, then four times as many
        task = posed(points=episodes, horizon=3, dim=3, **settings)
        found.append(float(task.play(mdp_policies.ucb_vi).mean()))
        assert found[-1] < Ucbvi(horizon=3, states=3, actions=2, episodes=episodes).value()
    assert found[1] / found[0] < 2  # √4


# Posterior


@pytest.mark.slow
@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
def test_optimal_actions_are_drawn_from_the_posterior(settings: dict[str, Any]):
    """The cross entropy of a calibrated distribution is its own entropy."""
    task = posed(points=8, **settings)
    batch = task.sample(500, stream("calibration"))
    logits = Solver.model_validate({"kind": "posterior_sampling", "draws": 256}).predict(batch, 1)[0]
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1)
    ahead = (task.raw_error(logits, batch) - entropy).mean(-1)
    # 256 draws have the variance p (1 - p) / 256 around p. Their cross entropy is larger by about 1 / 512.
    drawn = 0.0 if settings.get("environment") == "chain" else 1 / 256
    assert abs(float(ahead.mean())) < 4 * sem(ahead) + drawn
    assert float(entropy[:, -1].mean()) < 0.97 * float(entropy[:, 0].mean())


def test_the_posterior_of_a_seen_chain_is_certain():
    task = posed(environment="chain", dim=2, horizon=2, points=2, slip=0.0, context="uniform")
    history = task.sample(200, stream("seen")).problem
    found = mdp_policies.posterior_sampling(history.tally())
    for game in range(200):
        action, moved = int(history.plays[game, 0].argmax()), bool(history.states[game, 1, 1])
        expected = torch.zeros(2, dtype=torch.float64)
        expected[action if moved else 1 - action] = 1
        assert (found[game, 0] == 0.5).all()
        torch.testing.assert_close(found[game, 2], expected)


# Play


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
def test_the_oracle_loses_exactly_nothing_and_its_labels_are_optimal(settings: dict[str, Any]):
    task = posed(points=4, **settings)
    oracle = Solver.model_validate({"kind": "value_iteration"})
    found = outcomes(oracle, task, 1)
    names = ("play_regret", "play_regret_greedy", "play_regret_ratio", "play_exponent")
    assert [found[name] for name in names] == [0, 0, 0, 0]
    batch = task.sample(64, stream("labels"))
    assert ((batch.problem.best_actions() * batch.targets).sum(-1) > 0).all()


@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
def test_the_mean_regret_is_the_value_that_a_player_loses(settings: dict[str, Any]):
    """The value of uniform play follows from the same recursion with a mean over actions."""
    task = posed(points=6, **settings)
    games = task.played_games(512)
    regrets = task.play(lambda tally: torch.full((512, 2), 0.5))
    best = optimal_values(games.means, games.transitions, 4).amax(-1)[:, 0]
    means, transitions = games.means.double(), games.transitions.double()
    value = torch.zeros(512, 4, dtype=torch.float64)
    for stage in (3, 2, 1, 0):
        layer = stage if means.shape[1] > 1 else 0
        value = (means[:, layer] + torch.einsum("bsaz,bz->bsa", transitions[:, layer], value)).mean(-1)
    expected = (best - value).gather(1, games.luck.starts).sum(1)
    ahead = regrets - expected
    assert abs(float(ahead.mean())) < 4 * sem(ahead)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["ucb_vi", "posterior_sampling"])
def test_a_solver_plays_as_its_policy(solver: str):
    task = posed(points=4, expert=solver)
    found = outcomes(Solver.model_validate({"kind": solver}), task, 3)
    assert found["play_regret"] == pytest.approx(float(task.play(task.policy(solver)).mean()), rel=1e-5)
    assert found["play_regret_ratio"] == pytest.approx(1, rel=1e-5)


# Mismatch and exponents


@pytest.mark.parametrize("kind", ["mdp", "bandit"])
def test_the_expert_on_its_own_games_has_the_ratio_one(kind: str):
    policy = "ucb_vi" if kind == "mdp" else "thompson"
    task = Task.model_validate({"kind": kind, "points": 5, "context": policy, "expert": policy})
    found = outcomes(Solver.model_validate({"kind": policy}), task, 1)
    assert found["play_kl"] == pytest.approx(0, abs=1e-5)
    assert found["play_log_ratio"] == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize(("kind", "rounds", "arms"), [("mdp", 20, 2), ("bandit", 5, 5)])
def test_the_oracle_against_uniform_play_has_the_ratio_k_to_the_number_of_rounds(
    kind: str, rounds: int, arms: int
):
    task = Task.model_validate({"kind": kind, "points": 5, "context": "uniform"})
    oracle = "value_iteration" if kind == "mdp" else "best_arm"
    found = outcomes(Solver.model_validate({"kind": oracle}), task, 1)
    assert found["play_kl"] == pytest.approx(rounds * math.log(arms), rel=1e-6)
    assert found["play_log_ratio"] == pytest.approx(rounds * math.log(arms), rel=1e-6)


def test_the_probability_of_mixed_play_is_the_mean_over_its_draws():
    draws = mixed(400_000, 2, 3, 3, stream("mixed")).double()
    for counts in ([[2, 0, 1], [0, 0, 4]], [[0, 0, 0], [1, 1, 1]], [[5, 0, 0], [3, 0, 0]]):
        rows = torch.tensor(counts, dtype=torch.float64)
        each = torch.special.xlogy(rows, draws).sum((-1, -2)).exp()
        expected = float(each.mean())
        assert float(log_mixed(rows[None])[0].exp()) == pytest.approx(expected, abs=5 * sem(each))


def test_the_probabilities_of_all_mixed_plays_sum_to_one():
    plays = torch.tensor(list(itertools.product(range(3), repeat=4)))
    counts = torch.nn.functional.one_hot(plays, 3).sum(1)[:, None].double()
    assert float(log_mixed(counts).exp().sum()) == pytest.approx(1, abs=1e-12)


def test_the_exponent_of_a_power_is_its_power_with_an_interval():
    rounds = torch.arange(1, 61, dtype=torch.float64)
    scale = 1 + 0.3 * torch.randn(400, 1, generator=stream("scale"), dtype=torch.float64)
    exact = growth(scale * rounds**0.5)
    torch.testing.assert_close(exact, torch.full_like(exact, 0.5))
    linear = torch.rand(400, 60, generator=stream("luck"), dtype=torch.float64).cumsum(1)
    found = growth(linear)
    assert abs(float(found.mean()) - 1) < 4 * sem(found)
    assert 0 < sem(found) < 0.05


def test_the_logarithm_of_a_mean_ratio_has_the_interval_of_the_jackknife():
    logs = torch.randn(2000, generator=stream("logs"), dtype=torch.float64)
    found = log_mean_ratio(logs)
    assert abs(float(found.mean()) - 0.5) < 4 * sem(found)
    expected = float(logs.exp().std() / logs.exp().mean()) / 2000**0.5
    assert sem(found) == pytest.approx(expected, rel=0.01)


# Prompts


@pytest.mark.parametrize("tokens", [1, 2])
def test_a_query_shows_its_state_and_earlier_steps_only(tokens: int):
    task = posed(points=3, round_tokens=tokens)
    batch = task.sample(4, stream("prompts"))
    history, asked = batch.problem, batch.tokens[:, batch.queries]
    torch.testing.assert_close(asked[..., 4:8] + 1 / 4, history.states)
    stages = asked[0, :, :4].argmax(-1)
    assert stages.tolist() == [0, 1, 2, 3] * 3
    told = batch.tokens[:, 1::2] if tokens == 2 else batch.tokens[:, 1:]
    rounds = told.shape[1]
    torch.testing.assert_close(told[..., 8:12] + 1 / 4, history.states[:, :rounds])
    torch.testing.assert_close(told[..., 12:14] + 1 / 2, history.plays[:, :rounds])
    torch.testing.assert_close(told[..., 14], history.ys[:, :rounds])
    assert (batch.tokens[:, 0, 8:] == 0).all()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("settings", ENVIRONMENTS, ids=str)
@pytest.mark.parametrize("context", ["mixed", "uniform", "ucb_vi", "posterior_sampling"])
def test_histories_follow_the_transitions_of_their_problem(settings: dict[str, Any], context: str):
    history = posed(points=5, context=context, **settings).sample(200, stream("moves")).problem
    layer = [0 if history.rules.stationary else n % 4 for n in range(20)]
    chances = torch.einsum(
        "bnsaz,bns,bna,bnz->bn",
        history.transitions[:, layer][:, :-1],
        history.states[:, :-1],
        history.plays[:, :-1],
        history.states[:, 1:],
    )
    inside = torch.arange(19) % 4 < 3
    assert (chances[:, inside] > 0).all()
    assert (history.states.sum(-1) == 1).all()
    assert (history.plays.sum(-1) == 1).all()
    if history.rules.environment == "chain":
        assert (history.states[:, ::4, 0] == 1).all()


def test_states_out_of_play_are_never_visited():
    for settings in ENVIRONMENTS:
        easier = posed(points=6, **settings).easier(dim=2, points=6)
        for context in ("mixed", "ucb_vi"):
            batch = easier.model_copy(update={"context": context}).sample(50, stream("states"))
            assert (batch.problem.states[..., 2:] == 0).all()


def test_a_net_that_overflows_has_no_regret_number():
    found = posed(points=3).outcomes(lambda batch: torch.full((len(batch.tokens), 1, 2), torch.nan))
    assert all(values.isnan().all() for values in found.values())


@pytest.mark.parametrize("block", [0, 1, 2, 6, 100])
def test_quantiles_between_computed_shapes_are_those_of_scipy(block: int):
    found = mdp_policies._gamma_quantiles(4, 3, block).numpy()
    shapes = 1 + 32 * block + np.arange(32.0)
    chances = scipy.stats.gamma.cdf(found, shapes[:, None, None])
    np.testing.assert_allclose(chances, np.broadcast_to(chances[:1], chances.shape), rtol=1e-9)
    np.testing.assert_allclose(found, scipy.stats.gamma.ppf(chances, shapes[:, None, None]), rtol=1e-9)
