"""The sections of FINDINGS.md: the findings of each study with records in `notebooks/data`."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from loopscale.analysis.answers.findings import Findings, study_findings
from loopscale.analysis.recorded.floors import FLOORS_FILE
from loopscale.analysis.recorded.load import find_results
from loopscale.analysis.recorded.results import Results, TrialResult
from loopscale.questions.claim import CLAIM_VERDICTS
from loopscale.records.stores.exported import ABOUT
from loopscale.records.stores.opening import open_store

REDUCED = "/reduced/"
"""The part of a study's name that marks the small version of the study without this part."""


@dataclass(frozen=True)
class Section:
    """The findings of one study."""

    name: str
    findings: Findings

    @property
    def results(self) -> Results:
        return self.findings.results

    @property
    def counts(self) -> str:
        """The number of claims with each verdict: `2 hold, 1 undecided`."""
        counts = Counter(claim.verdict for claim in self.findings.claims)
        return ", ".join(f"{counts[word]} {word}" for word in CLAIM_VERDICTS if counts[word]) or "–"

    @property
    def law_counts(self) -> str:
        """The number of laws with each verdict: `1 agrees, 2 undecided`."""
        words = [law.judgement.verdict for law in self.findings.laws if law.judgement]
        counts = ", ".join(f"{count} {word}" for word, count in sorted(Counter(words).items()))
        return counts or "–"

    @property
    def learnt(self) -> str:
        """The runs that answer and have learnt: `25 of 27`."""
        learnt = self.results.learnt
        return f"{learnt.emerged} of {learnt.of}" if learnt.of else "–"

    @property
    def answering(self) -> list[TrialResult]:
        """The runs that answer."""
        return [run for cell in self.results.answered for run in cell.runs]

    @property
    def link(self) -> str:
        """The link to the section on the same page."""
        anchor = self.name.replace("/", "").lower()  # GitHub's anchor of the heading
        return f"[{self.name.replace(REDUCED, '/')}](#{anchor})"


def study_files(root: Path) -> dict[str, Path]:
    """The exports in `notebooks/data` by the names of their studies, sorted."""
    exports = [about.parent for about in (root / "notebooks" / "data").glob(f"*/{ABOUT}")]
    named = [(name, export) for export in exports for name in open_store(export).experiments().values()]
    return dict(sorted(named))


def section_of(export: Path, file: Path, keep_floors: bool = False) -> Section:
    """The findings of one study, with the claims of its file.

    `keep_floors` writes floors that had to be computed beside the records, so that they are not computed again.
    """
    results = find_results(str(file), export)
    if keep_floors:
        results.floors.keep = export / FLOORS_FILE
    return Section(results.name, study_findings(results))
