"""All parts of the analysis give the same answer to the question whether A is better than B."""

import re

import pytest

from loopscale.analysis.answers.claims import judged_claims
from loopscale.analysis.answers.comparisons import Comparison, best, compare_cells
from loopscale.analysis.answers.findings import open_questions, study_findings
from loopscale.analysis.answers.two_studies import compare
from loopscale.analysis.notebook import StudyResults
from loopscale.analysis.report.study_page import study_page
from loopscale.cli.best import as_object
from loopscale.studies.claims import ClaimSpec
from tests.analysis.planted import Planted

VERDICTS = {"less": "holds", "more": "does not hold", "undecided": "undecided"}


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
    expected = compare_cells(results, cells["b"], cells["a"])
    assert expected.word == word
    assert expected.seeds == 3
    spec = ClaimSpec(text="b", first={"model.kind": "b"}, second={"model.kind": "a"}, of="error", margin=None)
    (claim,) = judged_claims(results, [spec])
    assert claim.word == VERDICTS[word]
    assert (claim.sides.ratio, claim.interval) == (expected.ratio, expected.interval)
    assert claim.replicates == expected.replicates

    def assert_same(ratio: float | None, low: float | None, high: float | None) -> None:
        assert (ratio, low, high) == pytest.approx((expected.ratio, expected.low, expected.high))

    answers = {answer.label: answer for answer in best(results)}
    assert answers["b"].against_best == Comparison(
        "b", "a", expected.ratio, expected.low, expected.high, expected.word, 3, expected.replicates
    )
    printed = as_object(answers["b"])
    assert_same(printed["ratio"], printed["ratio_low"], printed["ratio_high"])
    assert printed["verdict"] == word

    table = StudyResults.of(results).best().loc["b"]
    assert_same(table["ratio"], table["ratio_low"], table["ratio_high"])
    assert table["verdict"] == word

    (pair,) = compare(two_cells(factor, only="a").results, two_cells(factor, only="b").results).pairs
    assert_same(pair.comparison.ratio, pair.comparison.low, pair.comparison.high)
    assert pair.comparison.word == word
    assert pair.comparison.replicates == expected.replicates

    (sentence,) = [
        sentence for sentence in study_findings(results).sentences if sentence.startswith("Next is b")
    ]
    assert expected.span in sentence
    assert ("undecided" in sentence) == (word == "undecided")

    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", study_page(results).split("<script>")[0]))
    assert sentence in page
    assert f"{expected.ratio:.3g} {expected.low:.3g} to {expected.high:.3g} {word}" in page

    questions = open_questions(results, list(answers.values()), [], [], [])
    asked = [question for question in questions if question.what == "Whether a is better than b"]
    assert len(asked) == (word == "undecided")
    for question in asked:
        assert question.replicates == expected.replicates
        reverse = compare_cells(results, cells["a"], cells["b"])
        assert reverse.span in question.because
