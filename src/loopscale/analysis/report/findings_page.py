"""FINDINGS.md, and the sentences on findings in README.md, from exported records and the files of their studies.

`make findings` writes both. Every verdict comes from the records alone, so no text needs an update by hand.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from loopscale.analysis.answers.claims import JudgedClaim, at_equal_flops
from loopscale.analysis.answers.findings import Findings, OpenQuestion, claim_question
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.words import LAW_COLUMNS, law_name
from loopscale.analysis.recorded.results import Results
from loopscale.analysis.report.headlines import HEADLINES_FILE, INTRODUCTION, TEN_FINDINGS, headline_lines
from loopscale.analysis.report.run_words import over_words, recipe_words, size_ranges
from loopscale.analysis.report.sections import REDUCED, Section, section_of, study_files
from loopscale.core.config import leaves
from loopscale.core.titles import bound_name
from loopscale.errors import CorpusError
from loopscale.notation.files import study_names
from loopscale.notation.mistakes import Mistakes
from loopscale.questions.claim import CLAIM_VERDICTS

if TYPE_CHECKING:  # prices import torch, which the records do without
    from loopscale.foresight.plan import Price

FINDINGS_FILE = "FINDINGS.md"
BEGIN = "<!-- findings: written by `make findings` -->"
END = "<!-- end of the findings -->"
CLAIM_ROW = (
    "claim",
    "verdict",
    "ratio (95 % interval)",
    "at equal FLOPs",
    "learnt",
    "training over",
    "recipe",
    "to decide",
)
LAW_ROW = (
    "law",
    "rate (95 % interval)",
    "theory",
    "verdict",
    "held-out test",
    "training over",
    "recipe",
    "to decide",
)
HELD_OUT = ("held_out_test",)
"""The names of the column of laws with the score of a prediction."""
HEADER = """\
# Findings

`make findings` writes this page from the records in `notebooks/data` and the studies' files. The records are of reduced
studies on two cores.
"""
READING = """\
## How to read the tables

Every section below has the claims and the laws of one study.

- A claim begins with a statement that follows from its sides and its measure. The statement has the verdict. The words
  of the author stand beside it in quotes.
- A claim says that the first side has less of a measure than the second side. It **holds** if the interval of the ratio
  lies below 1, and **does not hold** if the interval lies above 1. Both sides are **level** if the interval lies within
  the margin. Otherwise the claim is **undecided**.
- A claim of equality **holds** if the interval lies within its margin, and **does not hold** if the whole interval lies
  outside.
- Only runs that have left the plateau are compared. If other runs exist, the verdict says **among learnt runs**.
- If learnt runs decide nothing, Fisher's exact test of the counts may show that the first side **learns more often** or
  **less often**. A claim is **not learnt** if the counts decide nothing either, and too few runs have learnt for a
  ratio.
- Verdicts are corrected for the number of claims of the study. The printed interval is the 95 % interval of a claim
  alone.
- The column *at equal FLOPs* has the ratio after equal FLOPs, if equal steps of both nets cost different FLOPs. The
  ratio comes from the histories of the trainings. It is indicative, because the costlier training was not complete
  there.
- A claim over several pairs of cells has the geometric mean of their ratios. If the pairs differ in one size, the
  ratios at its smallest and largest value stand beside this mean. Otherwise *pairs* are the least and greatest ratio.
- The column *learnt* counts the runs that have left the plateau, for each side if some have not. A dash marks a task
  without a known floor.
- The column *training over* counts the runs whose regret has stopped falling. A verdict on falling runs describes nets
  after this many steps. The other runs are unclear. *Not recorded* marks a task without a known floor.
- The column *recipe* has the optimizer and the standard deviation of the initial weights. *Adam, std 0.02* is the
  recipe of AlgoFormer's paper. Only the package's own recipe has Muon.
- The column *held-out test* has the score of a prediction that was made before the runs: the continuous ranked
  probability score of log errors, beside the scores of two guesses. Less is better. The law of a row with *none* made
  no prediction.
- The column *to decide* names the replicates of each cell that would decide the claim, if the ratio stays the same.
  Then follow the missing trainings, and their time on one core.
"""
UNRUN = """\
## What the studies that were not run cost

