"""The first page of FINDINGS.md: ten findings for people who do not know the studies.

`notebooks/headlines.yaml` chooses a claim or a law for each finding and names its sides in plain words. Figures,
intervals, verdicts and sizes come from the records.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import StringConstraints, ValidationError, model_validator

from loopscale.analysis.answers.claims import JudgedClaim
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.words import law_name
from loopscale.analysis.recorded.learning import NOT_LEARNT
from loopscale.analysis.report.run_words import over_words, recipe_words, size_words
from loopscale.analysis.report.sections import Section
from loopscale.core.config import Config
from loopscale.core.titles import bound_name
from loopscale.notation.files import read_yaml
from loopscale.notation.mistakes import Fault, Mistakes, Place, one_of, quoted
from loopscale.notation.settings import validation_faults

HEADLINES_FILE = "notebooks/headlines.yaml"
COUNT = 10
"""The number of findings on the first page."""
TEN_FINDINGS = "Ten findings"
INTRODUCTION = """\
All nets here are small, so each finding names its sizes. *Regret* is the error minus the least possible error. A ratio
below 1 says that the first net has less. The interval covers the true value in 95 % of such studies. The claim stands
in quotes with its verdict. `notebooks/headlines.yaml` chooses the claims, and the records give the figures.
"""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class LawChoice(Config):
    """A law of a study, by the words of its row in FINDINGS.md."""

    of: Text
    along: Text
    theory: Text
    """The kind of the bound that judges the law."""
    cell: str = ""
    """The settings that the observations share, as in `condition=16`."""


class Headline(Config):
    """One finding of the first page: a claim with names of its sides, or a law with the name of its axis."""

    topic: Text
    study: Text
    where: Text
    """The opening of the sentence, such as `On linear regression`."""
    measure: Text
    """The measure in plain words, such as `regret`."""
    claim: Text | None = None
    """The text of a claim in the study's file."""
    first: Text | None = None
    second: Text | None = None
    verb: Text = "has"
    law: LawChoice | None = None
    axis: Text | None = None
    """One step on the axis of the law in plain words, such as `loop`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.claim is None) == (self.law is None):
            raise ValueError("a finding is one claim or one law; write claim: or law:")
        if self.claim is not None and not (self.first and self.second):
            raise ValueError("a claim has two sides; write first: and second: in plain words")
        if self.law is not None and not self.axis:
            raise ValueError("a law has an axis; write axis: in plain words")
        return self


class _Headlines(Config):
    headlines: tuple[Headline, ...]


def read_headlines(file: Path) -> tuple[Headline, ...]:
    """The findings that a file chooses. Raises Mistakes."""
    source = read_yaml(file)
    try:
        chosen = _Headlines.model_validate(source.tree).headlines
    except ValidationError as problem:
        faults = validation_faults(problem, _Headlines, source.tree)
        raise Mistakes(map(source.mistake, faults)) from None
    if len(chosen) != COUNT:
        raise Mistakes.one(str(file), f"{len(chosen)} findings are chosen", f"choose {COUNT}", 1)
    return chosen


def headline_lines(file: Path, section: Callable[[str], Section], studies: Sequence[str]) -> list[str]:
    """The lines of the first page. Raises Mistakes if a study, a claim or a law is missing.

    Parameters
    ----------
    section
        The findings of a study, by its name.
    studies
        The names of the studies with records.
    """
    chosen, source = read_headlines(file), read_yaml(file)
    faults, lines = list[Fault](), list[str]()
    for index, headline in enumerate(chosen):
        fault = _fault(headline, ("headlines", index), section, studies)
        if fault:
            faults.append(fault)
            continue
        lines += headline_item(index + 1, headline, section(headline.study))
    if faults:
        raise Mistakes(map(source.mistake, faults))
    return lines


def _fault(
    headline: Headline, place: Place, section: Callable[[str], Section], studies: Sequence[str]
) -> Fault | None:
    """The mistake in the choice of a study, a claim or a law; None without one."""
    if headline.study not in studies:
        what = f"{quoted(headline.study)} has no records in notebooks/data"
        return Fault((*place, "study"), what, one_of(headline.study, studies))
    findings = section(headline.study).findings
    if headline.claim is not None:
        texts = [claim.text for claim in findings.claims]
        if headline.claim in texts:
            return None
        what = f"{headline.study} has no claim {quoted(headline.claim)}"
        return Fault((*place, "claim"), what, one_of(headline.claim, texts))
    if len(_laws(headline, findings.laws)) == 1:
        return None
    known = dict.fromkeys(f"{law_name(law)}, {law.theory}" for law in findings.laws if law.theory)
    what = f"{headline.study} has {len(_laws(headline, findings.laws))} such laws"
    return Fault((*place, "law"), what, f"choose one of {'; '.join(known)}" if known else "choose a claim")


def _laws(headline: Headline, laws: Sequence[Law]) -> list[Law]:
    choice = headline.law
    assert choice
    return [
        law
        for law in laws
        if (law.of, law.along, law.cell, law.theory) == (choice.of, choice.along, choice.cell, choice.theory)
    ]


def headline_item(number: int, headline: Headline, section: Section) -> Iterator[str]:
    """The finding as an item of a list, and below it the study, the sizes, the recipe and the learning."""
    if headline.claim is not None:
        claim = next(each for each in section.findings.claims if each.text == headline.claim)
        sentences, runs = claim_sentences(headline, claim), claim.sides.runs
    else:
        (law,) = _laws(headline, section.findings.laws)
        sentences, runs = law_sentences(headline, law), law.trainings
    yield f"{number}. **{headline.topic}.** {' '.join(sentences)}"
    yield f"    - Study {section.link}: {size_words(runs)}."
    yield f"    - Recipe: {recipe_words(runs)}. Training over: {over_words(runs)}."


def claim_sentences(headline: Headline, claim: JudgedClaim) -> list[str]:
    """The figure of a claim with its interval, and the verdict."""
    verdict = f"“{claim.text}”: **{claim.verdict_in_words}**."
    counts = claim.sides.learnt_words
    if claim.sides.ratio is None or claim.verdict in (NOT_LEARNT, "learns more often", "learns less often"):
        learnt = f"{headline.where}, the counts of learnt runs are {counts}"
        return [f"{learnt}: {headline.first}, then {headline.second}.", verdict]
    interval = claim.interval
    span = (
        f"95 % interval {interval.low:.3g} to {interval.high:.3g}"
        if interval
        else f"no interval: {claim.sides.why}"
    )
    times = f"{claim.sides.ratio:.3g} times the {headline.measure} of {headline.second}"
    return [f"{headline.where}, {headline.first} {headline.verb} {times} ({span}).", verdict]


def law_sentences(headline: Headline, law: Law) -> list[str]:
    """The rate of a law with its interval, the rate of theory, the verdict and the held-out test."""
    axis = str(headline.axis)
    form = type(law.shape)
    measured = form.worded(axis, axis, law.rate, law.low, law.high)
    sentences = [f"{headline.where}, the {headline.measure} {measured}."]
    if law.predicted is not None:
        sentences.append(f"Theory ({bound_name(law.theory)}) {form.worded(axis, axis, law.predicted)}.")
    if law.judgement:
        sentences.append(f"Verdict: **{law.judgement.verdict}**.")
    for value in law.predictions:
        if not value.score:
            continue
        ends = (value.prediction.low, value.prediction.centre, value.prediction.high)
        low, centre, high = (f"{math.exp(end):.3g}" for end in ends)
        when = "before these runs" if value.foretold else "afterwards"
        sentences.append(
            f"At {value.at:g}, the law predicted {centre} ({low} to {high}) {when}, and the runs gave {value.came}:"
            f" a {value.verdict}."
            if value.verdict in ("hit", "miss")
            else f"At {value.at:g}, the prediction is {value.verdict}."
        )
    return sentences
