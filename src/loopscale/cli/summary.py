"""The end of `loopscale run`: the answer, standings, laws, and problems."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscale.cli.best import as_object, show_best
from loopscale.cli.errors import UsageError
from loopscale.cli.output import plural, say, show_table, tell

if TYPE_CHECKING:
    from loopscale.analysis.answers.findings import Findings
    from loopscale.analysis.answers.standings import Standing
    from loopscale.analysis.results import Results
    from loopscale.records.stores.base import Store
    from loopscale.records.study_records import Spending
    from loopscale.runner.decide.conductor import Conductor

WITHOUT_ANSWER = ("failed", "lost", "diverged", "out_of_memory")


@dataclass(frozen=True)
class Problem:
    """Trials that ended the same way for the same reason."""

    outcome: str
    reason: str
    trials: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    outcomes: Mapping[str, int]
    problems: Sequence[Problem]
    findings: "Findings"
    report: Path | None
    spent: "Spending"

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.findings.results.name,
            "outcomes": dict(self.outcomes),
            "problems": [vars(problem) for problem in self.problems],
            "answer": self.findings.sentences,
            "best": [as_object(row) for row in self.findings.answers],
            "against": [standing.to_dict() for standing in self.findings.standings],
            "laws": [law.to_dict() for law in self.findings.laws],
            "unfitted": [vars(law) for law in self.findings.unfitted],
            "impossible": [vars(result) for result in self.findings.impossible],
            "open": [vars(question) for question in self.findings.open],
            "report": self.report,
            "spent": {"used": self.spent.used, "budget": self.spent.budget, "left": self.spent.left},
        }


def summary(store: "Store", conductor: "Conductor") -> Summary:
    """Read the answer back from the records, and write the report."""
    from loopscale.analysis.answers.findings import study_findings
    from loopscale.analysis.load import load_results
    from loopscale.records.study_records import Spending

    results = load_results(store, conductor.study.name)
    findings = study_findings(results)
    return Summary(
        conductor.counts(),
        _problems(results, conductor),
        findings,
        _report(store, findings),
        conductor.meter.spending if conductor.meter else Spending(),
    )


def _report(store: "Store", findings: "Findings") -> Path | None:
    """Write the report. If the page cannot be written, warn and go on: the answer is printed anyway."""
    from loopscale.cli.report import write_report

    try:
        return write_report(store, findings)[0]
    except UsageError as problem:
        tell(str(problem))
        return None


def summarised(summary: Summary, ui: str) -> None:
    """Print the summary."""
    from loopscale.analysis.laws.law import law_line

    findings = summary.findings
    say(findings.results.study["question"])
    say(findings.sentences[0])
    show_best(findings.results, findings.answers)
    if findings.standings:
        show_standings(findings.standings)
    for law in findings.laws:
        say(law_line(law))
    for law in findings.unfitted:
        say(f"law: {law.of} along {law.along}{f' ({law.cell})' if law.cell else ''}: none yet, {law.because}")
    say(", ".join(f"{number:,} {outcome.replace('_', ' ')}" for outcome, number in summary.outcomes.items()))
    for problem in summary.problems:
        which = ", ".join(problem.trials[:3]) + (", ..." if len(problem.trials) > 3 else "")
        say(f"{len(problem.trials):,} {problem.outcome.replace('_', ' ')} ({which}): {problem.reason}")
    for result in findings.impossible[:3]:
        say(result.sentence)
    if len(findings.impossible) > 3:
        say(f"{len(findings.impossible) - 3:,} more results are impossible; the report lists them")
    if findings.open:
        say(f"{plural(len(findings.open), 'question')} open; the report says what would decide them")
    say(f"used {summary.spent}")
    if summary.report:
        say(f"report: {summary.report}")
    say(f"to browse everything: {ui}")


def show_standings(standings: Sequence["Standing"]) -> None:
    """Each cell's error over that of every classical algorithm after as many steps."""
    solvers = list(dict.fromkeys(standing.baseline for standing in standings))
    rows: dict[str, dict[str, Standing]] = {}
    for standing in standings:
        rows.setdefault(standing.label, {})[standing.baseline] = standing
    exact = "; `exact`: its error is rounding" if any(standing.exact for standing in standings) else ""
    say(f"Error over that of a classical algorithm after as many steps, on the same prompts{exact}:")
    show_table(
        ["cell", *solvers],
        ([label, *(_ratio(beside.get(solver)) for solver in solvers)] for label, beside in rows.items()),
    )


def _ratio(standing: "Standing | None") -> str | None:
    if standing is None:
        return None
    if standing.exact:
        return "exact"
    interval = standing.comparison.interval
    return f"{standing.ratio:.3g}" + (f" ({interval})" if interval else "")


def _problems(results: "Results", conductor: "Conductor") -> list[Problem]:
    """Why trials of the present study have no answer, grouped by reason."""
    jobs = {job.key: job for job in conductor.jobs()}
    details = {trial.trial: trial.detail for trial in results.everything}
    reasons = [
        (job.outcome, _last_line(details.get(key) or conductor.reasons.get(key)), key)
        for key, job in jobs.items()
        if job.outcome in WITHOUT_ANSWER
    ]
    reasons += [
        ("not evaluated", _last_line(reason), key)
        for key, reason in conductor.reasons.items()
        if key in jobs and jobs[key].outcome == "finished" and reason
    ]
    return _grouped(reasons)


def _grouped(reasons: Iterable[tuple[str, str, str]]) -> list[Problem]:
    reasons = list(reasons)
    counts = Counter((outcome, reason) for outcome, reason, _ in reasons)
    return [
        Problem(outcome, reason, tuple(key for *why, key in reasons if tuple(why) == (outcome, reason)))
        for (outcome, reason), _ in counts.most_common()
    ]


def _last_line(detail: str | None) -> str:
    """The last line of a traceback, which names the error."""
    lines = [line.strip() for line in (detail or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"