These studies have the sizes of the papers, or sizes of our own. Hours are those of one NVIDIA H100 that trains one net
at a time in float32, with `training.graph: auto`. They follow from the FLOPs and the operations of each step, at the
speed of nine measured steps. The measured steps agree within 13 %. Where tuned settings change the cost, both ends
stand in the row. The start of a run is not counted. `loopscale plan` prices a study that needs a corpus of its own.
"""


def findings_page(found: Sequence[Section], root: Path) -> str:
    """The whole of FINDINGS.md. Raises Mistakes if the first page names a claim or a law that does not exist."""
    named = {section.name: section for section in found}
    first = headline_lines(root / HEADLINES_FILE, named.__getitem__, list(named))
    parts = [
        [HEADER, f"## {TEN_FINDINGS}\n", INTRODUCTION, *first, ""],
        [READING],
        ["## All studies\n", *overview(found), ""],
        [UNRUN, *unrun_table(root, list(named)), ""],
        *(list(section_lines(section, root)) for section in found),
    ]
    return "\n".join(line for part in parts for line in part) + "\n"


def unrun_table(root: Path, recorded: Sequence[str]) -> Iterator[str]:
    """The trials, the FLOPs and the hours of every study in `studies/` without records, a line for each row.

    Raises Mistakes if a study is not valid.
    """
    prices = {name: price_of(root, name) for name in unrun_studies(root, recorded)}
    yield "| study | trials | FLOPs | hours on one GPU |"
    yield "|---|---|---|---|"
    yield from (price_row(name, price) for name, price in prices.items())
    sums = [sum(price.hours[end] for price in prices.values() if price) for end in (0, 1)]
    yield _row(["all", "–", "–", _span(sums, ".2g")])


def unrun_studies(root: Path, recorded: Sequence[str]) -> list[str]:
    """The studies in `studies/` without records."""
    return [name for name in study_names(root / "studies") if name not in recorded]


def price_of(root: Path, name: str) -> "Price | None":
    """The price of a study on one GPU; `None` for a study whose corpus is not in the repository. Raises Mistakes."""
    # Imported here because studies import torch, which the records do without.
    from loopscale.foresight.plan import study_price
    from loopscale.pricing.speed import H100
    from loopscale.studies.spec import Study

    try:
        return study_price(Study.load(root / "studies" / f"{name}.yaml"), H100)
    except CorpusError:
        return None


def price_row(name: str, price: "Price | None") -> str:
    """The row of a study that was not run."""
    if price is None:
        return _row([name, "–", "–", "by its corpus"])
    return _row([name, f"{price.trials:,}", _span(price.flops, ".2g"), _span(price.hours, ".2g")])


def _span(ends: Sequence[float], form: str) -> str:
    """Both ends, or one if they print alike. Large numbers of hours stand without an exponent."""
    texts = (f"{float(f'{end:{form}}'):,.0f}" if 100 <= end < 1e6 else f"{end:{form}}" for end in ends)
    return " to ".join(dict.fromkeys(texts))


def section_lines(section: Section, root: Path) -> Iterator[str]:
    """The lines of one study in FINDINGS.md."""
    results, findings = section.results, section.findings
    yield f"## {section.name}\n"
    yield f"{results.study['question']}\n"
    if source := results.study.get("source"):
        yield f"Source: {source}.\n"
    runs = sum(len(cell.runs) for cell in results.cells if cell.replicated)
    learnt = f"Learnt: {section.learnt}. Training over: {over_words(section.answering)}."
    yield f"The study has {len(results.cells)} cells with {runs} replicates. {learnt}\n"
    yield from size_table(results, root)
    yield ""
    if findings.claims:
        yield _row(CLAIM_ROW)
        yield "|---" * len(CLAIM_ROW) + "|"
        for claim in findings.claims:
            yield _row(_claim_cells(results, claim))
        yield ""
        yield from (f"{note}\n" for note in dict.fromkeys(_notes(findings.claims)))
    if findings.laws or findings.unfitted:
        yield _row(LAW_ROW)
        yield "|---" * len(LAW_ROW) + "|"
        for law in findings.laws:
            yield _row(_law_cells(findings, law))
        for unfitted in findings.unfitted:
            yield _row([law_name(unfitted), "–", "–", f"no law: {unfitted.because}", "none", "–", "–", "–"])
        yield ""


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def _notes(claims: Sequence[JudgedClaim]) -> Iterator[str]:
    for claim in claims:
        for note in claim.sides.notes:
            yield f"{note}: {sum(note in other.sides.notes for other in claims)} of {len(claims)} claims."


def _claim_cells(results: Results, claim: JudgedClaim) -> list[str]:
    source = f", {claim.spec.source}" if claim.spec.source else ""
    text = f"{claim.statement} (“{claim.text}”{source})"
    cost = cost_in_words(claim_question(results, claim)) if claim.verdict == "undecided" else "–"
    equal = at_equal_flops(results, claim)
    flops = equal.ratio_in_words if equal else "–"
    learnt = claim.learnt_in_words or "–"
    runs = claim.sides.runs
    state = [learnt, over_words(runs), recipe_words(runs)]
    return [text, f"**{claim.verdict_in_words}**", _ratio(claim), flops, *state, cost]


def _ratio(claim: JudgedClaim) -> str:
    if claim.sides.ratio is None:
        return "–"
    interval = claim.interval
    span = f"{interval.low:.3g} to {interval.high:.3g}" if interval else f"no interval: {claim.sides.why}"
    return f"{claim.sides.ratio:.3g} ({span}{_of_pairs(claim)})"


def _of_pairs(claim: JudgedClaim) -> str:
    """The ratios of single pairs: at the smallest and the largest size, or the least and the greatest ratio."""
    if claim.movement:
        (low, first), (high, last) = claim.movement
        return f"; {first:.3g} at {claim.spec.over[0]} {low:g}, {last:.3g} at {high:g}"
    ratios = claim.sides.ratios
    return f"; pairs {min(ratios):.3g} to {max(ratios):.3g}" if ratios else ""


def _law_cells(findings: Findings, law: Law) -> list[str]:
    interval = f"{law.low:.3g} to {law.high:.3g}" if None not in (law.low, law.high) else "no interval"
    theory = "–" if law.predicted is None else f"{bound_name(law.theory)}: {law.predicted:.3g}"
    verdict = f"**{law.judgement.verdict}**, {law.judgement.because}" if law.judgement else "–"
    asked = (
        each
        for each in findings.open
        if each.what == f"Whether {law_name(law)} falls as {bound_name(law.theory)} says"
    )
    cost = next(map(cost_in_words, asked), "–")
    tested = [str(column.value(law)) for column in LAW_COLUMNS if column.names == HELD_OUT]
    return [
        f"{law_name(law)}, {law.form.replace('_', ' ')}",
        f"{law.rate:.3g} ({interval})",
        theory,
        verdict,
        *(tested or ["none"]),
        over_words(law.trainings),
        recipe_words(law.trainings),
        cost,
    ]


def cost_in_words(question: OpenQuestion) -> str:
    """`5 replicates: 6 trainings, 0.4 h`."""
    if question.replicates is None:
        return f"{question.values} values" if question.values else "more than 1,000 replicates"
    more = question.more_trials or 0
    trainings = f"{question.replicates:,} replicates: {more:,} training{'s' * (more != 1)}"
    return trainings if question.seconds is None else f"{trainings}, {question.seconds / 3600:.2g} h"


def size_table(results: Results, root: Path) -> Iterator[str]:
    """The sizes of the recorded nets. For a reduced study, also the sizes of the full study, which is the paper's."""
    recorded = size_ranges([run.settings for cell in results.cells for run in cell.runs])
    rows = {"this study": recorded}
    full = root / "studies" / f"{results.name.replace(REDUCED, '/')}.yaml"
    if REDUCED in results.name and (planned := _planned_ranges(full)):
        rows["paper" if results.study.get("source") else "full study"] = planned
    yield _row(["size", *(path.rpartition(".")[2].replace("_", " ") for path in recorded)])
    yield "|---" * (len(recorded) + 1) + "|"
    for name, ranges in rows.items():
        yield _row([name, *(ranges.get(path, "–") for path in recorded)])


