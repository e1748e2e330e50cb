"""`loopscale check` says each failed test of a contract in words."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import loopscale.contracts
from loopscale.contracts.broken_rules import BrokenRule, broken_rule, in_words
from loopscale.contracts.remedies import MEMBERS_TO_COMPARE, REMEDIES, remedy_of
from loopscale.core import plugins
from loopscale.core.member_faults import member_fault
from loopscale.core.plugins import Plugin, find_plugin, load

MEMBERS = """import torch
from torch import nn
from loopscale.models import wrap
from loopscale.solvers.regression import LeastSquares
from loopscale.tasks import task_from


class Broken(nn.Module):
    def __init__(self, dim: int = 4):
        super().__init__()

    def forward(self, states):
        raise RuntimeError("boom")


def broken_pairs(rng, batch: int, dim: int = 2, points: int = 4):
    return torch.randn(batch, points, dim, generator=rng), torch.randn(batch, points, generator=rng)


class BrokenSquares(LeastSquares, kind="broken_squares"):
    def predict(self, batch, steps):
        return super().predict(batch, steps)


wrap(Broken)
task_from(broken_pairs)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugin]:
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(MEMBERS)
    found = find_plugin("broken.py")
    load(found)
    yield found
    plugins._unload(found)


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(MEMBERS.splitlines(), 1) if text in line)


def failure(check: object) -> AssertionError:
    with pytest.raises(AssertionError) as caught:
        check()  # type: ignore[operator]
    return caught.value


def far() -> None:
    torch.testing.assert_close(torch.zeros(3), torch.tensor([0.0, 1.0, 0.5]))


def tensors() -> None:
    assert (torch.ones(3) == 0).all()


def explained() -> None:
    assert not torch.ones(3).any(), "no gradient reaches inner.weight"


@pytest.mark.parametrize(
    ("module", "test", "case", "check", "expected"),
    [
        (
            "solvers",
            "test_prediction_before_the_first_pair_is_zero",
            "broken_squares-linear_regression",
            tensors,
            [
                "solver broken_squares",
                "def predict",
                "linear_regression",
                "",
                "predict 0 before the first pair",
            ],
        ),
        (
            "tasks",
            "test_predicting_zero_costs_one_at_every_query",
            "broken_pairs decoder",
            far,
            [
                "task broken_pairs",
                "def broken_pairs",
                "decoder",
                "2 of 3 numbers differ, by up to 1",
                "return the mean",
            ],
        ),
        (
            "models",
            "test_every_weight_is_initialised_and_trained",
            "broken-",
            explained,
            ["model broken", "def forward", "", "no gradient reaches inner.weight", "use every weight"],
        ),
    ],
)
def test_a_failed_test_names_member_line_case_fault_and_remedy(
    plugin: Plugin, module: str, test: str, case: str, check: object, expected: list[str]
):
    member, line, settings, found, remedy = expected
    told = broken_rule(plugin, module, test, case, [], failure(check))
    assert (told.member, told.place) == (member, f"broken.py:{line_of(line)}")
    assert (told.case, told.found) == (settings, found)
    assert told.fault == "breaks the rule: " + test.removeprefix("test_").replace("_", " ")
    assert told.remedy.startswith(remedy)


def test_an_error_of_the_members_own_code_is_said_once_for_all_tests(plugin: Plugin):
    (model,) = [member for member in plugin.members if member.kind == "broken"]
    try:
        model.wrapped().forward(torch.zeros(1))
    except RuntimeError as problem:
        told = [
            broken_rule(plugin, "models", f"test_rule_{name}", "broken-", [model()], problem) for name in "ab"
        ]
    first, second, third, last = in_words(told)
    assert first == f"broken.py:{line_of('boom')}: model broken: forward raises RuntimeError: boom"
    assert (second, third, last) == ("  cases: rule a; rule b", "  remedy: correct the method", "")


def test_cases_of_one_rule_are_one_paragraph():
    cases = [
        BrokenRule("model a", "a.py:3", "breaks the rule: b", f"width={n}", "", "mend") for n in range(6)
    ]
    first, second, third, last = in_words(cases)
    assert first == "a.py:3: model a breaks the rule: b"
    assert second == "  cases: width=0; width=1; width=2; width=3 and 2 more"
    assert (third, last) == ("  remedy: mend", "")


def test_every_test_of_a_contract_has_a_remedy():
    tests = {
        module.name: {
            name
            for name, value in vars(importlib.import_module(f"loopscale.contracts.{module.name}")).items()
            if name.startswith("test_") and inspect.isfunction(value)
        }
        for module in pkgutil.iter_modules(loopscale.contracts.__path__)
    }
    tests = {module: names for module, names in tests.items() if names}
    assert tests.keys() == REMEDIES.keys() | MEMBERS_TO_COMPARE.keys()
    for module, table in REMEDIES.items():
        assert tests[module] == table.keys()
    for module, file in MEMBERS_TO_COMPARE.items():
        assert (Path(loopscale.contracts.__path__[0]).parent / file).is_file()
        assert remedy_of(module, "test_any").text.endswith(file)


def test_this_file_has_members_that_keep_to_the_interface(plugin: Plugin):
    """So the places above are those of methods, and not of a fault of the class."""
    families = [next(each for each in plugins.families if issubclass(one, each)) for one in plugin.members]
    for member, family in zip(plugin.members, families, strict=True):
        assert member_fault(member, family, MEMBERS.encode()) is None
