import math
import resource
from typing import Any

import pytest
import torch

from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net
from loopscale.training.device import prepare, products
from loopscale.training.loop import Diverged, Learner, learning_rate, train
from loopscale.training.objective import objective
from loopscale.training.trial import Training, Trial


def scrambled(trial: Trial) -> Net:
    """A net with large weights. With initial weights all loops agree to six digits."""
    net, rng = trial.model.build(trial.task.prompt, stream("weights")), stream("scrambled")
    with torch.no_grad():
        for weight in net.parameters():
            weight.add_(torch.randn(weight.shape, generator=rng), alpha=0.5)
    return net


def reports(trial: Trial) -> list[tuple[int, dict[str, float]]]:
    return [(progress.step, progress.metrics) for progress in train(trial)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", Model.choices())
def test_the_same_trial_twice_is_bitwise_equal(make, kind: str):
    once, again = reports(make(kind)), reports(make(kind))
    assert once == again
    assert [step for step, _ in once] == [4, 8, 12]


def test_another_seed_gives_other_results(make):
    assert reports(make())[0] != reports(make(seed=1))[0]


def test_the_last_step_is_reported_even_if_eval_every_does_not_divide_it(make):
    assert [step for step, _ in reports(make(steps=10))] == [4, 8, 10]


def test_more_frequent_evaluation_does_not_change_training(make):
    often, seldom = reports(make(eval_every=1)), reports(make(eval_every=12))
    assert {key: often[-1][1][key] for key in ("error", "error_last", "lr")} == {
        key: seldom[-1][1][key] for key in ("error", "error_last", "lr")
    }
    losses = [metrics["loss"] for _, metrics in often]
    assert seldom[-1][1]["loss"] == pytest.approx(sum(losses) / 12, rel=1e-12)


@pytest.mark.parametrize("kind", [kind for kind, choice in Model.choices().items() if choice().recomputable])
def test_recomputation_changes_no_digit_and_no_key(make, kind: str):
    kept, recomputed = make(kind), make(kind, recompute=True)
    assert reports(recomputed) == reports(kept)
    assert recomputed.key == kept.key


def test_recomputation_is_refused_for_a_net_that_keeps_all_values(make):
    with pytest.raises(ValueError, match="model lstm cannot recompute; write recompute: false"):
        make("lstm", recompute=True)


def test_training_does_not_use_the_global_generator(make):
    before = torch.get_rng_state()
    reports(make())
    assert torch.equal(before, torch.get_rng_state())


def test_every_weight_is_trained(make):
    for kind in Model.choices():
        for precision in ("float32", "bf16", "float64"):
            learner = Learner(make(kind, precision=precision))
            learner.learn(1)
            for name, weight in learner.net.named_parameters():
                assert weight.grad is not None, (kind, precision, name)
                assert weight.grad.abs().sum() > 0 or "qkv.bias" in name, (kind, precision, name)


@pytest.mark.parametrize(("precision", "expected"), [("bf16", torch.float32), ("float64", torch.float64)])
def test_every_precision_trains_and_keeps_the_type_of_its_weights(
    make, precision: str, expected: torch.dtype
):
    *_, last = train(make(precision=precision))
    state = last.state()
    assert {tensor.dtype for tensor in state.net.values()} == {expected}
    assert {moments["exp_avg"].dtype for moments in state.optimizer["state"].values()} == {expected}
    (reference,) = (metrics for step, metrics in reports(make()) if step == 12)
    assert last.metrics["error"] == pytest.approx(reference["error"], abs=0.02)
    assert last.metrics["error"] != reference["error"]


def test_eq_6_averages_the_last_window_of_loops(make):
    trial = make(loops=5, window=2)
    net = scrambled(trial)
    batch = trial.task.sample(8, stream("a batch"))
    expected = trial.task.error(net.predict(batch, 5), batch)[3:].mean()
    torch.testing.assert_close(objective(net, trial, batch), expected)


def test_the_loss_of_a_net_of_fixed_depth_uses_the_last_layer_only(make):
    trial = make("gpt2", layers=3)
    net = scrambled(trial)
    batch = trial.task.sample(8, stream("a batch"))
    expected = trial.task.error(net.predict(batch, 3), batch)[-1].mean()
    torch.testing.assert_close(objective(net, trial, batch), expected)


def test_truncation_changes_the_gradient_and_not_the_loss(make):
    gradients = []
    for truncate in (True, False):
        learner = Learner(make(truncate=truncate, loops=5, window=2))
        loss = learner.learn(1)
        gradients.append((loss, next(learner.net.parameters()).grad))
    torch.testing.assert_close(gradients[0][0], gradients[1][0])
    assert not torch.allclose(gradients[0][1], gradients[1][1])


@pytest.mark.parametrize("lr", [1e30, 1e5])
def test_divergence_raises_an_error_with_step_and_value(make, lr: float):
    with pytest.raises(
        Diverged, match=r"(loss is (nan|inf)|is no longer finite|is (nan|inf)) at step \d+|finite at step"
    ):
        reports(make("gpt2", lr=lr, norm="none", steps=60))


def test_a_nan_weight_is_reported_as_divergence_at_the_next_step(make):
    stream_of_progress = train(make())
    progress = next(stream_of_progress)
    with torch.no_grad():
        state = progress.learner.net.state_dict()
        next(iter(state.values())).fill_(torch.nan)
    with pytest.raises(Diverged, match="loss is nan at step 5"):
        next(stream_of_progress)


def test_the_learning_rate_decays_by_a_factor_after_every_step_past_the_warm_up():
    options = Training(steps=6, lr=2.0, warmup=2, decay=0.5)
    assert [learning_rate(options, step) for step in range(1, 7)] == [1, 2, 2, 1, 0.5, 0.25]
    both = Training(steps=6, lr=2.0, warmup=2, decay=0.5, schedule="cosine")
    cosine = Training(steps=6, lr=2.0, warmup=2, schedule="cosine")
    for step in range(1, 7):
        factor = learning_rate(options, step) / 2 if step > 2 else 1
        assert learning_rate(both, step) == pytest.approx(factor * learning_rate(cosine, step))


def test_the_learning_rate_rises_linearly_and_falls_along_a_cosine():
    options = Training(steps=20, lr=1.0, warmup=4, schedule="cosine")
    rates = [learning_rate(options, step) for step in range(1, 21)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4] == 1.0
    assert rates[12] == pytest.approx(0.5)
    assert 0 < rates[-1] < 0.02
    assert rates[4:] == sorted(rates[4:], reverse=True)
    constant = Training(steps=20, lr=1.0, warmup=4)
    assert {learning_rate(constant, step) for step in range(4, 21)} == {1.0}


def test_the_reported_learning_rate_belongs_to_the_step(make):
    trial = make(schedule="cosine", warmup=4)
    assert [metrics["lr"] for _, metrics in reports(trial)] == [
        learning_rate(trial.training, step) for step in (4, 8, 12)
    ]


def test_clipping_bounds_the_norm_of_the_gradient(make):
    def norm(**settings: Any) -> float:
        learner = Learner(make(**settings))
        learner.learn(1)
        return math.sqrt(sum(float(weight.grad.square().sum()) for weight in learner.net.parameters()))

    assert norm() > 0.02
    assert norm(clip=0.01) == pytest.approx(0.01, rel=1e-3)


def test_a_curriculum_grows_on_schedule_and_stops_at_the_task(make):
    curriculum = {"dim": 1, "points": 3, "every": 2, "points_by": 2}
    trial = make(task={"dim": 3, "points": 8}, curriculum=curriculum)
    batches = [trial.stage(step).sample(4, stream(0)) for step in range(1, 12)]
    assert [len(batch.queries) for batch in batches] == [3, 3, 5, 5, 7, 7, 8, 8, 8, 8, 8]
    at_work = [int((batch.tokens[..., :3].abs().sum((0, 1)) > 0).sum()) for batch in batches]
    assert at_work == [1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3]
    assert {batch.tokens.shape[-1] for batch in batches} == {4}
    assert [step for step, _ in reports(trial)] == [4, 8, 12]


def test_under_a_curriculum_the_loss_is_scaled_by_the_full_task(make):
    trial = make(task={"dim": 4}, curriculum={"dim": 1, "points": 5, "every": 100})
    net = Learner(trial).net
    batch = trial.stage(1).sample(8, stream("a batch"))
    raw = trial.task.raw_error(net(batch.tokens, 4, first=3)[:, :, batch.queries], batch).mean()
    torch.testing.assert_close(objective(net, trial, batch), raw / trial.task.variance)


def test_a_curriculum_beyond_the_task_is_refused(make):
    with pytest.raises(ValueError, match="starts with points 9, but the task has points 5"):
        make(curriculum={"dim": 1, "points": 9, "every": 10})


def test_prepare_resets_global_settings_of_torch():
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    torch.backends.cudnn.allow_tf32 = True  # torch's default, which LSTMs on a GPU obey
    prepare(1)
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cudnn.allow_tf32
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.slow
def test_a_step_uses_the_memory_that_the_step_before_freed(make):
    """glibc alone returns the memory at every step: about 8,000 new pages at this size."""
    prepare(1)
    learner = Learner(
        make(width=64, heads=4, batch_size=64, loops=10, window=5, steps=50, task={"points": 11})
    )
    for step in range(1, 11):
        learner.learn(step)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for step in range(11, 21):
        learner.learn(step)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 10 * 2000


def test_products_are_in_tf32_only_inside_the_step_of_a_trial_in_tf32():
    def settings() -> tuple[str, bool]:
        return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32

    prepare(1)
    for precision, device, expected in (
        ("tf32", "cuda", ("high", True)),
        ("tf32", "cpu", ("highest", False)),
        ("bf16", "cuda", ("highest", False)),
    ):
        with products(precision, device):
            assert settings() == expected
        assert settings() == ("highest", False)


def test_tf32_on_a_cpu_is_float32_and_another_trial(make):
    assert reports(make(precision="tf32")) == reports(make())
    assert make(precision="tf32").key != make().key


@pytest.mark.slow
def test_learns_a_line_through_the_origin(make):
    trial = make(
        "looped", task={"dim": 1}, width=32, loops=4, window=4, steps=1000, batch_size=64, eval_every=1000
    )
    *_, last = train(trial)
    assert last.metrics["error_last"] < 0.2


@pytest.mark.slow
def test_a_small_algoformer_learns_regression_in_1200_steps(make):
    trial = make(
        task={"points": 8}, width=32, loops=6, window=3, steps=1200, batch_size=64, lr=3e-3, eval_every=1200
    )
    *_, last = train(trial)
    assert last.metrics["error_last"] < 0.1
