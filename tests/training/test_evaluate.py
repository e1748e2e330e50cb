import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from loopscale import evaluate as module
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, error_curve, evaluate, summary, validation_errors
from loopscale.regret import floor
from loopscale.tasks.base import Task
from loopscale.tasks.clustering import Clustering
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.tasks.representation_regression import RepresentationRegression
from loopscale.training.loop import Learner

TASK = LinearRegression(dim=3, points=6, noise=0.5)


class Constant(Predictor):
    """Predicts the same number everywhere, multiplied by `factor` at every step."""

    def __init__(self, start: float, factor: float = 1.0) -> None:
        self.start, self.factor = start, factor
        self.seen: list[Batch] = []

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        self.seen.append(batch)
        guesses = torch.tensor([self.start * self.factor**step for step in range(steps)])
        return guesses[:, None, None, None].expand(steps, *batch.targets.shape)


def test_predicting_zero_costs_one_within_the_standard_error():
    curve = evaluate(Constant(0.0), TASK, Evaluation(loops=2, prompts=2000))
    assert curve.error.shape == curve.sem.shape == curve.raw.shape == (2, 6)
    assert (abs(curve.error - 1) < 4.5 * curve.sem).all()
    np.testing.assert_allclose(curve.raw, curve.error * TASK.variance)


def test_sem_is_the_standard_error_of_the_mean_over_prompts():
    predictor = Constant(0.3)
    curve = evaluate(predictor, TASK, Evaluation(loops=1, prompts=600))
    errors = torch.cat(
        [TASK.error(predictor.predict(batch, 1), batch)[0] for batch in list(predictor.seen)]
    ).double()
    np.testing.assert_allclose(curve.error[0], errors.mean(0), rtol=1e-6)
    np.testing.assert_allclose(curve.sem[0], errors.std(0) / 600**0.5, rtol=1e-6)


def test_regret_comes_from_the_same_forward_pass_and_leaves_the_error_as_it_is():
    predictor, evaluation = Constant(0.3), Evaluation(loops=2, prompts=600)
    without = evaluate(predictor, TASK, evaluation)
    passes = len(predictor.seen)
    with_regret = evaluate(predictor, TASK, evaluation, floor=floor(TASK, "evaluate", 600))
    assert len(predictor.seen) == 2 * passes
    for name in ("error", "sem", "raw", "median"):
        np.testing.assert_array_equal(getattr(with_regret, name), getattr(without, name))
    assert without.regret is None
    assert with_regret.regret
    least = floor(TASK, "evaluate", 600).error
    noise = 4 * (with_regret.regret.sem + with_regret.sem)
    assert (abs(with_regret.regret.regret - (with_regret.error - least)) < noise).all()


def test_the_summary_has_a_regret_if_a_floor_is_known():
    evaluation = Evaluation(loops=2, prompts=64)
    curve = evaluate(Constant(0.3), TASK, evaluation, floor=floor(TASK, "evaluate", 64))
    assert curve.regret
    found = summary(curve, TASK, 2)
    assert found["regret"] == curve.regret.regret[1].mean()
    assert found["regret_last_sem"] == curve.regret.sem[1, -1]
    assert "regret" not in summary(evaluate(Constant(0.3), TASK, evaluation), TASK, 2)


def test_the_median_over_prompts_stays_finite_if_a_few_prompts_explode():
    predictor = Constant(0.3)
    curve = evaluate(predictor, TASK, Evaluation(loops=1, prompts=601))
    errors = torch.cat([TASK.error(predictor.predict(batch, 1), batch)[0] for batch in list(predictor.seen)])
    np.testing.assert_allclose(curve.median[0], errors.median(0).values, rtol=1e-6)

    class Exploding(Constant):
        @override
        def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
            guesses = super().predict(batch, steps).clone()
            guesses[:, ::4] = torch.nan
            return guesses

    curve = evaluate(Exploding(0.3), TASK, Evaluation(loops=1, prompts=600))
    assert np.isnan(curve.error).all()
    assert np.isfinite(curve.median).all()


def test_all_predictors_see_the_same_prompts_for_every_seed(make):
    first, second = Constant(0.0), Constant(1.0)
    for predictor in (first, second):
        evaluate(predictor, TASK, Evaluation(loops=1, prompts=300))
    assert [len(batch.tokens) for batch in first.seen] == [256, 44]
    for batch, other in zip(first.seen, second.seen, strict=True):
        assert torch.equal(batch.tokens, other.tokens)
    assert not torch.equal(first.seen[0].tokens[:44], first.seen[1].tokens)


def test_validation_and_evaluation_prompts_differ():
    predictor = Constant(0.0)
    evaluate(predictor, TASK, Evaluation(loops=1, prompts=10))
    validation = module._validation_set(TASK.model_dump_json(), "cpu", torch.float32)
    assert sum(len(batch.tokens) for batch in validation) == module.VALIDATION_PROMPTS
    assert not torch.equal(validation[0].tokens[:10], predictor.seen[0].tokens)


