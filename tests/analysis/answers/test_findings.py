"""Findings, open questions, and cost beside the plan, on records with known answers."""

from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.best_cells import best
from loopscale.analysis.answers.cost import training_costs
from loopscale.analysis.answers.findings import (
    Findings,
    OpenQuestion,
    close_calls,
    open_questions,
    replicate_noise,
    run_factor,
    study_findings,
)
from loopscale.contracts.planted_study import Planted, comparison
from loopscale.stats.contrasts import PooledVariance


def noise_of(planted: Planted) -> PooledVariance | None:
    return replicate_noise(planted.results)


def findings_of(planted: Planted) -> Findings:
    return study_findings(planted.results)


def test_the_first_sentences_give_the_best_cell_and_whether_the_next_cell_is_worse():
    findings = findings_of(comparison())
    assert findings.sentences[0].startswith("Lowest error: 0.12")
    assert "by model.kind=AlgoFormer" in findings.sentences[0]
    assert findings.sentences[1].startswith("Next is model.kind=GPT-2 with 1.")
    assert findings.sentences[1].endswith(
        "times the error of model.kind=AlgoFormer: the difference is decided."
    )


def test_findings_hold_answers_standings_and_laws():
    planted = comparison()
    findings = findings_of(planted)
    assert [answer.label for answer in findings.answers] == [cell["label"] for cell in planted.study["cells"]]
    assert len(findings.standings) == 6
    assert {law.along for law in findings.laws} == {"loop"}
    assert findings.unfitted == []


def test_replicates_asked_for_follow_the_textbook_formula_and_three_times_as_many_decide():
    """Two cells are 10 % apart, with 10 % noise. With known noise, 2 (1.96 s / log 1.1)² runs each decide."""

    def questions(seed: int, runs: int) -> list[OpenQuestion]:
        rng = np.random.default_rng(seed)
        planted = Planted()
        for label, middle in (("a", 0.2), ("b", 0.22)):
            cell = planted.cell(label)
            for number in range(runs):
                planted.trial(cell, "replicate", number, middle * float(np.exp(0.1 * rng.standard_normal())))
        results = planted.results
        return open_questions(results, best(results), [], [], [])

    known = 2 * (1.96 * 0.1 / np.log(1.1)) ** 2
    asked = [question for seed in range(10) for question in questions(seed, 4)]
    for question in asked:
        assert question.replicates is None or question.more_trials == 2 * (question.replicates - 4)
        assert question.seconds is None or question.seconds == pytest.approx(
            3.0 * (question.more_trials or 0)
        )
    assert known / 3 < np.median([question.replicates or 1000 for question in asked]) < 3 * known
    assert sum(not questions(seed, int(3 * known)) for seed in range(8)) >= 6


def _two_tasks(noise: float) -> Planted:
    """Two nets and two algorithms on an easy and a hard task. One of the algorithms is exact."""
    planted = Planted(noise=noise)
    for points, middle in ((8, 0.1), (4, 0.5)):
        for label, factor in (("looped", 1.0), ("gpt2", 1.3)):
            settings = {"task.points": points, "model.kind": label}
            planted.replicated(planted.cell(f"points={points}, {label}", **settings), middle * factor)
        for solver, error in (("newton", middle * 1.05), ("eigendecomposition", 1e-15)):
            key = planted.trial("", "baseline", points, error, label=solver, **{"task.points": points})
            planted.rows[-1]["trial"] = f"{key}-{solver}"
    return planted


def test_errors_are_compared_only_within_a_task():
    findings = findings_of(_two_tasks(noise=0.01))
    answers = [sentence for sentence in findings.sentences if "lowest error" in sentence]
    assert [sentence.split(",")[0] for sentence in answers] == ["With task.points=8", "With task.points=4"]
    assert "by points=8, looped" in answers[0]
    assert "by points=4, looped" in answers[1]
    following = [sentence for sentence in findings.sentences if sentence.startswith("Next is ")]
    assert [sentence.split(" with ")[0] for sentence in following] == [
        "Next is points=8, GPT-2",
        "Next is points=4, GPT-2",
    ]
    assert all(sentence.endswith("the difference is decided.") for sentence in following)


