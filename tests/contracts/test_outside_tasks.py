"""The contract of tasks lets every honest task pass, and finds targets that a prompt shows before the query."""

import pytest
import torch
from typing_extensions import override

from loopscale.contracts.tasks import (
    test_a_task_names_its_floor_or_a_reference as floor_contract,
)
from loopscale.contracts.tasks import (
    test_no_prompt_contains_a_target_before_its_query as leak_contract,
)
from loopscale.core.prompt import Batch
from loopscale.tasks.base import FloorRule
from loopscale.tasks.regression import Regression, RegressionTask, pose

for contract in (floor_contract, leak_contract):
    contract.__test__ = False  # they run below, on the tasks of this file


class Drawn(RegressionTask, allow_inf_nan=False):
    """Pairs with standard normal x and the y of `answers`. Without a kind, no study finds the task."""

    dim: int = 3
    points: int = 8

    @property
    @override
    def variance(self) -> float:
        return 1.0

    @property
    @override
    def noise_variance(self) -> float:
        return 0.0

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = torch.randn(batch_size, self.points, self.dim, generator=rng)
        return pose(Regression(*self.shown(xs, self.answers(xs, rng)), 0.0, 1.0), self.format)

    def answers(self, xs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        return torch.randn(xs.shape[:2], generator=rng)

    def shown(self, xs: torch.Tensor, ys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return xs, ys


class Rectified(Drawn):
    """Half of the targets are exactly 0."""

    @override
    def answers(self, xs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        return super().answers(xs, rng).relu()


class FirstIsZero(Drawn):
    """The first target of every prompt is 0."""

    @override
    def answers(self, xs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        return super().answers(xs, rng) * (torch.arange(self.points) > 0)


class Signs(Drawn):
    @override
    def answers(self, xs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        return super().answers(xs, rng).sign()


class TwoValues(Drawn):
    """Every prompt has two answers of its own, which come again and again."""

    @override
    def answers(self, xs: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
        values = torch.randn(len(xs), 2, generator=rng)
        return values.gather(1, torch.randint(0, 2, xs.shape[:2], generator=rng))


class Shown(Drawn):
    """The last coordinate of every x is its y."""

    @override
    def shown(self, xs: torch.Tensor, ys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([xs[..., :-1], ys[..., None]], dim=-1), ys


class ShownZeros(Shown, Rectified):
    pass


class ShownSigns(Shown, Signs):
    pass


class ShownOnce(Drawn):
    """One prompt in eight shows its last target, at a place that changes."""

    @override
    def shown(self, xs: torch.Tensor, ys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for prompt in range(0, len(xs), 8):
            xs[prompt, prompt % self.points, prompt % self.dim] = ys[prompt, -1]
        return xs, ys


FORMATS = pytest.mark.parametrize("name", ["decoder", "encoder"])


@FORMATS
@pytest.mark.parametrize("task", [Drawn, Rectified, FirstIsZero, Signs, TwoValues])
def test_equal_values_by_chance_are_no_leak(task: type[Drawn], name: str):
    leak_contract(task.model_validate({"format": name}))


@FORMATS
@pytest.mark.parametrize("task", [Shown, ShownZeros, ShownSigns])
def test_a_target_at_one_place_of_every_prompt_is_a_leak(task: type[Drawn], name: str):
    with pytest.raises(AssertionError, match=r"coordinate 2 of token .* is the target in every prompt"):
        leak_contract(task.model_validate({"format": name}))


@FORMATS
def test_a_target_in_few_prompts_is_a_leak(name: str):
    with pytest.raises(AssertionError, match="is the target of prompt"):
        leak_contract(ShownOnce.model_validate({"format": name}))


def test_an_outside_task_may_have_no_floor(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(AssertionError, match="a task of the package names its floor"):
        floor_contract(Drawn())
    monkeypatch.setattr(Drawn, "plugin", "mine.py 0123")
    floor_contract(Drawn())


@pytest.mark.parametrize(
    "rule",
    [
        FloorRule("reference"),
        FloorRule("bound", {"kind": "averaging"}),
        FloorRule("reference", {"kind": "mixture_oracle"}),
        FloorRule("bayes", {"kind": "ridge", "features": "representation"}),
    ],
    ids=lambda rule: f"{rule.how} {rule.solver}",
)
def test_an_outside_task_with_a_floor_names_a_fit_solver(rule: FloorRule, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Drawn, "plugin", "mine.py 0123")
    monkeypatch.setattr(Drawn, "floor_rule", rule)
    with pytest.raises(AssertionError):
        floor_contract(Drawn())
