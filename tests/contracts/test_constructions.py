"""Every construction runs the algorithm that it names, on random problems, as exactly as its theorem says."""

from dataclasses import replace

import pytest
import torch

from loopscale.analysis.papers.theorems import verify
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.example import Example

every = pytest.mark.parametrize("kind", Construction.choices())


def made(kind: str) -> Construction:
    return Construction.choices()[kind]()


@every
@pytest.mark.parametrize("seed", [1, 2])
def test_its_theorem_holds(kind: str, seed: int):
    verified = verify(made(kind), seed)
    assert verified.holds, verified
    assert verified.steps, "the algorithm says nothing at any step"


@every
def test_its_example_is_several_prompts_in_float64_that_the_seed_alone_decides(kind: str):
    one, same, other = (made(kind).example(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert one.tokens.dtype == one.expected.dtype == torch.float64
    assert len(one.tokens) >= 2
    assert one.tokens.shape[:2] == one.expected.shape[1:3]
    assert torch.equal(one.tokens, same.tokens)
    assert not torch.equal(one.tokens, other.tokens)
    assert not torch.equal(one.expected[-1].nan_to_num(), other.expected[-1].nan_to_num())


@every
def test_an_algorithm_that_is_a_little_other_is_told_from_it(kind: str, monkeypatch: pytest.MonkeyPatch):
    right = type(made(kind)).example

    def wrong(self: Construction, rng: torch.Generator) -> Example:
        example = right(self, rng)
        return replace(example, expected=example.expected + 0.01 * example.expected.abs() + 1e-3)

    monkeypatch.setattr(type(made(kind)), "example", wrong)
    assert not verify(made(kind)).holds
