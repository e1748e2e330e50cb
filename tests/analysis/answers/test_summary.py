"""The answer box of a report: four sentences for people."""

from dataclasses import replace

from loopscale.analysis.answers.findings import study_findings
from loopscale.analysis.answers.summary import beside_best as summary_of_next_cell
from loopscale.analysis.answers.summary import summary
from loopscale.contracts.planted_study import Planted, comparison
from loopscale.core.titles import readable


def test_the_first_sentence_says_which_cell_is_best_and_by_how_much():
    findings = study_findings(comparison().results)
    best = summary(findings)[0]
    lowest = min(findings.answers, key=lambda answer: answer.error)
    assert best.startswith(f"Best is {readable(lowest.label)} with an error of {lowest.words}")
    compared = [answer.against_best for answer in findings.answers if answer.against_best]
    nearest = min((each for each in compared if each.ratio), key=lambda each: each.ratio)
    assert f"{nearest.span} times this error" in best


def test_several_tasks_have_one_sentence_on_the_setting_that_is_best_most_often():
    planted = Planted(noise=0.02)
    for noise, middle in ((0, 0.1), (1, 0.3), (2, 0.5)):
        for loops, factor in ((2, 3.0), (8, 1.0)):
            values = {"task.noise": noise, "training.loops": loops}
            planted.replicated(planted.cell(f"noise={noise}, loops={loops}", **values), middle * factor)
    best = summary(study_findings(planted.results))[0]
    assert best.startswith("Best on 3 of 3 tasks is loops=8; the next cell of a task has ")
    assert "times the lowest error, which is certain on 3 tasks" in best
    assert "(noise=0) to" in best
    assert "(noise=2), where 1 is predicting nothing." in best
    assert "task." not in best


def test_the_box_counts_claims_and_open_questions_and_names_algorithms():
    planted = comparison()
    planted.study["claims"] = []
    sentences = summary(study_findings(planted.results))
    assert len(sentences) <= 4
    assert any("after as many steps, the net is " in sentence for sentence in sentences)
    assert sentences[-1].endswith(("questions are open.", "1 question is open."))


def test_a_study_without_a_finished_trial_has_one_sentence():
    planted = Planted()
    planted.cell("a")
    assert summary(study_findings(planted.results)) == [
        "No trial has finished yet, so there is no answer yet."
    ]


def test_nets_that_lose_against_predicting_nothing_are_named_first():
    planted = Planted(noise=0.02)
    for loops, error in ((2, 1.3), (8, 1.1)):
        planted.replicated(planted.cell(f"loops={loops}", **{"training.loops": loops}), error)
    best = summary(study_findings(planted.results))[0]
    assert best.startswith(
        "No net is better than predicting nothing, which costs 1: loops=8 has the least error, "
    )
    assert "; loops=2 has " in best


def test_a_next_cell_with_the_same_error_is_said_to_have_the_same_error():
    planted = Planted(noise=0.02)
    for name in "ab":
        planted.replicated(planted.cell(name, **{"model.kind": name}), 0.2, runs=8, tries=1)
    findings = study_findings(planted.results)
    (compared,) = [answer.against_best for answer in findings.answers if answer.against_best]
    best = summary(findings)[0]
    assert ("has the same error within" in best) == (round(compared.ratio, 2) == 1)
    same = replace(compared, ratio=1.001, low=0.951, high=1.06)
    assert summary_of_next_cell("GPT-2", same) == "GPT-2 has the same error within 6 %"
    other = replace(compared, ratio=1.3, low=1.2, high=1.4)
    assert summary_of_next_cell("GPT-2", other) == "GPT-2 has 1.3 (95 % interval 1.2 to 1.4) times this error"