def test_tasks_that_differ_only_in_settings_without_effect_are_one_task():
    """The evaluation task reads a table, so `gap` changes no prompt."""
    planted = Planted()
    for gap in (0.2, 0.6):
        planted.replicated(planted.cell(f"gap={gap}", **{"task.gap": gap}), gap)
    trials = planted.tables[0].drop(columns=["task.points", "task.dim"])
    gaps = trials["cell"].map({"cell0": 0.2, "cell1": 0.6})
    trained = trials.assign(**{"task.kind": "pca", "task.gap": gaps})
    assert list(planted.changed(trials=trained).tasks) == ["task.gap=0.2", "task.gap=0.6"]
    tested = trained.assign(
        **{"evaluate.task.kind": "pca", "evaluate.task.gap": gaps, "evaluate.task.data": '["iris"]'}
    )
    assert {
        name: [cell.key for cell in cells] for name, cells in planted.changed(trials=tested).tasks.items()
    } == {"": ["cell0", "cell1"]}


def test_a_task_is_named_by_its_kind_and_by_what_varies_within_this_kind():
    planted = Planted()
    for kind, settings in (
        ("linear_regression", {"task.condition": 16.0, "task.spectrum_levels": 4}),
        ("linear_regression", {"task.condition": 1.0, "task.spectrum_levels": 2}),
        ("sparse_recovery", {"task.nonzero": 2}),
    ):
        settings = settings | {"task.kind": kind}
        planted.replicated(planted.cell(f"{kind}, {settings}", **settings), 0.2)
    trials = planted.tables[0].drop(columns="task.points")
    linear = "task.kind=linear_regression, task.condition"
    assert list(planted.changed(trials=trials).tasks) == [
        f"{linear}=16, task.spectrum_levels=4",
        f"{linear}=1",  # isotropic inputs have one eigenvalue, whatever the number of levels
        "task.kind=sparse_recovery",
    ]


def test_an_undecided_algorithm_is_an_open_question_and_an_exact_algorithm_is_not():
    """Net and algorithm are 5 % apart, with 8 % noise. With known noise, (1.96 s / log 1.05)² runs decide."""
    findings = findings_of(_two_tasks(noise=0.08))
    asked = [question for question in findings.open if "Newton's method" in question.what]
    assert asked
    known = (1.96 * 0.08 / np.log(1.05)) ** 2
    for question in asked:
        assert question.replicates is not None
        assert question.replicates > 3
        assert question.more_trials == question.replicates - 3
    assert known / 4 < np.median([question.replicates for question in asked]) < 25 * known
    assert not any("eigendecomposition" in question.what for question in findings.open)
    assert not any(
        "eigendecomposition" in sentence and "times" in sentence for sentence in findings.sentences
    )


def test_cells_with_one_replicate_ask_for_two():
    planted = Planted()
    for label, middle in (("a", 0.2), ("b", 0.3)):
        planted.replicated(planted.cell(label), middle, runs=1)
    (question,) = findings_of(planted).open
    assert (question.replicates, question.more_trials) == (2, 2)


def test_an_undecided_law_along_a_setting_asks_for_a_replicate_at_every_value():
    planted = Planted(noise=0.4)
    for loops in (2, 4, 8, 16, 32):
        planted.replicated(
            planted.cell(f"T={loops}", **{"training.loops": float(loops)}), 0.6 / loops, tries=1
        )
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": "power", "theory": "ista"}]
    findings = findings_of(planted)
    (law,) = findings.laws
    assert law.judgement is not None
    assert law.judgement.verdict == "undecided"
    (question,) = [question for question in findings.open if "falls as ISTA says" in question.what]
    assert question.replicates is not None
    assert question.replicates > 3
    assert question.more_trials == 5 * (question.replicates - 3)
    assert question.values is not None
    assert question.values > 5
    assert any("undecided against ISTA" in sentence for sentence in findings.sentences)


def test_a_law_over_several_tasks_comes_before_the_errors_on_each_task():
    planted = Planted(noise=0.02)
    for dim in (2, 4, 8, 16):
        planted.replicated(planted.cell(f"dim={dim}", **{"task.dim": dim}), dim / 20)
    planted.study["laws"] = [{"of": "error", "along": "task.dim", "form": "power", "theory": "decoder_floor"}]
    findings = findings_of(planted)
    (law,) = findings.laws
    assert law.judgement
    assert findings.sentences[0].startswith("Error grows as dim^")
    assert findings.sentences[1].startswith("With task.dim=2")


def _pruned_at(behind: float, *, runs: int = 3, noise: float = 0.05) -> Planted:
    """A cell whose second trial was pruned at step 600 with `behind` times the error of the best trial."""
    planted = Planted(noise=noise)
    cell = planted.cell("a")
    planted.replicated(cell, 0.2, runs=runs, tries=1)
    planted.learn(f"tuning-{cell}-0", 0.2)
    planted.trial(cell, "tuning", 1, 0.3 * behind, outcome="pruned", step=600)
    best_error = 0.2 + np.exp(-600 / 200)
    for step, factor in (
        (300, 0.1),
        (600, behind),
    ):  # only the last step counts, though step 300 was far ahead
        row = {"trial": f"tuning-{cell}-1", "step": step, "metric": "error", "value": best_error * factor}
        planted.history.append(row)
    return planted


