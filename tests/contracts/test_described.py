"""What `loopscale show` prints of every task, model and solver, and of every key of a study's file."""

import re

import pytest

from loopscale.cli.describe import described
from loopscale.cli.keys import explained, parts
from loopscale.core.config import Family
from loopscale.models.base import Model
from loopscale.solvers.base import Solver
from loopscale.studies.schedulers.base import Scheduler
from loopscale.studies.searches.base import Search
from loopscale.studies.settings import PARTS
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task

MEMBERS = [member for family in (Task, Model, Solver) for member in family.choices().values()]
CHOICES = [member for family in (Search, Scheduler) for member in family.choices().values()]
KEYS = {name: inner for name, inner in parts().items() if not issubclass(inner[0], Family)}
NAMES = r"[A-Z][\w'-]+,?(?: (?:[A-Z][\w'-]+,?|and|&|et al\.))*"
SOURCE = re.compile(
    rf"{NAMES} (?:1[89]|20)\d\d\b|arXiv:\d{{4}}\.\d{{4,5}}|[A-Z]\w+, (?:section|theorem|eq\.|figure) \d"
)
"""A paper or a book with its year, an arXiv id, or the place in a paper that has a name."""


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.kind)
def test_a_member_says_what_it_is_and_where_it_comes_from(member: type[Family]):
    found = described(member)
    assert SOURCE.search(found["about"]), found["about"]
    assert found["summary"]
    assert found["about"].startswith(found["summary"].split()[0])


@pytest.mark.parametrize("member", [*MEMBERS, *CHOICES], ids=lambda member: member.kind)
def test_every_setting_has_a_word(member: type[Family]):
    assert [each["name"] for each in described(member)["settings"] if not each["about"]] == []


@pytest.mark.parametrize("name", KEYS)
def test_every_key_of_a_study_has_a_word(name: str):
    for found in explained(name, KEYS[name]):
        assert found["about"]
        assert [each["name"] for each in found["settings"] if not each["about"]] == []


def test_every_component_of_a_study_can_be_asked_for():
    assert {"study", "fixed", "training", "curriculum", "laws", "nuisance"} <= set(KEYS)
    (study,) = explained("study", KEYS["study"])
    assert [each["name"] for each in study["settings"]] == list(Study.model_fields)
    (trial,) = explained("fixed", KEYS["fixed"])
    assert [each["name"] for each in trial["settings"]] == list(PARTS)
    assert [each.__name__ for each in KEYS["nuisance"]] == ["Choice", "Integer", "Real"]
    families = {name: parts()[name] for name in ("baselines", "search", "scheduler")}
    assert families == {"baselines": [Solver], "search": [Search], "scheduler": [Scheduler]}
