"""Constructions as baselines of decision tasks, against the policies in closed form on the same prompts."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import outcomes
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.tasks.decisions import DecisionTask
from loopscale.tasks.mdp_policies import theory_confidence
from loopscale.tasks.policies import normal_points
from loopscale.theory.constructions.base import blocks, without_idle_heads, without_idle_units
from loopscale.theory.constructions.lin_ucb import LinUcb

LINEAR = {"kind": "linear_bandit", "dim": 2, "arms": 3, "points": 6}
LIN_UCB = {"name": "lin_ucb", "width": 2.0, "bound": 1.42, "solver": "newton"}


def construction(**settings: Any) -> Solver:
    return Solver.model_validate({"kind": "construction"} | settings)


def probabilities(solver: Solver, batch: Batch, steps: int = 1) -> torch.Tensor:
    return solver.predict(batch, steps)[-1].softmax(-1)


def from_query(batch: Batch, first: int) -> Batch:
    """The prompts with the queries from `first` on."""
    return replace(batch, problem=replace(batch.problem, first=first))


def test_lin_ucb_answers_every_query_as_the_policy_does():
    batch = Task.model_validate(LINEAR).sample(6, stream("players"))
    expected = probabilities(Solver.model_validate({"kind": "soft_lin_ucb"}), batch)
    net = construction(**LIN_UCB)
    torch.testing.assert_close(probabilities(net, batch, 12), expected, rtol=0, atol=1e-3)
    assert (probabilities(net, batch, 1) - expected).abs().max() > 0.1


def test_thompson_sampling_plays_the_shares_of_its_draws():
    """The draws are V⁻¹X'y + σ V⁻¹ᐟ² ξ, with V⁻¹ᐟ² from eigenvalues."""
    batch = Task.model_validate(LINEAR).sample(3, stream("players"))
    settings = {"penalty": 2.25, "spread": 1.5, "bound": 1.42, "draws": 16}
    net = construction(name="thompson_sampling", **settings)
    last = from_query(batch, 4)
    problem, points = batch.problem, normal_points(16, 2, torch.device("cpu"))
    expected = torch.zeros(3, 2, 3, dtype=torch.float64)
    for prompt in range(3):
        arms = problem.actions[prompt].double()
        for query in (4, 5):
            x, y = (each[prompt, :query].double() for each in (problem.plays @ problem.actions, problem.ys))
            values, vectors = torch.linalg.eigh(2.25 * torch.eye(2, dtype=torch.float64) + x.mT @ x)
            root = vectors / values.sqrt() @ vectors.mT
            drawn = (root @ root @ x.mT @ y)[:, None] + 1.5 * root @ points.mT
            shares = torch.bincount((arms @ drawn).argmax(0), minlength=3)
            expected[prompt, query - 4] = (shares + 1 / 3) / 17
    torch.testing.assert_close(probabilities(net, last, 14), expected, rtol=0, atol=1e-6)
    policy = probabilities(Solver.model_validate({"kind": "thompson", "draws": 4096}), last)
    assert (expected - policy).abs().max() < 0.25


def test_ucb_vi_answers_as_the_policy_with_the_bonus_of_the_theory():
    """Enough episodes that some values lie below H. A low temperature makes the softmax greedy."""
    task = Task.model_validate({"kind": "mdp", "dim": 2, "horizon": 2, "points": 160, "stationary": False})
    batch = from_query(task.sample(4, stream(0)), 317)
    confidence = theory_confidence(batch.problem.rules)
    net = construction(name="ucb_vi", horizon=2, confidence=confidence, temperature=1e-4)
    expected = probabilities(Solver.model_validate({"kind": "ucb_vi", "bonus": "theory"}), batch)
    assert (expected.amax(-1) > 0.9).any()
    assert (expected.amax(-1) < 0.6).any()
    torch.testing.assert_close(probabilities(net, batch, 1), expected, rtol=0, atol=1e-6)


def test_a_construction_reads_no_round_after_the_query():
    task = Task.model_validate({"kind": "mdp", "dim": 2, "horizon": 2, "points": 3, "stationary": False})
    batch = task.sample(3, stream("later"))
    problem = batch.problem
    changed = replace(problem, ys=problem.ys.clone(), plays=problem.plays.clone())
    changed.ys[:, 2:], changed.plays[:, 2:] = 1 - changed.ys[:, 2:], 1 - changed.plays[:, 2:]
    net = construction(name="ucb_vi", horizon=2)
    before, after = (probabilities(net, replace(batch, problem=each), 2) for each in (problem, changed))
    # The policy of an episode is that of the plays before the episode, so a change in episode 2 shows in episode 3.
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=0)
    assert (before[:, 4:] != after[:, 4:]).any()


def test_a_construction_plays_games_as_its_policy_does():
    task = Task.model_validate(LINEAR | {"points": 3})
    assert isinstance(task, DecisionTask)
    found = outcomes(construction(**LIN_UCB | {"pieces": 32}), task, 8)
    policy = outcomes(Solver.model_validate({"kind": "soft_lin_ucb"}), task, 1)
    assert found["play_regret"] == pytest.approx(policy["play_regret"], rel=0.01)


@pytest.mark.parametrize(
    ("settings", "task", "message"),
    [
        ({"name": "lin_ucb", "bound": 1.0}, LINEAR, "bound 1 is below .* write bound: 1.42 or more"),
        (
            {"name": "ucb_vi"},
            {"kind": "mdp"},
            "has horizon 3, and the episodes have 4 stages; write horizon: 4",
        ),
    ],
)
def test_settings_that_do_not_fit_the_problems_are_one_line(
    settings: dict[str, Any], task: dict[str, Any], message: str
):
    batch = Task.model_validate(task).sample(1, stream(0))
    with pytest.raises(ValueError, match=message):
        construction(**settings).predict(batch, 1)


def test_no_construction_plays_arms_without_features():
    bandit, chains = (
        Task.model_validate({"kind": kind}).sample(1, stream(0)).problem for kind in ("bandit", "mdp")
    )
    for name in ("lin_ucb", "thompson_sampling", "ucb_vi"):
        assert not construction(name=name).accepts(bandit)
        assert construction(name=name).accepts(chains) == (name == "ucb_vi")


def test_a_net_without_idle_units_has_the_same_outputs():
    chosen = LinUcb(solver="newton", pieces=12)
    example = chosen.example(torch.Generator().manual_seed(0))
    padded, net = (without_idle_heads(chosen.net(example.prompt)) for _ in range(2))
    net = without_idle_units(net)
    units = [block.mlp[0].out_features for block in blocks(net)]
    assert max(units) == blocks(padded)[0].mlp[0].out_features
    assert min(units) < max(units) / 2
    torch.testing.assert_close(net(example.tokens, 8), padded(example.tokens, 8), rtol=0, atol=1e-13)
