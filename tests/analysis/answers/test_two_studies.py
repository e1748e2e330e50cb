"""Two studies beside one another, on records whose differences are planted."""

from typing import Any

import numpy as np
import pytest

from loopscale.analysis.answers.two_studies import TwoStudies, compare
from loopscale.analysis.report.two_studies_page import two_studies_page
from tests.analysis.planted import Planted


def study(name: str, errors: dict[tuple[float, ...], float], paths: tuple[str, ...], **how: Any) -> Planted:
    """A cell for every place on the axes `paths`, with that error."""
    more = {key: how.pop(key) for key in ("runs", "rate") if key in how}
    planted = Planted(**how)
    planted.study |= {"name": name, "question": f"What of {name}?"}
    for place, error in errors.items():
        values = dict(zip(paths, place, strict=True))
        label = ", ".join(f"{path}={value:g}" for path, value in values.items())
        planted.replicated(planted.cell(label, **values), error, tries=1, **more)
    return planted


def compared(one: Planted, other: Planted) -> TwoStudies:
    return compare(one.results, other.results)


LOOPS = ("training.loops",)
THREE = {(4.0,): 0.4, (8.0,): 0.2, (16.0,): 0.1}


def test_cells_of_the_same_axis_are_matched_and_the_ratio_is_the_planted_one():
    one = study("one", THREE, LOOPS)
    other = study("other", {place: error / 2 for place, error in THREE.items()}, LOOPS, seed=1)
    found = compared(one, other)
    assert found.matched == LOOPS
    assert [(pair.first.label, pair.second.label) for pair in found.pairs] == [
        (f"training.loops={loops}",) * 2 for loops in (4, 8, 16)
    ]
    for pair in found.pairs:
        assert pair.ratio == pytest.approx(0.5, rel=0.2)
        assert pair.comparison.low is not None
        assert pair.comparison.high is not None
        assert pair.comparison.low < pair.ratio < pair.comparison.high
        assert pair.comparison.word == "less"
    assert found.alone == ([], [])


@pytest.mark.slow
def test_the_interval_of_a_ratio_covers_the_planted_one_as_often_as_it_says():
    covered = 0
    for seed in range(25):
        one = study("one", THREE, LOOPS, seed=2 * seed, noise=0.1)
        other = study("other", THREE, LOOPS, seed=2 * seed + 1, noise=0.3)
        covered += sum(pair.comparison.low < 1 < pair.comparison.high for pair in compared(one, other).pairs)  # pyright: ignore
    assert covered / 75 >= 0.87


def test_what_one_study_varies_and_the_other_fixes_is_matched_at_that_value():
    one = study("one", THREE, LOOPS)
    places = {(4.0, 2.0): 0.4, (4.0, 3.0): 0.5, (8.0, 2.0): 0.3}
    other = study("other", places, (*LOOPS, "training.window"))
    for row in one.rows:
        row["training.window"] = 2.0
    found = compared(one, other)
    assert [(pair.first.label, pair.second.label) for pair in found.pairs] == [
        ("training.loops=4", "training.loops=4, training.window=2"),
        ("training.loops=8", "training.loops=8, training.window=2"),
    ]
    assert found.alone == (["training.loops=16"], ["training.loops=4, training.window=3"])


def test_where_nothing_matches_every_cell_stands_beside_every_other_and_it_is_said():
    one = study("one", {(4.0,): 0.4, (8.0,): 0.2}, LOOPS)
    other = study("other", {(5.0,): 0.3, (9.0,): 0.3}, LOOPS)
    found = compared(one, other)
    assert found.matched == ()
    assert len(found.pairs) == 4
    assert "every cell is compared with every other" in found.how


def test_without_replicates_there_is_a_ratio_and_no_interval_and_without_trials_neither():
    one, other = study("one", THREE, LOOPS), study("other", THREE, LOOPS, runs=1)
    other.cell("training.loops=32", **{"training.loops": 32.0})
    one.cell("training.loops=32", **{"training.loops": 32.0})
    found = compared(one, other)
    assert [pair.comparison.word for pair in found.pairs] == ["no interval"] * 3 + ["no answer"]
    assert found.pairs[0].comparison.low is None


def test_laws_stand_side_by_side_and_the_interval_of_their_difference_is_from_both():
    asked = [{"of": "error", "along": "training.loops", "form": "power"}]
    one = study("one", {(x,): x**-1.0 for x in (2.0, 4.0, 8.0, 16.0)}, LOOPS)
    other = study("other", {(x,): x**-0.5 for x in (2.0, 4.0, 8.0, 16.0)}, LOOPS, seed=1)
    for side in (one, other):
        side.study["laws"] = asked
    (law,) = compared(one, other).laws
    assert law.difference == pytest.approx(-0.5, abs=0.15)
    assert law.low is not None
    assert law.high is not None
    assert law.low < -0.5 < law.high < 0
    widths = [each.high - each.low for each in (law.first, law.second)]  # pyright: ignore
    assert law.high - law.low == pytest.approx(np.hypot(*widths), rel=0.2)


def test_what_differs_is_named_and_what_is_the_same_is_not():
    one, other = study("one", THREE, LOOPS), study("other", {(4.0,): 0.4}, LOOPS)
    for row in other.rows:
        row["task.dim"] = 5
    other.study["evaluate"] = {"loops": 12, "prompts": 999}
    both = compared(one, other)
    found = both.different
    assert set(both.unlike) == {"task.dim", "evaluate.prompts"}
    assert "describe different prompts" in both.sentences[0]
    assert found["task.dim"] == (2, 5)
    assert found["evaluate.prompts"] == (64, 999)
    assert "evaluate.loops" not in found
    assert found["training.loops"] == ([4.0, 8.0, 16.0], [4.0])
    assert not {"task.kind", "task.points", "replicates", "training.lr"} & set(found)


def test_the_page_says_it_in_words_and_loads_nothing():
    evil = "<img src=x onerror=alert(1)>"
    one, other = study("one", THREE, LOOPS), study(evil, {place: 3 * e for place, e in THREE.items()}, LOOPS)
    found = compared(one, other)
    assert found.sentences[0] == f"Of 3 pairs of cells, the error of {evil} against one is: more in 3."
    page = two_studies_page(found)
    assert len(page.encode()) < 5_000_000
    before = page.split("<script>")[0]
    assert "<img" not in before
    assert "http" not in before
    assert "training.loops" in before
    assert before.count("<h1") == 1


def test_a_comparison_of_nothing_finished_says_so():
    one, other = Planted(), Planted()
    one.cell("a"), other.cell("b")
    found = compared(one, other)
    assert "too little has finished" in found.sentences[0]
    assert "The studies share no law" in two_studies_page(found)
