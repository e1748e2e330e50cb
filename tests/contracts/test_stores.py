"""The contract of the kinds of stores of the package (`loopscale.contracts.stores`)."""

from pathlib import Path

import pytest

import loopscale
from loopscale.contracts.stores import *  # noqa: F403
from loopscale.contracts.stores import filled, tables
from loopscale.records.stores.base import StoreKind
from tests.records.conftest import Server, server  # noqa: F401


@pytest.mark.parametrize("kind", StoreKind.choices())
def test_a_kind_is_one_file_and_the_opening_names_none(kind: str):
    stores = Path(loopscale.__file__).parent / "records" / "stores"
    assert f'kind="{kind}"' in (stores / f"{kind}.py").read_text()
    assert f"stores.{kind}" not in (stores / "opening.py").read_text()


@pytest.mark.slow
def test_a_server_gives_records_back_as_they_went_in(server: Server, exported: Path, tmp_path: Path):  # noqa: F811
    store = filled(server.uri, tmp_path, exported)
    assert StoreKind.choices()["server"]().has_scheme("http")
    assert tables(store) == tables(loopscale.open_store(exported, tmp_path / "other"))
