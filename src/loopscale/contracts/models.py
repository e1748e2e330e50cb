"""The contract of every model, with its defaults and with several other settings."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from loopscale.contracts.members import under_test
from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net

PROMPT = Prompt(length=10, dim_in=4, dim_out=2, pairs="interleaved")

VARIANTS: list[dict[str, Any]] = [
    {},
    {"layers": 3},
    {"attention": "relu"},
    {"attention": "linear", "normaliser": "length", "head_dim": 64, "heads": 2},
    {"attention": "relu", "normaliser": "none", "mlp_width": 0},
    {"norm": "none", "activation": "relu", "positions": "none", "score_scale": 1.0},
    {"biases": False, "mlp_width": 24, "heads": 3, "head_dim": 7},
    {"injection": "none"},
    {"repeat_positions": False, "repeat_norm": False},
    {"injection": "none", "repeat_positions": False, "norm": "none"},
    {"pre_layers": 0, "post_layers": 0, "loop_layers": 2},
    {"pre_layers": 2, "post_layers": 0, "repeat_positions": False},
    {"causal": False},
    {"causal": False, "positions": "none", "attention": "relu", "layers": 2},
]


def _members(which: Callable[[Model], bool] = lambda model: True) -> list[Any]:
    """Every model in every variant with known settings, filtered by `which`."""
    return [
        pytest.param(model, id=f"{kind}-{','.join(f'{k}={v}' for k, v in settings.items())}")
        for kind, choice in under_test(Model).items()
        for settings in VARIANTS
        if settings.keys() <= choice.model_fields.keys() and which(model := choice.model_validate(settings))
    ]


every_model = pytest.mark.parametrize("model", _members())
every_truncatable_model = pytest.mark.parametrize(
    "model", _members(lambda model: model.depth is None and model.truncatable)
)
every_decoder = pytest.mark.parametrize("model", _members(lambda model: not model.looks_ahead))
every_encoder = pytest.mark.parametrize("model", _members(lambda model: model.looks_ahead))
every_encoder_without_positions = pytest.mark.parametrize(
    "model", _members(lambda model: model.looks_ahead and getattr(model, "positions", None) == "none")
)
every_decoder_independent_of_length = pytest.mark.parametrize(
    "model",
    _members(lambda model: not model.looks_ahead and getattr(model, "normaliser", None) != "length"),
)


def steps(model: Model) -> int:
    return model.depth or 4


def tokens(length: int = PROMPT.length) -> torch.Tensor:
    return torch.randn(3, length, PROMPT.dim_in, generator=stream("tokens"))


def gradients(net: Net, output: torch.Tensor) -> dict[str, torch.Tensor | None]:
    net.zero_grad()
    output.square().sum().backward()
    return {name: weight.grad for name, weight in net.named_parameters()}


@every_model
def test_the_output_has_a_prediction_at_every_position_after_every_step(model: Model):
    assert model.build(PROMPT, stream(0))(tokens(), steps(model)).shape == (steps(model), 3, 10, 2)


@every_model
def test_answers_are_the_outputs_at_the_queries_with_the_same_gradients(model: Model):
    """In double precision. The queries end before the prompt does, and the first step may be any."""
    net = model.build(PROMPT, stream(0)).double()
    queries = torch.tensor([2, 4, 7])
    batch = Batch(tokens().double(), torch.zeros(3, 3, 2), queries, None)
    for first in {1, steps(model)}:
        outputs = net(batch.tokens, steps(model), first)[:, :, queries]
        answers = net.answers(batch, steps(model), first)
        torch.testing.assert_close(answers, outputs)
        expected, found = gradients(net, outputs), gradients(net, net.answers(batch, steps(model), first))
        for name, gradient in expected.items():
            if gradient is not None and gradient.any():  # a weight of no answer has no gradient, or zeros
                torch.testing.assert_close(found[name], gradient, msg=name)
    every = Batch(batch.tokens, torch.zeros(3, 10, 2), torch.arange(10), None)
    torch.testing.assert_close(net.answers(every, steps(model)), net(every.tokens, steps(model)))


@every_model
def test_there_is_a_state_at_every_position_after_every_step(model: Model):
    net = model.build(PROMPT, stream(0))
    assert net.states(tokens(), steps(model)).shape[:3] == (steps(model), 3, 10)
    for wrong in (0, (model.depth or 0) + 1 if model.depth else -1):
        with pytest.raises(ValueError, match="steps"):
            net.states(tokens(), wrong)


@every_decoder
def test_a_decoder_has_earlier_outputs_and_states_independent_of_later_tokens(model: Model):
    net = model.build(PROMPT, stream(0))
    changed = tokens()
    changed[:, 6:] += 1
    for read in (net, net.states):
        before, after = read(tokens(), steps(model)), read(changed, steps(model))
        torch.testing.assert_close(before[:, :, :6], after[:, :, :6])
        assert not torch.allclose(before[:, :, 6:], after[:, :, 6:])


@every_encoder
def test_an_encoder_has_outputs_that_depend_on_later_tokens(model: Model):
    net = model.build(PROMPT, stream(0)).double()
    changed = tokens().double()
    before = net(changed, steps(model))
    changed[:, 8] += 1
    assert ((net(changed, steps(model)) - before)[-1].abs() > 1e-9).any(-1).all()


@every_encoder_without_positions
def test_an_encoder_without_positions_is_equivariant(model: Model):
    net = model.build(PROMPT, stream(0)).double()
    order = torch.randperm(PROMPT.length, generator=stream("order"))
    before, after = (
        net(prompts, steps(model)) for prompts in (tokens().double(), tokens().double()[:, order])
    )
    torch.testing.assert_close(before[:, :, order], after)
    assert not torch.allclose(before, after)


@every_model
def test_earlier_tokens_change_later_outputs(model: Model):
    net = model.build(PROMPT, stream(0)).double()
    changed = tokens().double()
    before = net(changed, steps(model))
    changed[:, 2:4] += 1  # a whole pair, because LISTA reads y and not x
    assert ((net(changed, steps(model)) - before)[-1, :, 4:].abs() > 1e-9).any(-1).all()


@every_model
def test_more_steps_do_not_change_the_first_steps(model: Model):
    net = model.build(PROMPT, stream(0))
    many = model.depth or 12
    torch.testing.assert_close(net(tokens(), many)[: many // 2 or 1], net(tokens(), many // 2 or 1))


@every_model
def test_every_weight_is_initialised_and_trained(model: Model):
    net = model.build(PROMPT, stream(0))
    assert all(weight.isfinite().all() for weight in net.parameters())
    grads = gradients(net, net(tokens(), steps(model)))
    untrained = [name for name, grad in grads.items() if grad is None or not grad.any()]
    assert not untrained, f"no gradient reaches {', '.join(untrained)}"


@every_truncatable_model
def test_every_weight_is_trained_by_the_last_steps_alone(model: Model):
    net = model.build(PROMPT, stream(0))
    grads = gradients(net, net(tokens(), 4, 3, truncate=True))
    untrained = [name for name, grad in grads.items() if grad is None or not grad.any()]
    assert not untrained, f"no gradient reaches {', '.join(untrained)}"


@every_model
def test_the_seed_determines_the_weights(model: Model):
    once, again, other = (model.build(PROMPT, stream(seed)).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(once[name], again[name]) for name in once)
    drawn = [name for name in once if once[name].ndim > 1]
    assert drawn
    # A weight that does not depend on the seed contains zeros and at most one other value.
    fixed = [name for name in drawn if torch.equal(once[name], other[name])]
    assert len(fixed) < len(drawn)
    assert all(len(once[name][once[name] != 0].unique()) <= 1 for name in fixed)


@every_model
def test_build_and_forward_do_not_use_the_global_generator(model: Model):
    before = torch.get_rng_state()
    model.build(PROMPT, stream(0))(tokens(), steps(model))
    assert torch.equal(before, torch.get_rng_state())


@every_model
def test_supervising_only_the_last_steps_gives_the_same_outputs(model: Model):
    net = model.build(PROMPT, stream(0))
    everything = net(tokens(), steps(model))
    for first in range(1, steps(model) + 1):
        for truncate in (False, True):
            torch.testing.assert_close(net(tokens(), steps(model), first, truncate), everything[first - 1 :])


@every_model
def test_without_truncation_the_gradient_flows_through_earlier_steps(model: Model):
    net = model.build(PROMPT, stream(0)).double()
    first, last = steps(model), steps(model)
    sliced = gradients(net, net(tokens().double(), last)[first - 1 :])
    for name, grad in gradients(net, net(tokens().double(), last, first)).items():
        torch.testing.assert_close(grad, sliced[name], msg=name)


@every_model
def test_invalid_steps_are_an_error(model: Model):
    net = model.build(PROMPT, stream(0))
    if model.depth is not None:
        with pytest.raises(ValueError, match=f"{model.depth + 1} steps .* 1 .. {model.depth}"):
            net(tokens(), model.depth + 1)
    for first in (0, steps(model) + 1):
        with pytest.raises(
            ValueError, match=f"first {first} is outside the steps; write 1 .. {steps(model)}"
        ):
            net(tokens(), steps(model), first)


@every_model
def test_the_depth_is_known_before_the_net_is_built(model: Model):
    assert model.build(PROMPT, stream(0)).depth == model.depth


@every_model
def test_a_round_trip_through_plain_data_changes_nothing(model: Model):
    assert Model.model_validate(model.model_dump(mode="json")) == model


@every_model
def test_float64_nets_compute_in_float64(model: Model):
    net = model.build(PROMPT, stream(0))
    single, double = net(tokens(), steps(model)), net.double()(tokens().double(), steps(model))
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, atol=1e-4, rtol=1e-4)


@every_decoder_independent_of_length
def test_a_shorter_prompt_gives_the_first_outputs_of_a_longer_prompt(model: Model):
    net = model.build(PROMPT, stream(0))
    torch.testing.assert_close(net(tokens()[:, :4], steps(model)), net(tokens(), steps(model))[:, :, :4])


@every_model
def test_autocast_leaves_the_output_in_float32(model: Model, monkeypatch: pytest.MonkeyPatch):
    net = model.build(PROMPT, stream(0))
    # Without oneDNN, because its bf16 kills the process on machines that announce AMX and then refuse it.
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    with torch.autocast("cpu", torch.bfloat16):
        assert net(tokens(), steps(model)).dtype == torch.float32


@every_model
def test_a_model_can_be_built_and_run_on_the_meta_device(model: Model):
    real = model.build(PROMPT, stream(0))
    with torch.device("meta"):
        net = model.build(PROMPT, stream(0))
        grads = gradients(net, net(torch.empty(3, 10, 4), steps(model), min(2, steps(model)), truncate=False))
    assert all(weight.device.type == "meta" for weight in net.parameters())
    untrained = [name for name, grad in grads.items() if grad is None]
    assert not untrained, f"no gradient reaches {', '.join(untrained)}"
    shapes = {name: weight.shape for name, weight in real.named_parameters()}
    assert {name: weight.shape for name, weight in net.named_parameters()} == shapes


@pytest.mark.parametrize("choice", under_test(Model).values(), ids=under_test(Model))
def test_unknown_settings_and_heads_that_do_not_divide_the_width_are_errors(choice: type[Model]):
    with pytest.raises(ValidationError, match="widht"):
        choice.model_validate({"widht": 64})
    if {"width", "heads", "head_dim"} <= choice.model_fields.keys():
        with pytest.raises(
            ValidationError, match="7 heads do not divide width 64; write one of 1, 2, 4, 8, 16, 32, 64, or"
        ):
            choice.model_validate({"width": 64, "heads": 7})
        choice.model_validate({"width": 64, "heads": 7, "head_dim": 5})