def _planned_ranges(file: Path) -> dict[str, str]:
    """The sizes of a study's cells; empty if the file does not exist."""
    # Imported here because studies import torch, which the records do without.
    from loopscale.studies.spec import Study

    try:
        trials = Study.load(file).layout.trials.values()
    except (Mistakes, CorpusError):
        return {}
    return size_ranges([dict(leaves(trial.model_dump(mode="json"))) for trial in trials])


def readme_total(words: Sequence[str], studies: int) -> str:
    """The number of verdicts of all studies, as sentences."""
    counts = Counter(words)
    total = ", ".join(f"{counts[word]} {word}" for word in CLAIM_VERDICTS if counts[word])
    return f"{studies} studies make {len(words)} claims. The verdicts are: {total}."


def overview(found: Sequence[Section]) -> list[str]:
    """The table of all studies, a line for each row."""
    lines = ["| study | question | claims | laws | runs that have learnt |", "|---|---|---|---|---|"]
    for section in found:
        question = str(section.results.study["question"])
        lines.append(_row([section.link, question, section.counts, section.law_counts, section.learnt]))
    return lines


def readme_section(found: Sequence[Section]) -> str:
    """The sentences on findings in README.md, between their markers."""
    words = [claim.verdict for section in found for claim in section.findings.claims]
    total = readme_total(words, sum(bool(section.findings.claims) for section in found))
    link = f"[{FINDINGS_FILE}]({FINDINGS_FILE})"
    page = f"The page {link} lists every claim and every law, with the interval and the cost of a verdict."
    return "\n".join([BEGIN, "", total, page, "", END])


def with_section(readme: str, section: str) -> str:
    """The text of README.md with another section of findings. Raises ValueError if the markers are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no section of findings; write the lines {BEGIN} and {END}")
    return before + section + after


def write_findings(root: Path) -> None:
    """Write FINDINGS.md and the section of README.md in a checkout of the project."""
    found = [
        section_of(export, root / "studies" / f"{name}.yaml", keep_floors=True)
        for name, export in study_files(root).items()
    ]
    (root / FINDINGS_FILE).write_text(findings_page(found, root), encoding="utf-8")
    readme = root / "README.md"
    readme.write_text(
        with_section(readme.read_text(encoding="utf-8"), readme_section(found)), encoding="utf-8"
    )


if __name__ == "__main__":
    write_findings(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
