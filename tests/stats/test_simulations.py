"""The code computes the tables of docs/statistics.md."""

import re

import pytest

from tests.stats.simulations import PAGE, TABLES, table_on_page


def check(name: str) -> None:
    assert TABLES[name]() == table_on_page(PAGE.read_text(), name).group()


def test_the_page_has_every_table_and_no_other():
    assert sorted(re.findall(r"<!-- table: ([a-z-]+) -->", PAGE.read_text())) == sorted(TABLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["level", "margins", "equality"])
def test_the_page_has_the_quick_tables(name: str):
    check(name)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.long if name in ("predictions", "far-predictions") else ())
        for name in TABLES
        if name not in ("level", "margins", "equality")
    ],
)
def test_the_page_has_the_other_tables(name: str):
    check(name)
