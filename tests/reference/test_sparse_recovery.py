"""Sparse recovery: the content of prompts, and the probes of β."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate
from loopscale.solvers.sparse import Ista, OracleSupport
from loopscale.tasks.induced import induced_weights
from loopscale.tasks.sparse_recovery import SparseRecovery

TASK = SparseRecovery(dim=8, points=7, nonzero=3)


@pytest.mark.parametrize("active", [None, 5, 2])
def test_the_support_has_the_set_size_and_is_uniform(active: int | None):
    task = TASK.model_copy(update={"active": active})
    support = task.sample(2000, stream("support")).problem.support
    assert (support.sum(1) == min(3, active or 8)).all()
    share = support.float().mean(0)
    at_work = active or 8
    expected = torch.full((at_work,), min(3, at_work) / at_work)
    torch.testing.assert_close(share[:at_work], expected, atol=0.05, rtol=0)
    assert not share[at_work:].any()


def test_nonzero_values_are_normal_or_signs():
    for values in ("gaussian", "signs"):
        task = SparseRecovery.model_validate(TASK.model_dump() | {"values": values, "w_scale": 2.0})
        problem = task.sample(4000, stream("values")).problem
        present = problem.weights[problem.support]
        assert present.square().mean().item() == pytest.approx(4, rel=0.05)
        assert present.mean().item() == pytest.approx(0, abs=0.1)
        assert (values == "signs") == (present.abs().unique().tolist() == [2.0])


def test_all_prompts_share_a_fixed_matrix_which_depends_on_its_seed_only():
    fixed = SparseRecovery(dim=8, points=7, matrices="fixed", x_scale=3.0)
    xs = fixed.sample(5, stream(0)).problem.xs
    assert (xs == xs[0]).all()
    assert torch.equal(xs[0], fixed.sample(1, stream(1)).problem.xs[0])
    torch.testing.assert_close(xs.norm(dim=-1), torch.full((5, 7), 3 * 8**0.5))
    other = fixed.model_copy(update={"matrix_seed": 1}).sample(1, stream(0)).problem.xs
    assert not torch.isclose(other[0], xs[0]).any()
    assert torch.equal(fixed.easier(8, 4).sample(1, stream(0)).problem.xs[0], xs[0, :4])
    assert not (TASK.sample(2, stream(0)).problem.xs[0] == TASK.sample(2, stream(0)).problem.xs[1]).any()


def test_a_random_query_follows_the_rows_of_the_fixed_matrix():
    rows = SparseRecovery(dim=8, points=7, matrices="fixed")
    drawn = rows.model_copy(update={"query": "drawn"})
    xs = drawn.sample(4000, stream(0)).problem.xs
    assert torch.equal(xs[:, :-1], rows.sample(4000, stream(0)).problem.xs[:, :-1])
    torch.testing.assert_close(xs[:, -1].T.cov(), torch.eye(8), atol=0.1, rtol=0)
    assert torch.equal(drawn.easier(8, 4).sample(2, stream(0)).problem.xs[:, :3], xs[:2, :3])
    batch = drawn.sample(20_000, stream("cost"))
    cost = drawn.error(torch.zeros(1, *batch.targets.shape), batch)[0].mean(0)
    torch.testing.assert_close(cost, torch.ones(7), atol=0.05, rtol=0)


def test_a_linear_map_answers_a_row_of_the_matrix_but_not_a_random_query():
    """The best linear map from the measurements to the answer, fitted on other prompts."""
    remaining = {}
    for query in ("row", "drawn"):
        task = SparseRecovery(dim=8, points=8, nonzero=2, matrices="fixed", query=query)
        fitted, tested = (task.sample(4000, stream(seed)).problem for seed in (0, 1))
        linear = torch.linalg.lstsq(fitted.ys[:, :-1], fitted.ys[:, -1:]).solution
        remaining[query] = float(
            (tested.ys[:, :-1] @ linear - tested.ys[:, -1:]).square().mean() / task.variance
        )
    assert remaining["row"] < 0.08
    assert remaining["drawn"] > 0.95


@pytest.mark.parametrize("setting", [{"query": "drawn"}, {"matrix_seed": 3}])
def test_settings_of_a_fixed_matrix_are_refused_for_random_matrices(setting: dict[str, Any]):
    with pytest.raises(ValidationError, match="leave them out, or write matrices: fixed"):
        SparseRecovery(dim=8, **setting)


def test_more_nonzeros_than_coordinates_are_refused():
    with pytest.raises(ValidationError, match="nonzero 9 is more than the dim 8 coordinates;"):
        SparseRecovery(dim=8, nonzero=9)


@pytest.mark.parametrize("active", [None, 5])
def test_induced_weights_reproduce_the_answers_of_a_linear_predictor(active: int | None):
    task = TASK.model_copy(update={"active": active, "x_scale": 0.5})
    batch = task.sample(6, stream("induced"))
    solver = Ista(penalty=0.02)
    weights = induced_weights(solver, batch, 3, active or 8, 0.5)
    query = batch.problem.xs[:, -1]
    answers = solver.predict(batch, 3)[:, :, -1, 0]
    torch.testing.assert_close((weights * query).sum(-1), answers, atol=1e-5, rtol=1e-4)
    assert not weights[..., active or 8 :].any()


def test_support_recovery_is_one_for_the_oracle_and_chance_for_random_answers():
    class Ignorant(Ista, kind=""):
        def predict(self, batch, steps):
            answers = torch.randn(
                steps, *batch.targets.shape, generator=stream("nothing"), dtype=torch.float64
            )
            return answers * 1e-9

    evaluation = Evaluation(loops=2, prompts=2000)
    oracle, ignorant = (
        evaluate(solver, TASK, evaluation).measures for solver in (OracleSupport(), Ignorant())
    )
    assert oracle["support_recovery"].tolist() == [1, 1]
    assert oracle["weights_error"].max() < 1e-9
    assert ignorant["weights_error"] == pytest.approx([1, 1], abs=0.15)
    assert ignorant["support_recovery"] == pytest.approx([3 / 8, 3 / 8], abs=0.05)


def test_both_formats_ask_the_same_last_query():
    encoder = TASK.model_copy(update={"format": "encoder"})
    assert (encoder.whole, encoder.seen) == (True, (6,))
    paired, interleaved = (task.sample(300, stream("format")) for task in (encoder, TASK))
    torch.testing.assert_close(paired.targets[:, 0], interleaved.targets[:, -1])
    assert (paired.tokens[:, :-1, -1] == interleaved.problem.ys[:, :-1]).all()
    assert not paired.tokens[:, -1, -2:].any()  # neither the flag nor y
    for solver in (Ista(), OracleSupport()):
        expected = solver.predict(interleaved, 6)[:, :, -1:]
        torch.testing.assert_close(solver.predict(paired, 6), expected)
        probes = encoder.probes(solver, paired, 6), TASK.probes(solver, interleaved, 6)
        torch.testing.assert_close(*probes)
