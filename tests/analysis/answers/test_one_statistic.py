"""All parts of the analysis give the same answer to the question whether A is better than B."""

import itertools
import re

import numpy as np
import pytest

from loopscale.analysis.answers.best_cells import best, best_notes
from loopscale.analysis.answers.claims import judged_claims
from loopscale.analysis.answers.comparisons import READERS_VERDICTS, Comparison, compare_studies
from loopscale.analysis.answers.findings import open_questions, study_findings
from loopscale.analysis.answers.two_studies import compare
from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.report.study_page import study_page
from loopscale.contracts.planted_study import Planted
from loopscale.interface.answers import as_object
from loopscale.questions.claim import ClaimSpec
from loopscale.stats.multiplicity import holm

VERDICTS_OF_RATIO = {"less": "holds", "more": "does not hold", "undecided": "undecided"}


def two_cells(factor: float, only: str = "ab") -> Planted:
    """Cells `a` and `b` with three seeds each. `b` has `factor` times the error of `a`, up to the same noise."""
    planted = Planted(seed=5, noise=0.1)
    for name, middle in (("a", 0.2), ("b", 0.2 * factor)):
        settings = {"model.kind": name}
        if name in only:
            planted.replicated(planted.cell(name, **settings), middle, tries=1)
        else:  # the noise is drawn anyway, so that a cell is the same in both studies
            Planted.replicated(planted, "", middle, tries=1)
            planted.rows = [row for row in planted.rows if row["cell"]]
    return planted


@pytest.mark.parametrize(("factor", "word"), [(2.0, "more"), (1.05, "undecided")])
def test_best_report_compare_claims_and_open_questions_agree(factor: float, word: str):
    results = two_cells(factor).results
    cells = {cell.label: cell for cell in results.cells}
    (expected,) = compare_studies((results, results), [(cells["b"], cells["a"])])
    assert expected.verdict == word
    assert expected.seeds == 3
    spec = ClaimSpec(text="b", first={"model.kind": "b"}, second={"model.kind": "a"}, of="error", margin=None)
    (claim,) = judged_claims(results, [spec])
    assert claim.verdict == VERDICTS_OF_RATIO[word]
    assert (claim.sides.ratio, claim.interval) == (expected.ratio, expected.interval)
    assert claim.replicates == expected.replicates

    def assert_same(ratio: float | None, low: float | None, high: float | None) -> None:
        assert (ratio, low, high) == pytest.approx((expected.ratio, expected.low, expected.high))

    answers = {answer.label: answer for answer in best(results)}
    assert answers["b"].against_best == expected
    assert expected == Comparison(
        *("b", "a", expected.ratio, expected.low, expected.high, word, 3, expected.replicates),
        alone=expected.verdict,
        adjusted_p=claim.p,
    )
    printed = as_object(answers["b"])
    assert_same(printed["ratio"], printed["ratio_low"], printed["ratio_high"])
    assert (printed["verdict"], printed["alone"], printed["adjusted_p"]) == (word, word, claim.p)

    table = StudyResults.of(results).best().loc["b"]
    assert_same(table["ratio"], table["ratio_low"], table["ratio_high"])
    assert table["verdict"] == READERS_VERDICTS.get(word, word)

    (pair,) = compare(two_cells(factor, only="a").results, two_cells(factor, only="b").results).pairs
    assert_same(pair.comparison.ratio, pair.comparison.low, pair.comparison.high)
    assert pair.comparison.verdict == word
    assert pair.comparison.replicates == expected.replicates

    (sentence,) = [
        sentence for sentence in study_findings(results).sentences if sentence.startswith("Next is b")
    ]
    assert expected.span in sentence
    assert ("undecided" in sentence) == (word == "undecided")

    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", study_page(results).split("<script>")[0]))
    assert sentence in page
    assert f"{expected.ratio:.3g} {expected.low:.3g} to {expected.high:.3g} {table['verdict']}" in page
    assert "Verdicts are corrected" not in page

    questions = open_questions(results, list(answers.values()), [], [], [])
    asked = [question for question in questions if question.what == "Whether a is better than b"]
    assert len(asked) == (word == "undecided")
    for question in asked:
        assert question.replicates == expected.replicates
        (reverse,) = compare_studies((results, results), [(cells["a"], cells["b"])])
        assert reverse.span in question.because


