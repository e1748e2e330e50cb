"""The task of sparse recovery: what its prompts hold, and what is read off a predictor's answers of β."""

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
def test_as_many_coordinates_are_not_zero_as_were_asked_for_and_any_may_be(active: int | None):
    task = TASK.model_copy(update={"active": active})
    support = task.sample(2000, stream("support")).problem.support
    assert (support.sum(1) == min(3, active or 8)).all()
    share = support.float().mean(0)
    torch.testing.assert_close(share[: active or 8], torch.full((active or 8,), min(3, active or 8) / (active or 8)),
                               atol=0.05, rtol=0)  # fmt: skip
    assert not share[active or 8 :].any()


def test_values_are_normal_or_signs():
    for values in ("gaussian", "signs"):
        task = SparseRecovery.model_validate(TASK.model_dump() | {"values": values, "w_scale": 2.0})
        problem = task.sample(4000, stream("values")).problem
        present = problem.weights[problem.support]
        assert present.square().mean().item() == pytest.approx(4, rel=0.05)
        assert present.mean().item() == pytest.approx(0, abs=0.1)
        assert (values == "signs") == (present.abs().unique().tolist() == [2.0])


def test_a_fixed_matrix_is_that_of_all_prompts_and_of_its_seed():
    fixed = SparseRecovery(dim=8, points=7, matrices="fixed", x_scale=3.0)
    xs = fixed.sample(5, stream(0)).problem.xs
    assert (xs == xs[0]).all()
    assert torch.equal(xs[0], fixed.sample(1, stream(1)).problem.xs[0])
    torch.testing.assert_close(xs.norm(dim=-1), torch.full((5, 7), 3 * 8**0.5))
    other = fixed.model_copy(update={"matrix_seed": 1}).sample(1, stream(0)).problem.xs
    assert not torch.isclose(other[0], xs[0]).any()
    assert torch.equal(fixed.easier(8, 4).sample(1, stream(0)).problem.xs[0], xs[0, :4])
    assert not (TASK.sample(2, stream(0)).problem.xs[0] == TASK.sample(2, stream(0)).problem.xs[1]).any()


def test_a_query_that_is_drawn_sees_the_rows_of_the_fixed_matrix():
    rows = SparseRecovery(dim=8, points=7, matrices="fixed")
    drawn = rows.model_copy(update={"query": "drawn"})
    xs = drawn.sample(4000, stream(0)).problem.xs
    assert torch.equal(xs[:, :-1], rows.sample(4000, stream(0)).problem.xs[:, :-1])
    torch.testing.assert_close(xs[:, -1].T.cov(), torch.eye(8), atol=0.1, rtol=0)
    assert torch.equal(drawn.easier(8, 4).sample(2, stream(0)).problem.xs[:, :3], xs[:2, :3])
    batch = drawn.sample(20_000, stream("cost"))
    cost = drawn.error(torch.zeros(1, *batch.targets.shape), batch)[0].mean(0)
    torch.testing.assert_close(cost, torch.ones(7), atol=0.05, rtol=0)


def test_at_a_row_of_the_matrix_a_linear_map_answers_and_at_a_drawn_query_it_does_not():
    """The best linear map from what was measured to what is asked for, fitted on other prompts."""
    left = {}
    for query in ("row", "drawn"):
        task = SparseRecovery(dim=8, points=8, nonzero=2, matrices="fixed", query=query)
        fitted, tested = (task.sample(4000, stream(seed)).problem for seed in (0, 1))
        linear = torch.linalg.lstsq(fitted.ys[:, :-1], fitted.ys[:, -1:]).solution
        left[query] = float((tested.ys[:, :-1] @ linear - tested.ys[:, -1:]).square().mean() / task.variance)
    assert left["row"] < 0.08
    assert left["drawn"] > 0.95


@pytest.mark.parametrize("setting", [{"query": "drawn"}, {"matrix_seed": 3}])
def test_what_only_a_fixed_matrix_has_is_refused_of_drawn_ones(setting: dict[str, Any]):
    with pytest.raises(ValidationError, match="leave them out, or write matrices: fixed"):
        SparseRecovery(dim=8, **setting)


def test_more_that_is_not_zero_than_there_is_is_refused_in_one_line():
    with pytest.raises(ValidationError, match="nonzero 9 is more than the dim 8 coordinates;"):
        SparseRecovery(dim=8, nonzero=9)


@pytest.mark.parametrize("active", [None, 5])
def test_the_weights_of_a_linear_predictor_are_read_off_its_answers(active: int | None):
    task = TASK.model_copy(update={"active": active, "x_scale": 0.5})
    batch = task.sample(6, stream("induced"))
    solver = Ista(penalty=0.02)
    found = induced_weights(solver, batch, 3, active or 8, 0.5)
    asked = batch.problem.xs[:, -1]
    answers = solver.predict(batch, 3)[:, :, -1, 0]
    torch.testing.assert_close((found * asked).sum(-1), answers, atol=1e-5, rtol=1e-4)
    assert not found[..., active or 8 :].any()


def test_support_recovery_is_one_for_the_oracle_and_by_chance_for_who_knows_nothing():
    class Nothing(Ista, kind=""):
        def predict(self, batch, steps):
            answers = torch.randn(
                steps, *batch.targets.shape, generator=stream("nothing"), dtype=torch.float64
            )
            return answers * 1e-9

    evaluation = Evaluation(loops=2, prompts=2000)
    told, ignorant = (evaluate(each, TASK, evaluation).measures for each in (OracleSupport(), Nothing()))
    assert told["support_recovery"].tolist() == [1, 1]
    assert told["weights_error"].max() < 1e-9
    assert ignorant["weights_error"] == pytest.approx([1, 1], abs=0.15)
    assert ignorant["support_recovery"] == pytest.approx([3 / 8, 3 / 8], abs=0.05)


def test_pairs_side_by_side_ask_the_same_as_the_last_query_in_turns():
    encoder = TASK.model_copy(update={"format": "encoder"})
    assert (encoder.whole, encoder.seen) == (True, (6,))
    at_once, in_turns = (task.sample(300, stream("format")) for task in (encoder, TASK))
    torch.testing.assert_close(at_once.targets[:, 0], in_turns.targets[:, -1])
    assert (at_once.tokens[:, :-1, -1] == in_turns.problem.ys[:, :-1]).all()
    assert not at_once.tokens[:, -1, -2:].any()  # neither a known y nor the y
    for solver in (Ista(), OracleSupport()):
        expected = solver.predict(in_turns, 6)[:, :, -1:]
        torch.testing.assert_close(solver.predict(at_once, 6), expected)
        found = encoder.probes(solver, at_once, 6), TASK.probes(solver, in_turns, 6)
        torch.testing.assert_close(*found)
