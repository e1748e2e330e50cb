"""The choice of the ten findings, and the words for sizes, recipes and the end of trainings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.analysis.report.headlines import (
    HEADLINES_FILE,
    Headline,
    claim_sentences,
    headline_lines,
    law_sentences,
    read_headlines,
)
from loopscale.analysis.report.run_words import over_words, recipe_words, size_words
from loopscale.analysis.report.sections import Section, section_of, study_files
from loopscale.notation.mistakes import Mistakes

ROOT = Path(__file__).parents[3]
FILES = study_files(ROOT)
CHOSEN: list[dict[str, Any]] = yaml.safe_load((ROOT / HEADLINES_FILE).read_text(encoding="utf-8"))[
    "headlines"
]


@pytest.fixture(scope="module")
def quickstart() -> Section:
    return section_of(FILES["quickstart"], ROOT / "studies" / "quickstart.yaml")


def written(folder: Path, first: dict[str, Any]) -> Path:
    """A file whose first finding has other keys. All findings are of the quickstart."""
    others = [next(each for each in CHOSEN if each["study"] == "quickstart")] * 9
    file = folder / "headlines.yaml"
    file.write_text(yaml.safe_dump({"headlines": [first, *others]}, allow_unicode=True), encoding="utf-8")
    return file


def changed(**changes: Any) -> dict[str, Any]:
    of_quickstart = next(each for each in CHOSEN if each["study"] == "quickstart")
    return {name: value for name, value in (of_quickstart | changes).items() if value is not None}


LAW = {"of": "excess", "along": "loop", "cell": "model=looped", "theory": "first_order_best"}


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (changed(claim="AlgoFormer is better than GPT-3"), "quickstart has no claim 'AlgoFormer is better"),
        (changed(study="quickstat"), "'quickstat' has no records in notebooks/data; "),
        (changed(claim=None, law=LAW | {"along": "hoop"}, axis="loop"), "quickstart has 0 such laws; choose"),
        (changed(claim=None), "a finding is one claim or one law"),
        (changed(second=None), "write first: and second: in plain words"),
        (changed(claim=None, law=LAW), "write axis: in plain words"),
        (changed(axes="loop"), "no setting 'axes'"),
    ],
)
def test_a_wrong_choice_is_one_line_with_its_place(
    tmp_path: Path, quickstart: Section, first: dict[str, Any], words: str
):
    file = written(tmp_path, first)
    with pytest.raises(Mistakes) as caught:
        headline_lines(file, lambda _: quickstart, list(FILES))
    assert words in str(caught.value)
    assert f"{file}:" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_nine_findings_are_refused(tmp_path: Path):
    file = tmp_path / "headlines.yaml"
    file.write_text(yaml.safe_dump({"headlines": CHOSEN[:9]}), encoding="utf-8")
    with pytest.raises(Mistakes, match="9 findings are chosen; choose 10"):
        read_headlines(file)


def test_a_claim_has_its_ratio_interval_and_verdict(quickstart: Section):
    headline = Headline.model_validate(changed())
    claim = next(each for each in quickstart.findings.claims if each.text == headline.claim)
    assert claim.interval
    figure, verdict = claim_sentences(headline, claim)
    assert f"AlgoFormer has {claim.sides.ratio:.3g} times the regret of GPT-2" in figure
    assert f"(95 % interval {claim.interval.low:.3g} to {claim.interval.high:.3g})" in figure
    assert verdict.endswith(f"**{claim.verdict_in_words}**.")
    plateau = replace(claim, verdict="not learnt")
    assert "counts of learnt runs" in claim_sentences(headline, plateau)[0]


def test_a_law_has_its_rate_theory_and_verdict(quickstart: Section):
    law = next(each for each in quickstart.findings.laws if each.theory and each.judgement)
    headline = Headline.model_validate(
        changed(claim=None, law=LAW, axis="loop", where="In the plane", measure="excess error")
    )
    measured, theory, verdict = law_sentences(headline, law)
    assert measured.startswith("In the plane, the excess error falls by a factor of ")
    assert theory.startswith("Theory (")
    assert " per loop" in theory
    assert law.judgement
    assert verdict == f"Verdict: **{law.judgement.verdict}**."


def test_runs_tell_their_sizes_recipe_and_whether_training_is_over(quickstart: Section):
    runs = quickstart.answering
    assert "dim 2, points 8, width 32" in size_words(runs)
    assert recipe_words(runs) == "Muon, std 0.1"
    learnt = quickstart.results.learnt
    assert over_words(runs) == f"{learnt.over} of {learnt.emerged}, {learnt.falling} still falling"
    assert (size_words([]), recipe_words([]), over_words([])) == ("not recorded",) * 3


def test_lista_has_initial_weights_of_its_own():
    noise = section_of(
        FILES["sparse_recovery/reduced/noise"], ROOT / "studies/sparse_recovery/reduced/noise.yaml"
    )
    lista = [run for run in noise.answering if run.settings["model.kind"] == "lista"]
    assert recipe_words(lista) == "Adam, own weights"
