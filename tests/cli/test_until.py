"""`until: decided` on the command line: what `plan` and `simulate` print."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.analysis.answers.test_until import recorded_in
from tests.runner.decide.test_until import CLEAR, SAME, deciding
from tests.runner.decide.test_until_steps import Longer
from tests.runner.simulated_study import Store, complete

STUDY = """\
question: Does it decide?
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 90, window: 1}
scientific: {training.loops: [2, 4]}
replicates: 3
claims: [{text: four, first: {training.loops: 4}, second: {training.loops: 2}, margin: null}]
until: {looks: [3, 5], futile: 0.0}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deciding.yaml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def printed(loopscale, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command prints on a terminal of 200 columns."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> str:
        answer = loopscale(*words)
        assert answer.code == 0, answer.err
        return answer.out

    return call


def test_plan_prints_the_least_and_the_most(printed, file: Path):
    text = printed("plan", str(file), "--rate", "1e9", "--workers", "1")
    assert "until decided: looks at 3, 5 replicates of 2 cells with a question" in text
    assert "at least 6 trials" in text
    assert "at most 10 trials" in text


def test_simulate_prints_a_line_for_every_effect(printed, file: Path):
    words = ("simulate", str(file), "--workers", "2", "--courses", "2", "--noise", "0.01")
    text = printed(*words)
    assert "until decided: 2 courses of each line, with a noise of 0.01 between replicates" in text
    assert "effect 0.5: 6 trials" in text
    document = json.loads(printed(*words, "--json"))
    assert [each["effect"] for each in document["until"]] == [0.0, 0.05, 0.1, 0.2, 0.5]
    assert document["until"][-1]["words"] == {"holds": 1.0}


def test_plan_and_simulate_print_what_longer_trainings_would_cost(printed, file: Path):
    file.write_text(STUDY.replace("futile: 0.0", "futile: 0.0, steps: 4"))
    text = printed("plan", str(file), "--rate", "1e9", "--workers", "1")
    assert "nets that have not learnt, or still fall, may be trained again at 2 or 4 times the steps" in text
    assert "at most 30 trials" in text
    words = ("simulate", str(file), "--workers", "2", "--courses", "2", "--noise", "0.01")
    assert "effect 0, nets learn at 4 times the steps" in printed(*words)
    lines = json.loads(printed(*words, "--json"))["until"]
    assert [(each["effect"], each["learns_at"]) for each in lines[:4]] == [(0, 1), (0, 2), (0, 4), (0.05, 1)]
    soon, later, latest = lines[:3]
    assert later["trials"] == soon["trials"] + 6
    assert latest["trials"] == soon["trials"] + 12
    assert later["steps"] == soon["steps"] == {"most": 1.0}


@pytest.mark.slow
def test_list_says_what_was_ordered_and_why(printed, tmp_path: Path):
    made, store = deciding(CLEAR, SAME, until={"steps": 2, "looks": [3, 5], "futile": 0.0}), Store()
    complete(made, Longer(1, means={1: -2.0}, only=(1,)), store)
    recorded_in(tmp_path / "store", made, store)
    longer = "6 trainings of 2 times the steps for 1 question with too few learnt runs"
    words = f"looks ordered 4 replicates for 1 open question; {longer}"
    listed = json.loads(printed("list", "--json", "--store", str(tmp_path / "store")))
    assert listed[0]["ordered"] == words
    table = " ".join(printed("best", made.name, "--store", str(tmp_path / "store")).split())
    assert "Only the longer trainings answer." in table


def test_plan_leaves_cells_in_reserve_out_of_the_least_and_counts_them_in_the_most(printed, tmp_path: Path):
    path = tmp_path / "reserving.yaml"
    law = "laws: [{along: training.loops, form: power, theory: {kind: ista, smoothness: 1, distance: 1}}]"
    path.write_text(
        STUDY.partition("claims:")[0].replace("[2, 4]", "[1, 2, 4, 8, 16]")
        + law
        + "\nuntil: {looks: [3, 5], values: {training.loops: [16]}}\n"
    )
    text = printed("plan", str(path), "--rate", "1e9", "--workers", "1")
    assert "in reserve: 1 cell, trained only if a law along training.loops stays open" in text
    assert "at least 12 trials" in text
    assert "at most 25 trials" in text
    assert "the law along training.loops has no held-out test; hold_out: 1 would predict" in " ".join(
        text.split()
    )


@pytest.mark.slow
def test_best_says_of_every_claim_how_its_looks_ended(printed, tmp_path: Path):
    made, store = deciding(CLEAR, SAME, until={"looks": [3, 5], "futile": 0.2}), Store()
    complete(made, Longer(1, means={1: -2.0}, ready=1), store)
    recorded_in(tmp_path / "store", made, store)
    lines = printed("best", made.name, "--store", str(tmp_path / "store")).splitlines()
    clear, same = (
        next(line for line in lines if line.startswith(f"{each['text']}: ")) for each in (CLEAR, SAME)
    )
    assert clear == f"{CLEAR['text']}: decided at the look of 3 replicates"
    assert same.startswith(f"{SAME['text']}: given up. Futile: the chance of a verdict was ")
