"""The two formats of a prompt: the same pairs with queries at every x, or with one query at the end."""

import io

import numpy as np
import pytest
import torch
from pyarrow import parquet

from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate
from loopscale.records.tables import encode_curve
from loopscale.runner.decide.job import Baseline
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial

LINE = {"kind": "linear_regression", "dim": 3, "points": 9, "noise": 0.4}
WHOLE = LINE | {"format": "encoder"}


def task(**settings: object) -> Task:
    return Task.model_validate(settings)


def test_an_encoders_prompt_has_one_pair_per_token_and_the_query_last():
    decoder, encoder = (task(**settings).sample(4, stream(0)) for settings in (LINE, WHOLE))
    xs, ys = decoder.problem.xs, decoder.problem.ys
    torch.testing.assert_close(encoder.tokens[:, :, :3], xs, rtol=0, atol=0)
    torch.testing.assert_close(encoder.tokens[:, :-1, -1], ys[:, :-1], rtol=0, atol=0)
    assert (encoder.tokens[:, -1, -1] == 0).all()
    assert encoder.tokens[0, :, 3].tolist() == [1] * 8 + [0]
    torch.testing.assert_close(encoder.targets[:, 0, 0], ys[:, -1], rtol=0, atol=0)


@pytest.mark.parametrize(
    "solver",
    [
        {"kind": "least_squares"},
        {"kind": "ridge"},
        {"kind": "newton"},
        {"kind": "construction", "name": "newton"},
    ],
    ids=lambda solver: solver["kind"],
)
def test_a_solver_gives_the_same_answer_at_the_last_query_in_both_formats(solver: dict):
    decoder, encoder = (
        Solver.model_validate(solver).predict(task(**settings).sample(4, stream(0)), 3)
        for settings in (LINE, WHOLE)
    )
    assert encoder.shape == (3, 4, 1, 1)
    torch.testing.assert_close(encoder, decoder[:, :, -1:], rtol=1e-9, atol=1e-9)


def test_the_curve_of_a_single_query_records_the_number_of_pairs():
    curve = evaluate(Solver.model_validate({"kind": "ridge"}), task(**WHOLE), Evaluation(loops=2, prompts=64))
    table = parquet.read_table(io.BytesIO(encode_curve(curve.error, curve.sem, curve.raw, seen=curve.seen)))
    assert table["point"].to_pylist() == [8, 8]
    np.testing.assert_array_equal(table["error"], curve.error[:, 0])
    plain = parquet.read_table(io.BytesIO(encode_curve(curve.error, curve.sem, curve.raw)))
    assert plain["point"].to_pylist() == [0, 0]


def test_a_net_that_looks_ahead_needs_an_encoders_prompt():
    ahead = {"kind": "gpt2", "width": 8, "heads": 2, "causal": False}
    assert Trial.model_validate({"task": WHOLE, "model": ahead}).task.whole
    with pytest.raises(ValueError, match="gpt2 looks ahead, and would see the answers"):
        Trial.model_validate({"task": LINE, "model": ahead})


def test_a_construction_for_every_query_is_no_start_for_a_single_query():
    start = {"kind": "causal_gradient_descent"}
    with pytest.raises(ValueError, match="asks only at the end of a prompt; write format: decoder"):
        Trial.model_validate({"task": WHOLE, "model": {"kind": "algoformer"}, "training": {"start": start}})


def test_the_default_format_does_not_change_the_key_of_older_trials():
    trial = {"task": LINE, "model": {"kind": "gpt2"}}
    assert "format" not in Trial.model_validate(trial).settings["task"]
    assert Trial.model_validate(trial).key != Trial.model_validate(trial | {"task": WHOLE}).key
    plain = {"task": {"kind": "linear_regression", "dim": 2}, "solver": {"kind": "ridge"}}
    assert Baseline.model_validate(plain).key == "2f2503232a01b1b9"
