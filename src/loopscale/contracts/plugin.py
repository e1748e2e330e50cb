"""The pytest plugin of the contracts.

    pytest -p loopscale.contracts.plugin --members my_model.py --pyargs loopscale.contracts.models

`loopscale check my_model.py` runs this command with the contracts of all families that the file has members of.
"""

import pkgutil
from pathlib import Path

import pytest
import torch

for _module in pkgutil.iter_modules([str(Path(__file__).parent)], "loopscale.contracts."):
    if _module.name != __name__:
        pytest.register_assert_rewrite(_module.name)


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
        selected[:] = [plugin.text]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that no member of the plugin needs, such as encoders among decoders."""
    if config.getoption("--members"):
        items[:] = [item for item in items if not _is_empty(item)]


def _is_empty(item: pytest.Item) -> bool:
    skips = item.iter_markers("skip")
    return any(str(mark.kwargs.get("reason", "")).startswith("got empty parameter set") for mark in skips)
