"""Two studies side by side, on records with planted differences."""

from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.two_studies import TwoStudies, compare
from loopscale.analysis.report.two_studies_page import two_studies_page
from loopscale.contracts.planted_study import Planted


def study(
    name: str, errors: dict[tuple[float, ...], float], paths: tuple[str, ...], **options: Any
) -> Planted:
    """A study with a cell, and its error, for every place on the axes `paths`."""
    of_cells = {key: options.pop(key) for key in ("runs", "rate") if key in options}
    planted = Planted(**options)
    planted.study |= {"name": name, "question": f"What of {name}?"}
    for place, error in errors.items():
        values = dict(zip(paths, place, strict=True))
        label = ", ".join(f"{path}={value:g}" for path, value in values.items())
        planted.replicated(planted.cell(label, **values), error, tries=1, **of_cells)
    return planted


def compared(first: Planted, second: Planted) -> TwoStudies:
    return compare(first.results, second.results)


LOOPS = ("training.loops",)
THREE = {(4.0,): 0.4, (8.0,): 0.2, (16.0,): 0.1}


def test_cells_on_the_same_axis_are_matched_and_have_the_planted_ratio():
    first = study("one", THREE, LOOPS)
    second = study("other", {place: error / 2 for place, error in THREE.items()}, LOOPS, seed=1)
    studies = compared(first, second)
    assert studies.matched == LOOPS
    assert [(pair.first.label, pair.second.label) for pair in studies.pairs] == [
        (f"training.loops={loops}",) * 2 for loops in (4, 8, 16)
    ]
    for pair in studies.pairs:
        assert pair.ratio == pytest.approx(0.5, rel=0.2)
        assert pair.comparison.low is not None
        assert pair.comparison.high is not None
        assert pair.comparison.low < pair.ratio < pair.comparison.high
        assert pair.comparison.verdict == "less"
    assert studies.alone == ([], [])


def test_the_lowest_error_is_that_of_all_cells_and_not_of_the_matched_ones():
    first = study("one", THREE, LOOPS)
    second = study("other", {(4.0,): 0.4, (8.0,): 0.2, (32.0,): 0.05}, LOOPS, seed=1)
    studies = compared(first, second)
    labels = [answer and answer.label for answer in studies.lowest]
    assert labels == ["training.loops=16", "training.loops=32"]
    (said,) = [sentence for sentence in studies.sentences if sentence.startswith("Lowest error")]
    assert said.endswith("by training.loops=32.")


@pytest.mark.slow
def test_intervals_of_ratios_cover_the_planted_ratio_as_often_as_stated():
    covered = 0
    for seed in range(25):
        first = study("one", THREE, LOOPS, seed=2 * seed, noise=0.1)
        second = study("other", THREE, LOOPS, seed=2 * seed + 1, noise=0.3)
        covered += sum(
            pair.comparison.low < 1 < pair.comparison.high for pair in compared(first, second).pairs
        )  # pyright: ignore
    assert covered / 75 >= 0.87


def test_an_axis_that_the_other_study_fixes_is_matched_at_the_fixed_value():
    first = study("one", THREE, LOOPS)
    places = {(4.0, 2.0): 0.4, (4.0, 3.0): 0.5, (8.0, 2.0): 0.3}
    second = study("other", places, (*LOOPS, "training.window"))
    for row in first.rows:
        row["training.window"] = 2.0
    studies = compared(first, second)
    assert [(pair.first.label, pair.second.label) for pair in studies.pairs] == [
        ("training.loops=4", "training.loops=4, training.window=2"),
        ("training.loops=8", "training.loops=8, training.window=2"),
    ]
    assert studies.alone == (["training.loops=16"], ["training.loops=4, training.window=3"])


def test_without_matching_cells_every_pair_of_cells_is_compared():
    first = study("one", {(4.0,): 0.4, (8.0,): 0.2}, LOOPS)
    second = study("other", {(5.0,): 0.3, (9.0,): 0.3}, LOOPS)
    studies = compared(first, second)
    assert studies.matched == ()
    assert len(studies.pairs) == 4
    assert "every cell is compared with every other" in studies.how


def test_without_replicates_there_is_no_interval_and_without_trials_no_ratio():
    first, second = study("one", THREE, LOOPS), study("other", THREE, LOOPS, runs=1)
    second.cell("training.loops=32", **{"training.loops": 32.0})
    first.cell("training.loops=32", **{"training.loops": 32.0})
    studies = compared(first, second)
    assert [pair.comparison.verdict for pair in studies.pairs] == ["no interval"] * 3 + ["no answer"]
    assert studies.pairs[0].comparison.low is None


def test_the_interval_of_a_difference_of_rates_combines_both_intervals():
    laws = [{"of": "error", "along": "training.loops", "form": "power"}]
    first = study("one", {(x,): x**-1.0 for x in (2.0, 4.0, 8.0, 16.0)}, LOOPS)
    second = study("other", {(x,): x**-0.5 for x in (2.0, 4.0, 8.0, 16.0)}, LOOPS, seed=1)
    for planted in (first, second):
        planted.study["laws"] = laws
    (law,) = compared(first, second).laws
    assert law.difference == pytest.approx(-0.5, abs=0.15)
    assert law.low is not None
    assert law.high is not None
    assert law.low < -0.5 < law.high < 0
    widths = [side.high - side.low for side in (law.first, law.second)]  # pyright: ignore
    assert law.high - law.low == pytest.approx(np.hypot(*widths), rel=0.2)


def test_only_settings_that_differ_are_listed():
    first, second = study("one", THREE, LOOPS), study("other", {(4.0,): 0.4}, LOOPS)
    for row in second.rows:
        row["task.dim"] = 5
    second.study["evaluate"] = {"loops": 12, "prompts": 999}
    studies = compared(first, second)
    different = studies.different
    assert set(studies.unlike) == {"task.dim", "evaluate.prompts"}
    assert "describe different prompts" in studies.sentences[0]
    assert different["task.dim"] == (2, 5)
    assert different["evaluate.prompts"] == (64, 999)
    assert "evaluate.loops" not in different
    assert different["training.loops"] == ([4.0, 8.0, 16.0], [4.0])
    assert not {"task.kind", "task.points", "replicates", "training.lr"} & set(different)


def test_the_page_escapes_names_and_loads_nothing():
    evil = "<img src=x onerror=alert(1)>"
    first, second = (
        study("one", THREE, LOOPS),
        study(evil, {place: 3 * e for place, e in THREE.items()}, LOOPS),
    )
    studies = compared(first, second)
    assert studies.sentences[0] == f"Of 3 pairs of cells, {evil} beside one is: worse in 3."
    page = two_studies_page(studies)
    assert len(page.encode()) < 5_000_000
    markup = page.split("<script>")[0]
    assert "<img" not in markup
    assert "http" not in markup
    assert "training.loops" in markup
    assert markup.count("<h1") == 1


def test_a_comparison_without_finished_trials_says_so():
    first, second = Planted(), Planted()
    first.cell("a"), second.cell("b")
    studies = compared(first, second)
    assert "too little has finished" in studies.sentences[0]
    assert "The studies share no law" in two_studies_page(studies)


def test_a_copy_of_a_study_has_the_ratio_one_without_an_interval():
    only = {(4.0,): 0.4}
    studies = compared(study("one", only, LOOPS), study("copy", only, LOOPS))
    (pair,) = studies.pairs
    assert (pair.ratio, pair.comparison.low, pair.comparison.high) == (1.0, None, None)
    assert "1 (no interval: the studies have the same runs)" in studies.sentences[0]
