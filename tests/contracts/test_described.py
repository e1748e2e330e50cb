"""The output of `loopscale show` for every task, model and solver, and for every key of a study file."""

import re

import pytest

from loopscale.cli.components import study_keys
from loopscale.cli.describe import describe_component, describe_key, studies_of_bounds
from loopscale.core.config import Family
from loopscale.models.base import Model
from loopscale.notation.files import PARTS, SHIPPED, study_names
from loopscale.optimizers.base import Optimizer
from loopscale.solvers.base import Solver
from loopscale.studies.schedulers.base import Scheduler
from loopscale.studies.searches.base import Search
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.base import Construction

MEMBERS = [member for family in (Task, Model, Optimizer, Solver) for member in family.choices().values()]
CHOICES = [member for family in (Search, Scheduler) for member in family.choices().values()]
KEYS = {name: inner for name, inner in study_keys().items() if not issubclass(inner[0], Family)}
NAMES = r"[A-Z][\w'-]+,?(?: (?:[A-Z][\w'-]+,?|and|&|et al\.))*"
SOURCE = re.compile(
    rf"{NAMES} (?:1[89]|20)\d\d\b|arXiv:\d{{4}}\.\d{{4,5}}|[A-Z]\w+, (?:section|theorem|eq\.|figure) \d"
)
"""A paper or a book with its year, an arXiv id, or a place in a named paper."""


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.kind)
def test_every_member_has_a_summary_and_a_source(member: type[Family]):
    description = describe_component(member)
    assert SOURCE.search(description["about"]), description["about"]
    assert description["summary"]
    assert description["about"].startswith(description["summary"].split()[0])


@pytest.mark.parametrize("member", [*MEMBERS, *CHOICES], ids=lambda member: member.kind)
def test_every_setting_has_a_description(member: type[Family]):
    assert [
        setting["name"] for setting in describe_component(member)["settings"] if not setting["about"]
    ] == []


@pytest.mark.parametrize("name", KEYS)
def test_every_key_of_a_study_has_a_description(name: str):
    for component in describe_key(name, KEYS[name]):
        assert component["about"]
        assert [setting["name"] for setting in component["settings"] if not setting["about"]] == []


@pytest.mark.parametrize(
    ("construction", "bound"),
    [
        ("lin_ucb", "soft_linucb_depth"),
        ("thompson_sampling", "ts_depth"),
        ("ucb_vi", "ucbvi_depth"),
        ("network_descent", "deep_icgd_layers"),
        ("principal_components", "he_pca"),
    ],
)
def test_the_construction_and_the_bound_of_a_theorem_name_each_other(construction: str, bound: str):
    assert f"`{bound}`" in describe_component(Construction.choices()[construction])["about"]
    assert f"`{construction}`" in describe_component(Bound.choices()[bound])["about"]


def test_show_knows_every_component_of_a_study():
    assert {"study", "fixed", "training", "curriculum", "laws", "nuisance"} <= set(KEYS)
    (study,) = describe_key("study", KEYS["study"])
    assert [setting["name"] for setting in study["settings"]] == list(Study.model_fields)
    (trial,) = describe_key("fixed", KEYS["fixed"])
    assert [setting["name"] for setting in trial["settings"]] == list(PARTS)
    assert [choice.__name__ for choice in KEYS["nuisance"]] == ["Choice", "Integer", "Real"]
    families = {name: study_keys()[name] for name in ("baselines", "search", "scheduler")}
    assert families == {"baselines": [Solver], "search": [Search], "scheduler": [Scheduler]}


@pytest.mark.parametrize("kind", Bound.choices())
def test_every_bound_has_a_study_or_a_reason_without_one(kind: str):
    bound = Bound.choices()[kind]
    studies, reason = studies_of_bounds().get(kind, ()), bound.reason_without_study()
    assert studies or reason, (
        f"no study of the package has a law with theory: {kind}; write such a law, or the reason as without_study"
    )
    assert not (studies and bound.without_study), f"{studies[0]} draws {kind}; leave out without_study"
    named = re.findall(r"`([a-z0-9_/]+)`", reason)
    known = {*Bound.choices(), *Solver.choices(), *study_names(SHIPPED), "target_kl"}
    assert set(named) <= known, named
