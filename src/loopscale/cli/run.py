"""`loopscale run`: start, resume, extend and repair a study. At the end: the answer, standings, laws, problems."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.best import as_object, show_best, show_claims
from loopscale.cli.errors import DONE, FAILED, STOPPED, UsageError
from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    WorkersOption,
    open_store,
    parse_assignments,
    store_place,
)
from loopscale.cli.output import first_few, format_outcomes, plural, say, show_json, show_table, tell
from loopscale.cli.report import write_report

if TYPE_CHECKING:  # see loopscale.cli
    from loopscale.analysis.answers.comparisons import Standing
    from loopscale.analysis.answers.findings import Findings
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
            "claims": [claim.to_dict() for claim in self.findings.claims],
            "laws": [law.to_dict() for law in self.findings.laws],
            "unfitted": [vars(law) for law in self.findings.unfitted],
            "impossible": [vars(result) for result in self.findings.impossible],
            "open": [vars(question) for question in self.findings.open],
            "report": self.report,
            "spent": {"used": self.spent.used, "budget": self.spent.budget, "left": self.spent.left},
        }


def command(
    context: typer.Context,
    study: StudyArgument,
    workers: WorkersOption = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="A running Ray cluster, such as auto. [dim]Default: start Ray on this machine[/dim]",
        ),
    ] = None,
    weight: Annotated[
        float,
        typer.Option(
            "--weight",
            min=1e-3,
            max=1e3,
            help="The study's share of a cluster, relative to the weights of the other studies there.",
        ),
    ] = 1.0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Complete a study: start it, resume it, or train the trials that were added to it.

    A finished trial is never trained again. Ctrl-C stops the study cleanly; the same command resumes it.

    [bold]Example[/bold]  loopscale run quickstart --workers 2 --set replicates=3
    """
    goes_on = f"`loopscale run {study}` goes on from here"
    changes = parse_assignments(overrides)
    try:
        from loopscale.runner.decide.conductor import Interrupted, NoWorkers
        from loopscale.runner.decide.limits import BudgetSpent
        from loopscale.runner.machine import InsufficientResources, require_resources
        from loopscale.runner.progress import show_progress
        from loopscale.runner.run import Unrecorded, run
        from loopscale.studies.spec import Study
        from loopscale.training.storage import StorageUnavailable

        loaded = Study.load(study, changes)
        try:
            require_resources(loaded.resources, address)
        except InsufficientResources as problem:
            raise UsageError(str(problem)) from problem
        place = open_store(context, store, storage, create=True)
        try:
            conductor = run(loaded, place, workers, address, show_progress, weight, tell)
        except Interrupted:
            raise KeyboardInterrupt from None
        except BudgetSpent as problem:
            tell(f"{problem} and {goes_on}")
            raise typer.Exit(STOPPED) from None
        except (NoWorkers, Unrecorded, StorageUnavailable) as problem:
            tell(f"{problem}; {goes_on}")
            raise typer.Exit(FAILED) from None
        summary = _summary(place, conductor)
        if as_json:
            show_json(summary.to_dict())
        else:
            _show(summary, store_place(context, store, storage).store)
        raise typer.Exit(FAILED if summary.outcomes.get("failed") or summary.outcomes.get("lost") else DONE)
    except KeyboardInterrupt:
        tell(f"stopped; {goes_on}")
        raise typer.Exit(STOPPED) from None


def _summary(store: "Store", conductor: "Conductor") -> Summary:
    """Read the answer back from the records, and write the report."""
    from loopscale.analysis.answers.findings import study_findings
    from loopscale.analysis.load import load_results
    from loopscale.records.study_records import Spending

    results = load_results(store, conductor.study.name)
    findings = study_findings(results)
    problems, report = _problems(results, conductor), _report(store, findings)
    spent = conductor.meter.spending if conductor.meter else Spending()
    return Summary(conductor.counts(), problems, findings, report, spent)


def _report(store: "Store", findings: "Findings") -> Path | None:
    """Write the report. If the page cannot be written, warn and go on: the answer is printed anyway."""
    try:
        return write_report(store, findings)[0]
    except UsageError as problem:
        tell(str(problem))
        return None


def _show(summary: Summary, store: str | None) -> None:
    """Print the summary. `store` is that of the options."""
    from loopscale.analysis.laws.law import law_line

    findings = summary.findings
    say(findings.results.study["question"])
    say(findings.sentences[0])
    show_best(findings.results, findings.answers)
    if findings.standings:
        _show_standings(findings.standings)
    show_claims(findings.claims)
    for law in findings.laws:
        say(law_line(law))
    for law in findings.unfitted:
        say(f"law: {law.of} along {law.along}{f' ({law.cell})' if law.cell else ''}: none yet, {law.because}")
    say(format_outcomes(summary.outcomes))
    for problem in summary.problems:
        count = format_outcomes({problem.outcome: len(problem.trials)})
        say(f"{count} ({first_few(problem.trials)}): {problem.reason}")
    for result in findings.impossible[:3]:
        say(result.sentence)
    if len(findings.impossible) > 3:
        say(f"{len(findings.impossible) - 3:,} more results are impossible; the report lists them")
    if findings.open:
        say(f"{plural(len(findings.open), 'question')} open; the report says what would decide them")
    say(f"used {summary.spent}")
    if summary.report:
        say(f"report: {summary.report}")
    say("to browse everything: loopscale ui" + (f" --store {store}" if store else ""))


def _show_standings(standings: Sequence["Standing"]) -> None:
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
    grouped = defaultdict[tuple[str, str], list[str]](list)
    for key, job in jobs.items():
        if job.outcome in WITHOUT_ANSWER:
            reason = _last_line(details.get(key) or conductor.reasons.get(key))
            grouped[job.outcome, reason].append(key)
    for key, reason in conductor.reasons.items():
        if key in jobs and jobs[key].outcome == "finished" and reason:
            grouped["not evaluated", _last_line(reason)].append(key)
    largest_first = sorted(grouped.items(), key=lambda group: -len(group[1]))
    return [Problem(outcome, reason, tuple(trials)) for (outcome, reason), trials in largest_first]


def _last_line(detail: str | None) -> str:
    """The last line of a traceback, which names the error."""
    lines = [line.strip() for line in (detail or "").splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"
