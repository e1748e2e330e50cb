"""The pytest plugin of the contracts.

    pytest -p loopscale.contracts.plugin --members my_model.py --pyargs loopscale.contracts.models

`loopscale check my_model.py` runs this command with the contracts of all families that the file has members of.
"""

import pkgutil
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:  # pytest rewrites the asserts of the modules of contracts before their import
    from loopscale.contracts.broken_rules import BrokenRule
    from loopscale.core.plugins import Plugin

for _module in pkgutil.iter_modules([str(Path(__file__).parent)], "loopscale.contracts."):
    if _module.name != __name__:
        pytest.register_assert_rewrite(_module.name)


tested: "list[Plugin]" = []
"""The plugin under test."""
broken: "list[BrokenRule]" = []
"""The rules that its members break, in the order of the tests."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--members", metavar="FILE|MODULE", help="test the members of this plugin of loopscale")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    if written := config.getoption("--members"):
        # Imported here, so that pytest rewrites the asserts of these modules first.
        from loopscale.contracts.members import selected
        from loopscale.core.plugins import find_plugin, load

        # Small nets: two threads that wait for each other took 80 s of processor where one thread took 4 s.
        torch.set_num_threads(1)
        plugin = find_plugin(written)
        load(plugin)
        selected[:], tested[:], broken[:] = [plugin.text], [plugin], []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that no member of the plugin needs, such as encoders among decoders."""
    if config.getoption("--members"):
        items[:] = [item for item in items if not _is_empty(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if tested and report.failed and call.excinfo and isinstance(item, pytest.Function):
        # Imported here, so that pytest rewrites the asserts of the contracts first.
        from loopscale.contracts.broken_rules import broken_rule

        spec = getattr(item, "callspec", None)
        module = str(getattr(item.module, "__name__", "")).rpartition(".")[2]
        parameters = spec.params.values() if spec else ()
        case = spec.id if spec else ""
        broken.append(broken_rule(tested[0], module, item.originalname, case, parameters, call.excinfo.value))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say each broken rule in words."""
    if broken:
        from loopscale.contracts.broken_rules import in_words  # here, as above

        terminalreporter.write_line("")
        for line in in_words(broken):
            terminalreporter.write_line(line)


def _is_empty(item: pytest.Item) -> bool:
    skips = item.iter_markers("skip")
    return any(str(mark.kwargs.get("reason", "")).startswith("got empty parameter set") for mark in skips)