def several_cells(gap: float = 0.25, seed: int = 0) -> Planted:
    """Cells `a` to `f` with three seeds each, whose errors grow by `gap` in the log from cell to cell."""
    planted = Planted(seed=seed, noise=0.1)
    for place, name in enumerate("abcdef"):
        planted.replicated(planted.cell(name, **{"model.kind": name}), 0.2 * np.exp(gap * place), tries=1)
    return planted


def test_all_views_of_a_family_of_several_rows_agree():
    results = several_cells().results
    answers = {answer.label: answer for answer in best(results)}
    compared = {label: answer.against_best for label, answer in answers.items() if answer.against_best}
    assert len(compared) == 5
    assert {one.family for one in compared.values()} == {15}
    assert [label for label, one in compared.items() if one.lost], "the correction withdraws no verdict"
    assert [label for label, one in compared.items() if one.verdict == "more"], "no verdict is left"

    cells = {cell.label: cell for cell in results.cells}
    pairs = [(cells[first], cells[second]) for first, second in itertools.combinations("fedcba", 2)]
    of_all = {(one.first, one.second): one for one in compare_studies((results, results), pairs)}
    for label, one in compared.items():
        twin = of_all[label, "a"]
        assert (one.ratio, one.low, one.high, one.alone) == (twin.ratio, twin.low, twin.high, twin.alone)
        assert one.adjusted_p is not None
        assert twin.adjusted_p is not None
        assert one.adjusted_p >= twin.adjusted_p, "pairs that the table does not list count as level"
        printed, row = as_object(answers[label]), StudyResults.of(results).best().loc[label]
        assert (printed["verdict"], printed["alone"]) == (one.verdict, one.alone)
        assert (row["verdict"], row["alone"]) == (one.verdict_in_words, one.uncorrected)
        assert printed["adjusted_p"] == one.adjusted_p

    notes = " ".join(best_notes(answers.values()))
    lost = sum(one.lost for one in compared.values())
    assert notes == (
        "Verdicts are corrected for 15 comparisons (all pairs of cells, because the data choose the lowest cell)."
        f" Without the correction, {lost} more would be decided."
    )
    findings = study_findings(results)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", study_page(results).split("<script>")[0]))
    assert notes in page
    assert notes in (StudyResults.of(results).best()._repr_html_() or "")
    assert compared["b"].lost
    assert any(
        sentence.startswith("Next is b") and "undecided which is better among 15 comparisons" in sentence
        for sentence in findings.sentences
    )
    (question,) = [one for one in findings.open if one.what == "Whether a is better than b"]
    assert question.because.endswith("as one of 15 comparisons")
    assert question.replicates == compared["b"].replicates


def test_two_studies_and_algorithms_have_families_of_their_rows():
    planted, other = several_cells(), several_cells(gap=0.3, seed=1)
    other.study["name"] = "other"
    studies = compare(planted.results, other.results)
    assert {pair.comparison.family for pair in studies.pairs} == {6}
    p = np.array([pair.comparison.adjusted_p for pair in studies.pairs])
    alone = [one for pair in studies.pairs for one in compare_studies_alone(planted, other, pair.first.label)]
    assert p == pytest.approx(holm(np.array(alone)))
    assert studies.correction[0] == "Verdicts are corrected for 6 comparisons."


def compare_studies_alone(planted: Planted, other: Planted, label: str) -> list[float | None]:
    """The p-value of the cell of this label in both studies, without a correction."""
    pair = [next(cell for cell in one.results.cells if cell.label == label) for one in (other, planted)]
    return [one.adjusted_p for one in compare_studies((other.results, planted.results), [(pair[0], pair[1])])]
