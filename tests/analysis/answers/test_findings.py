"""Findings, what would decide what is open, and cost against plan, on records whose answers are known."""

from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.best import best
from loopscale.analysis.answers.cost import training_costs
from loopscale.analysis.answers.findings import Findings, find
from loopscale.analysis.answers.open_questions import OpenQuestion, open_questions, replicate_noise
from loopscale.analysis.answers.search_limits import close_calls, run_factor
from loopscale.stats.intervals import PooledVariance
from tests.analysis.planted import Planted, comparison


def noise_of(planted: Planted) -> PooledVariance | None:
    return replicate_noise(planted.results)


def findings(planted: Planted) -> Findings:
    return find(planted.results)


def test_the_first_sentence_is_the_answer_and_says_whether_the_next_cell_is_told_apart():
    found = findings(comparison())
    assert found.sentences[0].startswith("Lowest error: 0.12")
    assert "by model.kind=algoformer" in found.sentences[0]
    assert found.sentences[1].startswith("Next is model.kind=gpt2 with 1.")
    assert found.sentences[1].endswith("times the error of model.kind=algoformer: the difference is decided.")


def test_findings_hold_what_each_part_of_the_analysis_says():
    planted = comparison()
    found = findings(planted)
    assert [one.label for one in found.answers] == [cell["label"] for cell in planted.study["cells"]]
    assert len(found.standings) == 6
    assert {law.along for law in found.laws} == {"loop"}
    assert found.unfitted == []


def test_the_replicates_asked_for_are_those_of_the_textbook_and_three_times_as_many_do_it():
    """Two cells 10 % apart, with a noise of 10 %: 2 (1.96 s / log 1.1)² runs each where the noise is known."""

    def asked(seed: int, runs: int) -> list[OpenQuestion]:
        rng = np.random.default_rng(seed)
        planted = Planted()
        for label, middle in (("a", 0.2), ("b", 0.22)):
            cell = planted.cell(label)
            for number in range(runs):
                planted.trial(cell, "replicate", number, middle * float(np.exp(0.1 * rng.standard_normal())))
        results = planted.results
        return open_questions(results, best(results), [], [], [])

    known = 2 * (1.96 * 0.1 / np.log(1.1)) ** 2
    few = [one for seed in range(10) for one in asked(seed, 4)]
    assert all(one.replicates is None or one.more_trials == 2 * (one.replicates - 4) for one in few)
    assert all(
        one.seconds is None or one.seconds == pytest.approx(3.0 * (one.more_trials or 0)) for one in few
    )
    assert known / 3 < np.median([one.replicates or 1000 for one in few]) < 3 * known
    assert sum(not asked(seed, int(3 * known)) for seed in range(8)) >= 6


def _two_tasks(noise: float) -> Planted:
    """Two nets on two tasks, one far harder than the other, and an algorithm that is exact on both."""
    planted = Planted(noise=noise)
    for points, middle in ((8, 0.1), (4, 0.5)):
        for label, factor in (("looped", 1.0), ("gpt2", 1.3)):
            settings = {"task.points": points, "model.kind": label}
            planted.replicated(planted.cell(f"points={points}, {label}", **settings), middle * factor)
        for solver, error in (("newton", middle * 1.05), ("eigendecomposition", 1e-15)):
            key = planted.trial("", "baseline", points, error, label=solver, **{"task.points": points})
            planted.rows[-1]["trial"] = f"{key}-{solver}"
    return planted


def test_errors_are_compared_within_a_task_alone():
    found = findings(_two_tasks(noise=0.01))
    answers = [sentence for sentence in found.sentences if "lowest error" in sentence]
    assert [sentence.split(",")[0] for sentence in answers] == ["With task.points=8", "With task.points=4"]
    assert "by points=8, looped" in answers[0]
    assert "by points=4, looped" in answers[1]
    following = [sentence for sentence in found.sentences if sentence.startswith("Next is ")]
    assert [sentence.split(" with ")[0] for sentence in following] == [
        "Next is points=8, gpt2",
        "Next is points=4, gpt2",
    ]
    assert all(sentence.endswith("the difference is decided.") for sentence in following)


def test_tasks_that_differ_in_what_changes_no_prompt_are_one():
    """Tested on the same tables, whatever the gap of the points that were trained on."""
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


def test_a_cell_level_with_an_algorithm_is_open_and_one_that_is_exact_is_not():
    """5 % apart, with a noise of 8 %: (1.96 s / log 1.05)² runs, where the noise is known."""
    found = findings(_two_tasks(noise=0.08))
    asked = [one for one in found.open if "newton" in one.what]
    assert asked
    known = (1.96 * 0.08 / np.log(1.05)) ** 2
    assert all(one.replicates is not None and one.replicates > 3 for one in asked)
    assert all(one.more_trials == one.replicates - 3 for one in asked)
    assert known / 4 < np.median([one.replicates for one in asked]) < 25 * known
    assert not any("eigendecomposition" in one.what for one in found.open)
    assert not any("eigendecomposition" in sentence and "times" in sentence for sentence in found.sentences)