def test_a_trial_pruned_less_far_behind_than_two_runs_differ_is_an_open_question():
    planted = _pruned_at(1.01)
    (call,) = close_calls(planted.results, noise_of(planted))
    assert (call.trial, call.step) == ("tuning-cell0-1", 600)
    assert call.ratio == pytest.approx(1.01)
    (question,) = findings_of(planted).open
    assert question.what == "Whether pruning ended the best point of a"
    assert "had 1.01 times its error at step 600" in question.because
    assert (question.more_trials, question.seconds) == (1, 3.0)


@pytest.mark.parametrize("planted", [_pruned_at(1.3), _pruned_at(1.01, runs=1)])
def test_a_trial_clearly_behind_or_without_known_noise_is_no_close_call(planted):
    assert close_calls(planted.results, noise_of(planted)) == []


def _tuned_to(lr: dict[str, Any], *rates: float) -> Planted:
    """A study with one cell for each best learning rate, tuned in the range `lr`."""
    planted = Planted()
    planted.study["nuisance"] = {"training.lr": lr}
    for number, rate in enumerate(rates):
        cell = planted.cell(f"cell {number}", **{"training.lr": rate})
        planted.replicated(cell, 0.2 * 2**number)
    return planted


@pytest.mark.parametrize(
    ("lr", "side", "end"),
    [
        ({"real": [1e-4, 1e-2], "scale": "log"}, "highest", "0.01"),
        ({"real": [9.5e-3, 1.0]}, "lowest", "0.0095"),
        ({"integer": [-1, 9]}, None, None),
        ({"real": [1e-3, 1e-1], "scale": "log"}, None, None),
        ({"choice": [1e-4, 1e-2]}, None, None),
    ],
)
def test_a_range_whose_end_is_best_is_an_open_question_with_its_cells(lr, side, end):
    findings = findings_of(_tuned_to(lr, 1e-2, 9.8e-3))
    questions = [question for question in findings.open if "training.lr" in question.what]
    if side is None:
        assert not questions
        return
    (question,) = questions
    beyond = {"lowest": "below", "highest": "above"}[side]
    assert question.what == f"Whether a training.lr {beyond} {end} is better for 2 cells"
    assert f"of cell 0, cell 1 is at the {side} end of its range, {end}" in question.because


def test_an_end_of_zero_is_no_open_question():
    planted = _tuned_to({"real": [0.0, 1.0]}, 0.0)
    assert not any("training.lr" in question.what for question in findings_of(planted).open)


def test_the_factor_between_two_runs_follows_from_the_planted_noise():
    planted = _pruned_at(1.01, runs=400, noise=0.1)
    noise = noise_of(planted)
    assert noise is not None
    assert run_factor(noise) == pytest.approx(np.exp(0.1 * np.sqrt(2)), rel=0.02)


def test_costs_count_trained_steps_and_stand_beside_the_plan():
    planted = Planted()
    cell = planted.cell("a")
    steps = {"training.steps": 1000}
    planted.trial(cell, "tuning", 0, 0.2, flops=1e9, step=1000, seconds=10.0, **steps)
    planted.trial(cell, "tuning", 1, 0.4, flops=1e9, step=250, seconds=2.5, outcome="pruned", **steps)
    planted.trial(cell, "replicate", 0, 0.2, flops=1e9, step=1000, seconds=10.0, **steps)
    planted.trial(cell, "replicate", 1, 0.2, flops=None, step=500, seconds=5.0, outcome=None, **steps)
    planted.trial("", "baseline", 0, 0.1, label="newton", flops=None)
    plan = {"key": cell, "tuning": 2, "replicates": 2, "flops": [1e9, 1e9], "trained_share": 0.5}
    planted.study["plan"] = [plan]
    trials = planted.tables[0].assign(**{"training.steps": 1000})
    (cost,), total = training_costs(planted.changed(trials=trials))
    assert (cost.begun, cost.planned) == (4, 4)
    assert cost.flops == total.flops == pytest.approx(2.75e9)
    assert cost.flops_planned == (4e9, 4e9)
    assert cost.flops_expected == (3e9, 3e9)
    assert total.seconds == pytest.approx(27.5)


def test_a_study_without_a_recorded_plan_has_its_cost():
    planted = comparison()
    cells, total = training_costs(planted.results)
    assert [cell.planned for cell in cells] == [None] * 3
    assert total.planned == 14
    assert total.flops_planned is None
    assert total.seconds == pytest.approx(3.0 * total.begun)
