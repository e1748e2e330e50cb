"""The key `until`: its looks, and its mistakes before anything is spent."""

from typing import Any

import pytest

from loopscale.foresight.plan import plan_study
from loopscale.notation.mistakes import Mistakes
from loopscale.questions.until import UntilDecided, family_hash, look_schedule
from loopscale.studies.law_questions import law_questions
from loopscale.studies.spec import Study
from tests.tuned_settings import without_tuned

TREE: dict[str, Any] = {
    "question": "Does it fall?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 3, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 90, "window": 1},
    },
    "scientific": {"training.loops": [2, 4]},
    "replicates": 3,
    "claims": [{"text": "a", "first": {"training.loops": 4}, "second": {"training.loops": 2}}],
    "until": "decided",
}
CLAIM = TREE["claims"][0]

WRONG = {
    "another word": ({"until": "tomorrow"}, "until is 'tomorrow'; write until: decided"),
    "a number": ({"until": 3}, "until is 3; write until: decided"),
    "an unknown setting": ({"until": {"looks": [3, 5], "max": 4}}, "max"),
    "looks that do not ascend": ({"until": {"looks": [3, 8, 5]}}, "not ascending; write looks: [3, 5, 8]"),
    "no looks": ({"until": {"looks": []}}, "looks"),
    "one replicate": (
        {"replicates": 1},
        "starts with 1 replicate, but an interval needs 2; write replicates: 3",
    ),
    "a look before the first replicates": (
        {"until": {"looks": [2, 5]}},
        "the first look is at 2, but the study starts with 3 replicates; begin with 3",
    ),
    "fewer replicates at most than at first": (
        {"until": {"most": 2}},
        "until.most is 2, but the study starts with 3 replicates; write 3 or more",
    ),
    "nothing to decide": ({"claims": []}, "add claims, or take until out"),
    "only a law without a theory": (
        {"claims": [], "laws": [{"along": "training.loops"}]},
        "no law along a setting that theory judges; add claims, or take until out",
    ),
    "a claim within trainings": (
        {"claims": [CLAIM | {"basis": "flops"}]},
        "claim 1 is about equal flops within trainings",
    ),
    "a claim about a level": (
        {"claims": [CLAIM | {"of": "reached", "regret": 0.1}]},
        "claim 1 is of reached, which no look can judge; ask of emerged_at or of regret, or take until out",
    ),
    "a chance above 1": ({"until": {"futile": 2}}, "futile"),
    "three times the steps": (
        {"until": {"steps": 3}},
        "steps is 3, but every order doubles the steps; write steps: 2",
    ),
    "steps without a number": ({"until": {"steps": "twice"}}, "steps"),
    "longer trainings along the steps": (
        {"until": {"steps": 2}, "nuisance": {"training.steps": {"integer": [90, 180]}}},
        "until.steps doubles the steps, but the study varies training.steps; take until.steps out",
    ),
    "longer trainings of a law with held-out cells": (
        {
            "until": {"steps": 2},
            "scientific": {"training.loops": [2, 4, 8, 16, 32]},
            "laws": [{"along": "training.loops", "hold_out": 1}],
            "evaluate": {"loops": 32},
        },
        "but a law predicts cells that train once; take until.steps out, or hold_out",
    ),
    "more steps than a training may have": (
        {
            "until": {"steps": 4},
            "fixed": {**TREE["fixed"], "training": {"steps": 4 * 10**11, "window": 1}},
        },
        "until.steps 4 times 400,000,000,000 steps is more than a training may have",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line_before_anything_runs(name: str):
    changes, words = WRONG[name]
    with pytest.raises(Mistakes) as problem:
        Study.parse(without_tuned(TREE | changes))
    (line,) = str(problem.value).splitlines()
    assert words in line


@pytest.mark.parametrize(
    ("until", "replicates", "seeds"),
    [
        ({}, 3, (3, 5, 8, 12, 18, 27)),
        ({}, 4, (4, 5, 8, 12, 18, 27)),
        ({"most": 10}, 2, (2, 3, 5, 8, 10)),
        ({"looks": [4, 16]}, 2, (2, 4, 16)),
        ({"most": 40}, 3, (3, 5, 8, 12, 18, 27, 40)),
        ({}, 30, (30,)),
    ],
)
def test_the_looks_begin_at_the_replicates_and_end_at_the_most(
    until: dict[str, Any], replicates: int, seeds: tuple[int, ...]
):
    assert UntilDecided(**until).schedule(replicates).seeds == seeds


def test_a_study_keeps_its_looks_in_its_records():
    study = Study.parse(TREE | {"until": {"looks": [3, 6], "futile": 0.2, "own_noise": True}})
    schedule = look_schedule(study.document())
    assert schedule is not None
    assert (schedule.seeds, schedule.futile, schedule.prior) == ((3, 6), 0.2, 0.0)
    assert (
        look_schedule(Study.parse({name: TREE[name] for name in TREE if name != "until"}).document()) is None
    )


def test_the_key_changes_no_trial():
    with_key, without = Study.parse(TREE), Study.parse({name: TREE[name] for name in TREE if name != "until"})
    assert [cell.key for cell in with_key.cells()] == [cell.key for cell in without.cells()]
    for one, other in zip(with_key.cells(), without.cells(), strict=True):
        assert with_key.at(one, {}, 1).key == without.at(other, {}, 1).key


def test_a_plan_shows_the_least_and_the_most():
    tree = TREE | {"scientific": {"training.loops": [1, 2, 4]}}
    plain = plan_study(
        Study.parse({name: tree[name] for name in tree if name != "until"}), rate=1e9, workers=1
    )
    plan = plan_study(Study.parse(tree | {"until": {"most": 10}}), rate=1e9, workers=1)
    assert plan.until is not None
    assert plan.until.looks == (3, 5, 8, 10)
    assert (plan.trials, plan.until.cells, plan.until.most_trials) == (9, 2, 9 + 2 * 7)
    assert plan.core_hours == plain.core_hours
    hours = {cell.label: cell.seconds[0] / 3600 for cell in plan.cells}
    added = 7 * (sum(hours.values()) - hours["loops=1"])
    assert plan.until.most_core_hours[0] == pytest.approx(plan.core_hours[0] + added)
    assert plain.until is None


def test_a_law_with_a_theory_is_a_question_of_all_its_cells():
    law = {"along": "training.loops", "theory": "chebyshev"}
    values = {"training.loops": [2, 4, 6, 8], "training.window": [1, 2]}
    study = Study.parse(TREE | {"claims": [], "laws": [law], "scientific": values})
    plan = plan_study(study, rate=1e9, workers=1)
    assert plan.until is not None
    assert (plan.until.cells, plan.until.most_trials) == (8, 8 * 27)
    plain = study.model_dump(mode="json")
    questions = law_questions(plain, study.cells(), study.layout.shared_settings)
    assert [len(question.places) for question in questions] == [4, 4]
    assert len({question.identity for question in questions}) == 2


def test_a_law_with_another_value_is_another_question():
    law = {"along": "training.loops", "theory": "chebyshev"}
    identities = set[str]()
    for values in ([2, 4, 6, 8], [2, 4, 6, 8, 10]):
        study = Study.parse(TREE | {"laws": [law], "scientific": {"training.loops": values}})
        plain = study.model_dump(mode="json")
        (question,) = law_questions(plain, study.cells(), study.layout.shared_settings)
        identities.add(question.identity)
    assert len(identities) == 2


def test_a_plan_names_the_permitted_steps_and_the_most_that_they_cost():
    short, long = (
        plan_study(Study.parse(TREE | {"until": {"most": 5, "steps": steps}}), rate=1e9, workers=1).until
        for steps in (1, 4)
    )
    assert short is not None
    assert long is not None
    assert (short.steps, long.steps) == ((1,), (1, 2, 4))
    assert (short.most_trials, long.most_trials) == (2 * 5, 2 * 5 * 3)
    assert long.most_core_hours[1] == pytest.approx(7 * short.most_core_hours[1])


def test_the_setting_of_the_steps_changes_no_hash_of_studies_without_it():
    document = Study.parse(TREE).document()
    before = {name: value for name, value in document["until"].items() if name != "steps"}
    assert family_hash(document) == family_hash(document | {"until": before})
    assert family_hash(document) != family_hash(document | {"until": before | {"steps": 2}})