def test_one_replicate_each_asks_for_two():
    planted = Planted()
    for label, middle in (("a", 0.2), ("b", 0.3)):
        planted.replicated(planted.cell(label), middle, runs=1)
    (one,) = findings(planted).open
    assert (one.replicates, one.more_trials) == (2, 2)


def test_an_undecided_law_along_a_setting_asks_for_a_replicate_at_every_value():
    planted = Planted(noise=0.4)
    for loops in (2, 4, 8, 16, 32):
        planted.replicated(planted.cell(f"T={loops}", **{"training.loops": float(loops)}), 1 / loops, tries=1)
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": "power", "theory": "ista"}]
    found = findings(planted)
    (law,) = found.laws
    assert law.verdict is not None
    assert law.verdict.word == "undecided"
    (one,) = [one for one in found.open if "falls as ista says" in one.what]
    assert one.replicates is not None
    assert one.replicates > 3
    assert one.more_trials == 5 * (one.replicates - 3)
    assert one.values is not None
    assert one.values > 5
    assert any("undecided against ista" in sentence for sentence in found.sentences)


def test_a_verdict_over_several_tasks_comes_before_their_errors():
    planted = Planted(noise=0.02)
    for dim in (2, 4, 8, 16):
        planted.replicated(planted.cell(f"dim={dim}", **{"task.dim": dim}), dim / 20)
    planted.study["laws"] = [{"of": "error", "along": "task.dim", "form": "power", "theory": "decoder_floor"}]
    found = findings(planted)
    (law,) = found.laws
    assert law.verdict
    assert found.sentences[0].startswith("Error grows as dim^")
    assert found.sentences[1].startswith("With task.dim=2")


def _pruned_at(behind: float, *, runs: int = 3, noise: float = 0.05) -> Planted:
    """A cell whose second trial was ended at step 600, so many times the error of the best behind it."""
    planted = Planted(noise=noise)
    cell = planted.cell("a")
    planted.replicated(cell, 0.2, runs=runs, tries=1)
    planted.learn(f"tuning-{cell}-0", 0.2)
    planted.trial(cell, "tuning", 1, 0.3 * behind, outcome="pruned", step=600)
    there = 0.2 + np.exp(-600 / 200)
    for step, factor in (
        (300, 0.1),
        (600, behind),
    ):  # before its last step it was far ahead, which decides nothing
        planted.steps.append(
            {"trial": f"tuning-{cell}-1", "step": step, "metric": "error", "value": there * factor}
        )
    return planted


def test_a_trial_pruned_no_further_behind_than_two_runs_of_one_point_differ_is_named():
    planted = _pruned_at(1.01)
    (call,) = close_calls(planted.results, noise_of(planted))
    assert (call.trial, call.step) == ("tuning-cell0-1", 600)
    assert call.ratio == pytest.approx(1.01)
    (one,) = findings(planted).open
    assert one.what == "Whether pruning ended the best point of a"
    assert "had 1.01 times its error at step 600" in one.because
    assert (one.more_trials, one.seconds) == (1, 3.0)


@pytest.mark.parametrize("planted", [_pruned_at(1.3), _pruned_at(1.01, runs=1)])
def test_a_trial_that_was_clearly_behind_and_one_of_a_study_without_noise_are_not_named(planted):
    assert close_calls(planted.results, noise_of(planted)) == []


def _tuned_to(lr: dict[str, Any], *rates: float) -> Planted:
    """A cell whose best learning rate is this, for each."""
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
def test_a_range_whose_end_was_best_is_named_with_its_cells(lr, side, end):
    found = findings(_tuned_to(lr, 1e-2, 9.8e-3))
    named = [one for one in found.open if "training.lr" in one.what]
    if side is None:
        assert not named
        return
    (one,) = named
    beyond = {"lowest": "below", "highest": "above"}[side]
    assert one.what == f"Whether a training.lr {beyond} {end} is better for 2 cells"
    assert f"of cell 0, cell 1 is at the {side} end of its range, {end}" in one.because


def test_nothing_lies_beyond_an_end_of_zero():
    planted = _tuned_to({"real": [0.0, 1.0]}, 0.0)
    assert not any("training.lr" in one.what for one in findings(planted).open)


def test_what_two_runs_differ_by_is_the_noise_that_was_planted():
    planted = _pruned_at(1.01, runs=400, noise=0.1)
    noise = noise_of(planted)
    assert noise is not None
    assert run_factor(noise) == pytest.approx(np.exp(0.1 * np.sqrt(2)), rel=0.02)


def test_cost_is_that_of_the_steps_trained_and_stands_beside_the_plan():
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
    (one,), total = training_costs(planted.changed(trials=trials))
    assert (one.begun, one.planned) == (4, 4)
    assert one.flops == total.flops == pytest.approx(2.75e9)
    assert one.flops_planned == (4e9, 4e9)
    assert one.flops_expected == (3e9, 3e9)
    assert total.seconds == pytest.approx(27.5)
    assert one.seconds_expected == pytest.approx((30.0, 30.0))


def test_a_study_without_a_recorded_plan_still_says_what_it_cost():
    planted = comparison()
    cells, total = training_costs(planted.results)
    assert [one.planned for one in cells] == [None] * 3
    assert total.planned == 14
    assert total.flops_planned is None
    assert total.seconds == pytest.approx(3.0 * total.begun)
