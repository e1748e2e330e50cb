"""Claims in a study's file: mistakes before anything is spent, and no effect on trials, keys and cells."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.foresight.plan import plan_study
from loopscale.notation.mistakes import Mistakes
from loopscale.questions.claim import CellSide, ClaimSpec, SolverSide, read_claims
from loopscale.studies.spec import Study

STUDY = """\
question: Does it fall?
fixed:
  task: {kind: linear_regression, dim: 3, points: 5}
  model: {kind: looped, width: 16, heads: 2}
  training: {steps: 90, window: 2}
scientific:
  training.loops: [2, 4]
  model.heads: [1, 2]
replicates: 2
evaluate: {loops: 10}
baselines: [newton, {kind: gradient_descent, rate: 0.1}, {kind: gradient_descent, rate: 0.2}]
"""
CELL = "{training.loops: 2, model.heads: 1}"
OTHER = "{training.loops: 4, model.heads: 1}"


def with_claims(*claims: str) -> str:
    return STUDY + "claims:\n" + "".join(f"  - {claim}\n" for claim in claims)


def claim(first: str = CELL, second: str = OTHER, keys: str = "", text: str = "a") -> str:
    return f"{{text: {text}, first: {first}, second: {second}{keys and ', '}{keys}}}"


WRONG = {
    "several cells": (claim("{training.loops: 2}"), "which are 2 cells; also give model.heads"),
    "no cell": (
        claim("{training.loops: 3, model.heads: 1}"),
        "which are 0 cells; for training.loops use one of 2, 4",
    ),
    "a setting that is not varied": (
        claim("{task.dim: 3}"),
        "a claim names task.dim, which the study does not vary; use one of training.loops, model.heads",
    ),
    "a misspelt setting": (claim("{training.loop: 2}"), "did you mean training.loops?"),
    "an unknown solver": (
        claim(second="{solver: nwton}"),
        "names the solver 'nwton'; name a baseline of the study that solves linear_regression: did you mean newton?",
    ),
    "a solver of several baselines": (
        claim(second="{solver: gradient_descent}"),
        "which 2 baselines have; write solver: {kind: gradient_descent, rate: ...}",
    ),
    "an unknown setting of a solver": (
        claim(second="{solver: {kind: newton, rate: null}}"),
        "names the solver {'kind': 'newton', 'rate': None}; name a baseline",
    ),
    "an unknown measure": (claim(keys="of: regreet"), "which is not measured; did you mean regret?"),
    "a negative margin": (claim(keys="margin: -0.1"), "claims.0.margin is -0.1; write a number above 0"),
    "a level that is no share": (
        claim(keys="level: some"),
        "level is 'some'; write a share above 0, such as 10 %",
    ),
    "a level of nothing": (claim(keys="level: 0 %"), "level is '0 %'; write a share above 0, such as 10 %"),
    "a level and a margin": (
        claim(keys="level: 10 %, margin: 0.1"),
        "level and margin are two margins of one claim",
    ),
    "a margin as text": (claim(keys="margin: '0.1'"), "'0.1', not a number"),
    "an unknown basis": (claim(keys="basis: flop"), "did you mean flops?"),
    "an unknown key": (claim(keys="margn: 0.1"), "did you mean margin?"),
    "no text": (f"{{first: {CELL}, second: {OTHER}}}", "text is missing"),
    "an algorithm first": (claim("{solver: newton}"), "write the cell first and the algorithm second"),
    "no mapping": (claim(second="3"), "this side is 3; write the settings of one cell"),
    "a loop beyond the evaluation": (
        claim("{training.loops: 2, model.heads: 1, loop: 11}"),
        "write 10 or less, because evaluate.loops is 10",
    ),
    "a step beyond the evaluation": (
        claim(second="{solver: newton, step: 11}"),
        "write 10 or less, because evaluate.loops is 10",
    ),
    "no number of loops": (claim("{training.loops: 2, model.heads: 1, loop: 0}"), "a whole number above 0"),
    "equal FLOPs of an algorithm": (
        claim(second="{solver: newton}", keys="basis: flops"),
        "an algorithm is not trained; leave out basis",
    ),
    "a measure that algorithms lack": (
        claim(second="{solver: newton}", keys="of: excess"),
        "excess is not recorded for algorithms",
    ),
    "a single step of a measure without a curve": (
        claim(second="{solver: newton, step: 2}", keys="of: excess"),
        "excess is not recorded for single steps",
    ),
    "no level of the regret": (claim(keys="of: reached"), "write regret: 0.05"),
    "a level of another measure": (
        claim(keys="of: emerged_at, regret: 0.1"),
        "regret is the level of reached, and this is of emerged_at; leave out regret",
    ),
    "a level of 0": (claim(keys="of: reached, regret: 0"), "regret is 0; write a number above 0"),
    "an algorithm that reaches a level": (
        claim(second="{solver: newton}", keys="of: reached, regret: 0.1"),
        "reached is not recorded for algorithms",
    ),
    "a loop that reaches a level": (
        claim("{training.loops: 2, model.heads: 1, loop: 4}", keys="of: reached, regret: 0.1"),
        "reached is not recorded for single loops",
    ),
    "a cell beside itself": (claim(second=CELL), "both sides are the same"),
    "several cells without over": (
        claim("{training.loops: 2}"),
        "also give model.heads, or pair the cells of both sides with over: [model.heads]",
    ),
    "several cells in spite of over": (
        claim("{training.loops: 2}", "{training.loops: 4, loop: 2}", "over: [training.loops]"),
        "the claim is over all values of training.loops, but a side names one; leave out one of the two",
    ),
    "over a setting that is not varied": (
        claim("{training.loops: 2}", "{training.loops: 4}", "over: [model.head]"),
        "a claim is over model.head, which the study does not vary; did you mean model.heads?",
    ),
    "a loop beyond the evaluation in every pair": (
        claim("{training.loops: 2, loop: 11}", "{training.loops: 2}", "over: [model.heads]"),
        "write 10 or less, because evaluate.loops is 10",
    ),
    "the same run in every pair": (
        claim("{training.loops: 2, loop: 2}", "{training.loops: 2}", "over: [model.heads]"),
        "both sides are loop 2 of",
    ),
    "a misspelt solver for all values": (
        claim("{training.loops: 2}", "{solver: nwton}", "over: [model.heads]"),
        "names the solver 'nwton'; name a baseline of the study that solves linear_regression: did you mean newton?",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_mistake_in_a_claim_is_one_line(name: str, tmp_path: Path):
    text, expected = WRONG[name]
    file = tmp_path / "mine.yaml"
    file.write_text(with_claims(text))
    with pytest.raises(Mistakes) as problem:
        Study.load(file)
    (line,) = str(problem.value).splitlines()
    assert expected in line
    assert line.startswith(f"{file}:13: ")


@pytest.mark.parametrize("written", ["10 %", "10%", "0.1"])
def test_a_level_is_a_number_or_a_percentage(written: str, tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(with_claims(claim(second="{solver: newton}", keys=f"of: error, level: {written}")))
    assert Study.load(file).claims[0].level == 0.1


def test_both_sides_of_a_claim_over_a_setting_have_the_same_values(tmp_path: Path):
    file = tmp_path / "study.yaml"
    unpaired = claim("{training.loops: 2}", "{training.loops: 4}", "over: [model.heads]")
    file.write_text(with_claims(unpaired) + "where: training.loops == 2 or model.heads == 1\n")
    with pytest.raises(Mistakes) as mistakes:
        Study.load(file)
    line = (
        "the second side of a claim has no cell with model.heads=2, and the first side has one; give both sides the "
        "same cells, or pair over other settings"
    )
    assert line in str(mistakes.value)


def test_a_claim_over_a_setting_pairs_the_cells_of_both_sides():
    tree = yaml.safe_load(
        with_claims(claim("{training.loops: 2}", "{training.loops: 4}", "over: [model.heads]"))
    )
    made = Study.model_validate(tree)
    (spec,) = made.claims
    pairs = [[cell.values for cell in pair] for pair in spec.pairs(made.cells())]
    assert pairs == [
        [{"training.loops": loops, "model.heads": heads} for loops in (2, 4)] for heads in (1, 2)
    ]
    assert not spec.pairs(made.cells()[:3])  # the records of a study may lack a cell


def test_two_claims_with_one_text_are_a_mistake(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(with_claims(claim(), claim(OTHER, CELL)))
    with pytest.raises(Mistakes, match="claim 2 has the same text as claim 1"):
        Study.load(file)


def test_claims_change_no_trial_no_key_and_no_cell():
    bare = Study.parse(yaml.safe_load(STUDY))
    claiming = Study.parse(yaml.safe_load(with_claims(claim(), claim(second="{solver: newton}", text="b"))))
    assert claiming.cells() == bare.cells()
    for cell in bare.cells():
        assert claiming.at(cell, {}, 1).key == bare.at(cell, {}, 1).key
    documents = [study.document() for study in (bare, claiming)]
    claims: list[list[dict[str, Any]]] = [document.pop("claims") for document in documents]
    assert documents[0] == documents[1]
    assert claims[0] == []
    assert [spec["text"] for spec in claims[1]] == ["a", "b"]
    assert tuple(map(ClaimSpec.model_validate, claims[1])) == claiming.claims


def test_a_side_is_a_cell_or_an_algorithm():
    spec = ClaimSpec(
        text="a",
        first={"training": {"loops": 4, "window": 2}, "loop": 8},
        second={"solver": {"kind": "newton", "features": "inputs"}, "step": 3},
    )
    one, other = spec.sides
    assert one == CellSide({"training.loops": 4, "training.window": 2}, 8)
    assert one.names({"training.loops": 4.0, "training.window": 2, "model.heads": 1})
    assert other == SolverSide({"kind": "newton", "features": "inputs"}, 3)
    assert isinstance(other, SolverSide)
    assert other.names({"kind": "newton", "features": "inputs", "start": "spectral"})
    assert not other.names({"kind": "newton", "features": "representation"})


def test_a_plan_counts_claims():
    planned = plan_study(Study.parse(yaml.safe_load(with_claims(claim()))), rate=1e9, workers=1)
    assert (planned.claims, planned.laws) == (1, 0)


def test_the_claims_of_a_file_are_read_without_the_rest(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(with_claims(claim()).replace("question", "qestion"))
    assert [spec["text"] for spec in read_claims(file)] == ["a"]
    file.write_text(with_claims(claim(keys="margin: -1")))
    with pytest.raises(Mistakes, match="margin is -1"):
        read_claims(file)


def test_a_number_is_found_in_records_that_keep_numbers_and_words_as_text():
    side = SolverSide({"kind": "lin_ucb", "exploration": 2.0}, None)
    assert side.names({"kind": "lin_ucb", "exploration": 2.0})
    assert side.names({"kind": "lin_ucb", "exploration": "2.0"})
    assert not side.names({"kind": "lin_ucb", "exploration": "theory"})
