"""Features of models that constructions need: registers, several kinds of attention in one net, encoders."""

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial

KINDS = [kind for kind, choice in Model.choices().items() if "registers" in choice.model_fields]
EVERY = pytest.mark.parametrize("kind", KINDS)
EITHER = pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if Model.choices()[kind].model_fields["causal"].annotation is bool]
)
"""Kinds with a setting `causal`. Other kinds always look ahead, or never."""
PROMPT = Prompt(length=6, dim_in=3, dim_out=2)


def built(kind: str, **settings: object) -> tuple[torch.nn.Module, torch.Tensor]:
    model = Model.model_validate({"kind": kind, "width": 8, "heads": 2} | settings)
    tokens = torch.randn(4, 6, 3, generator=stream("tokens"))
    return model.build(PROMPT, stream(0)), tokens


@EVERY
def test_the_prompt_reads_registers_and_registers_have_no_output(kind: str):
    net, tokens = built(kind, registers=3)
    net, tokens = net.double(), tokens.double()
    guesses = net(tokens, 2)
    assert guesses.shape == (2, 4, 6, 2)
    table = next(value for name, value in net.named_parameters() if name.endswith("positions"))
    assert len(table) == 9
    with torch.no_grad():
        table[1] += torch.randn(8, generator=stream("register"))
    assert (net(tokens, 2) != guesses).any(dim=-1).all(), "every token of the prompt sees the register"


@EITHER
def test_an_encoder_sees_later_tokens_and_a_decoder_does_not(kind: str):
    for causal in (True, False):
        net, tokens = built(kind, causal=causal)
        before = net(tokens, 1)
        tokens[:, -1] += 1
        changed = (net(tokens, 1) != before).any(dim=-1).all(dim=1)[0]
        assert changed.tolist() == [not causal] * 5 + [True]


@EVERY
def test_kinds_of_attention_repeat_through_the_whole_net(kind: str):
    settings = {"attention": ["softmax", "relu", "linear", "linear"], "normaliser": "none"}
    net, _ = built(kind, layers=2, **settings)
    kinds = [part.kind for part in net.modules() if hasattr(part, "normaliser")]
    assert kinds == (settings["attention"] * 2)[: len(kinds)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"registers": 1, "positions": "none"},
            "registers are distinguished by positions only; write positions: learned",
        ),
        ({"attention": []}, "attention is an empty list; write softmax"),
        ({"attention": ["softmax"], "normaliser": "length"}, "leave it out for softmax"),
        (
            {"attention": "relu", "causal": False, "normaliser": "position"},
            "for an encoder write none or length",
        ),
    ],
)
def test_contradictory_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ValueError, match=message):
        Model.model_validate({"kind": "looped"} | settings)


def test_a_trial_whose_queries_would_see_their_answers_is_refused():
    task = Task.model_validate({"kind": "linear_regression"})
    with pytest.raises(ValueError, match=r"looks ahead, and would see the answers .*; write causal: true"):
        Trial(task=task, model=Model.model_validate({"kind": "gpt2", "causal": False}))


def test_settings_added_later_do_not_change_the_key_of_older_trials():
    task = Task.model_validate({"kind": "linear_regression"})
    plain, with_register = (
        Trial(task=task, model=Model.model_validate({"kind": "gpt2", "registers": n})) for n in (0, 1)
    )
    assert "registers" not in plain.settings["model"]
    assert "causal" not in plain.settings["model"]
    assert with_register.settings["model"]["registers"] == 1
    assert plain.key != with_register.key
