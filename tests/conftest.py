"""Settings of all tests: one thread, repeatable examples, one migration, and no GPU tests without a GPU."""

import os
import random
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from sqlalchemy.engine import make_url

from tests import processes
from tests.corpus import provide_corpus

pytest_plugins = ["loopscale.contracts.plugin"]
torch.set_num_threads(1)
provide_corpus()  # before studies are collected
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("exploring", max_examples=2000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite tests/golden; say why in the commit"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files of slow tests if the marks exclude them: they import packages of the extra `slow`."""
    if "not slow" in config.option.markexpr and collection_path.suffix == ".py":
        marks = re.search(r"^pytestmark = .*", collection_path.read_text(), re.MULTILINE)
        return True if marks and "mark.slow" in marks[0] else None
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out the slow tests
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _keep_quick_cases(items)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def _keep_quick_cases(items: list[pytest.Item]) -> None:
    """Mark the cases of a test as slow, except for `quick_cases(number)` of them, spread over all cases."""
    tests = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("quick_cases") and not item.get_closest_marker("slow"):
            tests[item.nodeid.partition("[")[0]].append(item)
    for cases in tests.values():
        mark = cases[0].get_closest_marker("quick_cases")
        number = min(mark.args[0], len(cases)) if mark else 0
        kept = {index * len(cases) // number for index in range(number)}
        for index, case in enumerate(cases):
            if index not in kept:
                case.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Seed the global generators. A test that draws from them sees the same numbers every time, whatever ran before."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _own_plugins() -> Iterator[None]:
    """Forget the plugins that a test has loaded. Their members would join the families of the next tests."""
    # Pytest reads this file before jaxtyping can check the modules of the package.
    from loopscale.core import plugins

    before = set(plugins.loaded)
    yield
    for name in set(plugins.loaded) - before:
        if plugin := plugins.loaded.get(name):
            plugins._unload(plugin)
    plugins.unloadable.clear()


def pytest_runtest_teardown() -> None:
    """End the programs of a test that has failed, so that they do not run beside the next tests."""
    processes.end_all()


@pytest.fixture(scope="session", autouse=True)
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of an empty database. Databases that tests create in this process start as copies of the file.

    MLflow makes the same tables for every new store, by migrations that take 1.4 s of processor time. A test of the
    stores compares a copy with tables that MLflow has made in another process.
    """
    # Pytest reads this file before jaxtyping can check the modules of the package.
    from loopscale.records.stores.base import TrackingStore
    from loopscale.records.stores.folder import DATABASE, database_uri

    folder, connect = tmp_path_factory.mktemp("migrated"), TrackingStore.connect

    def migrate() -> None:
        connect(database_uri(folder), folder.as_uri())
        with closing(sqlite3.connect(folder / DATABASE)) as database, database:
            database.execute("DELETE FROM experiments")  # MLflow makes the default one of every copy itself

    def connect_to_copy(uri: str, default_artifacts: str | None = None) -> object:
        if default_artifacts:
            if not (folder / DATABASE).exists():
                migrate()
            shutil.copyfile(folder / DATABASE, str(make_url(uri).database))
        return connect(uri, default_artifacts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrackingStore, "connect", staticmethod(connect_to_copy))
        yield folder
