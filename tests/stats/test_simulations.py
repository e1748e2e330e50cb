"""The code computes the tables of docs/statistics.md."""

import re

import pytest

from tests.stats.simulations import PAGE, TABLES, table_on_page

NUMBER = re.compile(r"\d+(?:\.(\d+))?")


def check(name: str) -> None:
    """The computed table is the table on the page, but for one unit of the last printed digit of a number.

    Fits are iterations, and processors round differently. So one of thousands of simulated studies may change sides,
    and a share near the middle of two printed numbers is rounded to the other number.
    """
    computed, shown = TABLES[name](), table_on_page(PAGE.read_text(), name).group()
    assert NUMBER.sub("#", computed) == NUMBER.sub("#", shown)
    for ours, theirs in zip(NUMBER.finditer(computed), NUMBER.finditer(shown), strict=True):
        unit = 10.0 ** -len(theirs[1] or "")
        assert abs(float(ours[0]) - float(theirs[0])) < 1.5 * unit, (ours[0], theirs[0], name)


def test_a_table_that_differs_by_two_units_is_another_table(monkeypatch: pytest.MonkeyPatch):
    shown = table_on_page(PAGE.read_text(), "wrong-forms").group()
    for other, equal in (("2 21 | 96 95", True), ("2 20 | 96 95", False), ("2 22 | 96 x", False)):
        monkeypatch.setitem(TABLES, "wrong-forms", lambda other=other: shown.replace("2 22 | 96 95", other))
        if equal:
            check("wrong-forms")
        else:
            with pytest.raises(AssertionError):
                check("wrong-forms")


def test_the_page_has_every_table_and_no_other():
    assert sorted(re.findall(r"<!-- table: ([a-z-]+) -->", PAGE.read_text())) == sorted(TABLES)


@pytest.mark.parametrize("name", ["level", "margins"])
def test_the_page_has_the_quick_tables(name: str):
    check(name)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", [name for name in TABLES if name not in ("level", "margins")])
def test_the_page_has_the_other_tables(name: str):
    check(name)