def test_explicit_defaults_do_not_change_the_prompts_of_a_task():
    explicit = LinearRegression(dim=3, points=6, noise=0.5, condition=1.0)
    assert module.canonical(explicit) == module.canonical(TASK)
    assert module.canonical(LinearRegression(dim=3, points=6)) != module.canonical(TASK)


def test_overflow_stays_on_the_curve():
    curve = evaluate(Constant(1.0, 1e15), TASK, Evaluation(loops=3, prompts=20))
    assert np.isfinite(curve.error[:2]).all()
    assert np.isinf(curve.error[2]).all()
    assert summary(curve, TASK, 3)["error"] == np.inf


def test_one_prompt_has_no_standard_error():
    curve = evaluate(Constant(0.0), TASK, Evaluation(loops=1, prompts=1))
    assert np.isnan(curve.sem).all()
    assert np.isfinite(curve.error).all()


def test_a_looped_net_runs_longer_than_in_training_and_a_net_of_fixed_depth_stops(make):
    evaluation = Evaluation(loops=9, prompts=8)
    for kind, rows in (("looped", 9), ("gpt2", 3)):
        trial = make(kind, layers=3) if kind == "gpt2" else make(kind)
        assert len(evaluate(Learner(trial).net, trial.task, evaluation).error) == rows


def test_validation_averages_the_last_step_over_the_validation_set(make):
    trial = make()
    net = Learner(trial).net
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=stream("scrambled")), alpha=0.5)
    points = validation_errors(net, trial.task, 4)
    with torch.no_grad():
        errors = torch.cat(
            [
                trial.task.error(net.predict(batch, 4), batch)[-1]
                for batch in module._validation_set(trial.task.model_dump_json(), "cpu", torch.float32)
            ]
        )
    torch.testing.assert_close(points, errors.mean(0).double(), rtol=1e-5, atol=0)


def test_a_summary_reads_one_loop_of_the_curve():
    curve = evaluate(Constant(0.5, 2.0), TASK, Evaluation(loops=3, prompts=50))
    values = summary(curve, TASK, 2)
    assert list(values) == ["error", "error_last", "raw_error", "excess"]
    assert values["error"] == pytest.approx(curve.error[1].mean())
    assert values["error_last"] == curve.error[1, -1]
    assert values["excess"] == pytest.approx(curve.raw[1].mean() - 0.25)
    for loop in (0, 4):
        with pytest.raises(ValueError, match=f"loop {loop} is not on the curve; 1 .. 3 are"):
            summary(curve, TASK, loop)


def test_error_curve_averages_over_fresh_prompts():
    errors = error_curve(Constant(0.0), TASK, 2, stream("here"), prompts=2000)
    assert errors.shape == (2, 6)
    assert abs(errors - 1).max() < 0.2


def test_the_default_evaluation_uses_the_training_task():
    assert Evaluation().posed(TASK) is TASK


def test_another_task_takes_unnamed_settings_from_the_training_task():
    noisier = Evaluation(task={"noise": 2.0}).posed(TASK)
    assert noisier == LinearRegression(dim=3, points=6, noise=2.0)
    other = Evaluation(task={"kind": "representation_regression", "dim": 3, "points": 6}).posed(TASK)
    assert other == RepresentationRegression(dim=3, points=6)


@pytest.mark.parametrize(
    ("trained", "task", "message"),
    [
        (
            TASK,
            {"dim": 4},
            "trials read 12 tokens of 4 numbers and answer with 1, but the evaluated task has 12 of 5",
        ),
        (TASK, {"points": 7}, "leave the sizes unchanged"),
        (TASK, {"noisy": 1}, "noisy"),
        (
            Clustering(data="iris", components=2, points=20),
            {"data": ["wine", "iris"]},
            "trained on iris; eval",
        ),
        (
            Clustering(components=2, dim=2, points=20),
            {"kind": "clustering", "dim": 2, "points": 20, "components": 3},
            "answer with 2",
        ),
    ],
)
def test_an_evaluation_on_another_shape_or_on_training_tables_is_refused(
    trained: Task, task: dict, message: str
):
    with pytest.raises(ValueError, match=message):
        Evaluation(task=task).posed(trained)


def test_the_key_of_an_evaluation_depends_on_its_settings():
    assert Evaluation(loops=20, prompts=1024).key == "cfbb694d", "older records keep their key"
    assert Evaluation(task={"noise": 1}).key != Evaluation().key
    assert Evaluation().key == Evaluation(loops=20, prompts=1024).key
    assert Evaluation().key != Evaluation(loops=21).key
