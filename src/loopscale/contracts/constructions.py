"""Every construction runs its algorithm on random problems, with the accuracy of its theorem."""

from dataclasses import replace

import pytest
import torch

from loopscale.contracts.members import under_test
from loopscale.papers.theorems import verify
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.example import Example
from loopscale.theory.statement import SYSTEMS

every_kind = pytest.mark.parametrize("kind", under_test(Construction))


def construction_of(kind: str) -> Construction:
    return under_test(Construction)[kind].model_validate({})


@every_kind
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_theorem_holds_on_random_problems(kind: str, seed: int):
    verified = verify(construction_of(kind), seed)
    assert verified.holds, verified
    assert verified.steps, "the example expects no output at any step"


@every_kind
def test_the_example_has_several_float64_prompts_determined_by_the_seed(kind: str):
    first, same, other = (
        construction_of(kind).example(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)
    )
    assert first.tokens.dtype == first.expected.dtype == torch.float64
    assert len(first.tokens) >= 2
    assert first.tokens.shape[:2] == first.expected.shape[1:3]
    assert torch.equal(first.tokens, same.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    assert not torch.equal(first.expected[-1].nan_to_num(), other.expected[-1].nan_to_num())


@every_kind
def test_a_slightly_different_algorithm_is_detected(kind: str, monkeypatch: pytest.MonkeyPatch):
    original = type(construction_of(kind)).example

    def perturbed(self: Construction, rng: torch.Generator) -> Example:
        example = original(self, rng)
        return replace(example, expected=example.expected + 0.01 * example.expected.abs() + 1e-3)

    monkeypatch.setattr(type(construction_of(kind)), "example", perturbed)
    assert not verify(construction_of(kind)).holds


@every_kind
def test_the_statement_of_the_source_is_in_words(kind: str):
    construction = construction_of(kind)
    stated = construction.stated(construction.example(torch.Generator().manual_seed(0)).prompt)
    assert all(vars(stated).values())
    assert construction.system() in SYSTEMS
    assert construction.claimed()
