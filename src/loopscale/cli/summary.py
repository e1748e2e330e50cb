"""What `loopscale run` says at the end: the answer, where it stands, the laws, and what went wrong."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopscale.cli.best import as_object, show_best
from loopscale.cli.laws import line
from loopscale.cli.output import counted, interval, say, show_table, tell
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.analysis.answers.best import Standing
    from loopscale.analysis.answers.findings import Findings
    from loopscale.analysis.results import Reading
    from loopscale.records.stores.base import Store
    from loopscale.records.study_run import Spending
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
    study: Mapping[str, Any]
    outcomes: Mapping[str, int]
    problems: Sequence[Problem]
    findings: "Findings"
    report: Path | None
    spent: "Spending"

    def to_dict(self) -> dict[str, Any]:
        return {
            "study": self.study["name"],
            "outcomes": dict(self.outcomes),
            "problems": [vars(problem) for problem in self.problems],
            "answer": self.findings.sentences,
            "best": [as_object(row) for row in self.findings.answers],
            "against": [standing.to_dict() for standing in self.findings.standings],
            "laws": [law.to_dict() for law in self.findings.laws],
            "unfitted": [vars(law) for law in self.findings.missing],
            "impossible": [vars(one) for one in self.findings.impossible],
            "open": [vars(one) for one in self.findings.needed],
            "report": self.report,
            "spent": {"used": self.spent.used, "budget": self.spent.budget, "left": self.spent.left},
        }


def summary(store: "Store", conductor: "Conductor") -> Summary:
    """Read back from the records what was answered, and write the report."""
    from loopscale.analysis.answers.findings import find
    from loopscale.analysis.results import read
    from loopscale.records.study_run import Spending

    found = read(store, conductor.study.name)
    findings = find(found.study, found.trials, found.curves, found.history)
    return Summary(
        found.study,
        conductor.counts(),
        _problems(found, conductor),
        findings,
        _report(store, found, findings),
        conductor.meter.spending if conductor.meter else Spending(),
    )


def _report(store: "Store", found: "Reading", findings: "Findings") -> Path | None:
    """A page that cannot be written is no reason to keep the answer back."""
    from loopscale.cli.report import write_report

    try:
        return write_report(store, found, findings=findings)[0]
    except Wrong as problem:
        tell(str(problem))
        return None


def summarised(found: Summary, ui: str) -> None:
    """Print it."""
    findings = found.findings
    say(found.study["question"])
    say(findings.sentences[0])
    show_best(findings.answers, found.study)
    if findings.standings:
        show_against(findings.standings)
    for law in findings.laws:
        say(line(law))
    for law in findings.missing:
        say(f"law: {law.of} along {law.along}{f' ({law.cell})' if law.cell else ''}: none yet, {law.because}")
    say(", ".join(f"{number:,} {outcome.replace('_', ' ')}" for outcome, number in found.outcomes.items()))
    for problem in found.problems:
        which = ", ".join(problem.trials[:3]) + (", ..." if len(problem.trials) > 3 else "")
        say(f"{len(problem.trials):,} {problem.outcome.replace('_', ' ')} ({which}): {problem.reason}")
    for one in findings.impossible[:3]:
        say(one.text)
    if len(findings.impossible) > 3:
        say(f"{len(findings.impossible) - 3:,} more results cannot be; the report has them")
    if findings.needed:
        say(f"{counted(len(findings.needed), 'question')} open; the report says what an answer would take")
    say(f"used {found.spent}")
    if found.report:
        say(f"report: {found.report}")
    say(f"to browse everything: {ui}")


def show_against(standings: Sequence["Standing"]) -> None:
    """Each cell's error over that of every classical algorithm after as many steps."""
    solvers = list(dict.fromkeys(standing.baseline for standing in standings))
    rows: dict[str, dict[str, Standing]] = {}
    for standing in standings:
        rows.setdefault(standing.label, {})[standing.baseline] = standing
    exact = "; `exact`: its error is rounding" if any(standing.exact for standing in standings) else ""
    say(f"Error over that of a classical algorithm after as many steps, on the same prompts{exact}:")
    show_table(
        ["cell", *solvers],
        ([label, *(_ratio(mine.get(solver)) for solver in solvers)] for label, mine in rows.items()),
    )


def _ratio(standing: "Standing | None") -> str | None:
    if standing is None:
        return None
    if standing.exact:
        return "exact"
    spread = interval(standing.low, standing.high)
    return f"{standing.ratio:.3g}" + (f" ({spread})" if spread else "")


def _problems(found: "Reading", conductor: "Conductor") -> list[Problem]:
    """Why trials of the study as it now is have no answer, the same reasons together."""
    mine = {job.key: job for job in conductor.jobs()}
    details = dict(zip(found.trials["trial"], found.trials["detail"], strict=True))
    reasons = [
        (job.outcome, _last_line(details.get(key) or conductor.reasons.get(key)), key)
        for key, job in mine.items()
        if job.outcome in WITHOUT_ANSWER
    ]
    reasons += [
        ("not evaluated", _last_line(reason), key)
        for key, reason in conductor.reasons.items()
        if key in mine and mine[key].outcome == "finished" and reason
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
    """Of a traceback, the line that says what it was."""
    lines = [line.strip() for line in (detail or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"
