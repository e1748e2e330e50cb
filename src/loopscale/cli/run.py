"""`loopscale run`: start, resume, extend and repair a study. At the end: the answer, problems, what is open."""

import shlex
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

import loopscale
from loopscale.cli.errors import DONE, FAILED, STOPPED, UsageError
from loopscale.cli.options import (
    TINY_STORE,
    JsonOption,
    RateOption,
    SetOption,
    StorageOption,
    StoreOption,
    StorePlace,
    StudyArgument,
    TinyOption,
    WorkersOption,
    check_rate,
    open_store,
    parse_assignments,
    store_place,
)
from loopscale.cli.output import (
    first_few,
    format_outcomes,
    plural,
    say,
    say_folded,
    show_json,
    tell,
)
from loopscale.cli.watch import PortOption
from loopscale.interface import types

CLAIM_LINES = 3
"""Lines on claims at the end of a run."""
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that stop a study cleanly: Ctrl-C, the end of a job, a closed terminal."""


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
    rate: RateOption = None,
    again: Annotated[
        list[str] | None,
        typer.Option(
            "--again", metavar="TRIAL", help="Train a trial again that `loopscale stop` has stopped."
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Show the run as a live page in the browser, until the run is over."),
    ] = False,
    port: PortOption = None,
    overrides: SetOption = None,
    tiny: TinyOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Complete a study: start it, resume it, or train the trials that were added to it.

    A finished trial is never trained again. Ctrl-C stops the study cleanly; the same command resumes it.

    [bold]Example[/bold]  loopscale run quickstart --workers 2 --set replicates=3
    """
    changes = parse_assignments(overrides)
    check_rate(rate)
    if port and not watch:
        raise UsageError("--port is the port of the live page; add --watch, or leave --port out")
    from loopscale.interface import running

    words: tuple[str, ...] = (study,)
    places = [f"--{name}={value}" for name, value in (("store", store), ("storage", storage)) if value]
    try:
        from loopscale.records.study_records import trial_named, withdraw_stop
        from loopscale.studies.spec import Study

        loaded = Study.load(study, changes)
        place = store_place(context, store, storage)
        if tiny:
            loaded, place = loaded.tiny, StorePlace(store or TINY_STORE, storage)
        words = loaded.words
        for beginning in again or ():
            records = open_store(context, store, storage, create=True)
            withdraw_stop(records, loaded.name, trial_named(records, loaded.name, beginning).key)
        with _live_page(place, port) if watch else nullcontext() as page:
            summary = running.run(
                loaded,
                place.store,
                [_display(), page] if page else None,
                storage=place.storage,
                workers=workers,
                address=address,
                weight=weight,
                rate=rate,
                signals=STOPPING,
            )
            report = _report(summary.findings)
            if page:
                page.close(report)
        if as_json:
            show_json(_document(summary, report))
        else:
            _show(summary, report, place)
            if tiny:
                say(f"This was the tiny form of {loaded.name}: everything ran, and its numbers mean nothing.")
        raise typer.Exit(FAILED if summary.failed else DONE)
    except KeyboardInterrupt:
        tell(f"stopped; `{running.run_command((*words, *places))}` goes on from here")
        raise typer.Exit(STOPPED) from None


def _live_page(place: StorePlace, port: int | None) -> "types.LivePage":
    """The live page of this run. Raises UsageError if the port is not free."""
    from loopscale.live.driver_page import LivePage

    page = LivePage(place.store, place.storage, port)
    tell(f"the live page of this run is at {page.url}")
    return page


def _display() -> "types.ProgressDisplay":
    """The display that a run without a live page has too."""
    from loopscale.runner.progress import progress_display

    return progress_display()


def _document(summary: "loopscale.RunSummary", report: Path | None) -> dict[str, Any]:
    from loopscale.interface.answers import as_object

    findings = summary.findings
    return {
        "study": findings.results.name,
        "outcomes": dict(summary.outcomes),
        "baselines": dict(summary.baselines),
        "problems": [vars(problem) for problem in summary.problems],
        "answer": findings.sentences,
        "best": [as_object(row) for row in findings.answers],
        "against": [standing.to_dict() for standing in findings.standings],
        "matched_steps": [row.to_dict() for row in findings.matched],
        "claims": [claim.to_dict() for claim in findings.claims],
        "laws": [law.to_dict() for law in findings.laws],
        "unfitted": [vars(law) for law in findings.unfitted],
        "impossible": [vars(result) for result in findings.impossible],
        "ended_early": list(summary.ended_early),
        "open": [vars(question) for question in findings.open],
        "report": report,
        "spent": {"used": summary.spent.used, "budget": summary.spent.budget, "left": summary.spent.left},
    }


def _report(findings: "types.Findings") -> Path | None:
    """Write the report. If the page cannot be written, warn and go on: the answer is printed anyway."""
    from loopscale.interface.reports import write_report

    store = findings.results.store
    assert store  # a run has records
    try:
        return write_report(store, findings)[0]
    except UsageError as problem:
        tell(str(problem))
        return None


def _show(summary: "loopscale.RunSummary", report: Path | None, place: StorePlace) -> None:
    """Print the answer, the claims, what is open, and where the report is. `best` prints the tables."""
    from loopscale.analysis.answers.claims import count_words
    from loopscale.analysis.answers.summary import answer_sentences, first_open

    findings, name = summary.findings, summary.findings.results.name
    for sentence in answer_sentences(findings):
        say_folded(sentence)
    listed = len(findings.claims) if len(findings.claims) <= CLAIM_LINES else CLAIM_LINES - 1
    for claim in findings.claims[:listed]:
        say_folded(f"{claim.verdict_in_words}: {claim.statement}; {_ratio(claim)}{_decided(claim)}")
    if others := findings.claims[listed:]:
        say_folded(f"{plural(len(others), 'more claim')}: {count_words(others)}")
    ended = {"trials": summary.outcomes, "baselines": summary.baselines}
    counted = [f"{what}: {format_outcomes(counts)}" for what, counts in ended.items() if counts]
    say_folded("; ".join([*counted, f"used {summary.spent}"]))
    for line in summary.ended_early:
        say_folded(line)
    for problem in summary.problems:
        count = format_outcomes({problem.outcome: len(problem.trials)})
        say_folded(f"{count} ({first_few(problem.trials)}): {problem.reason}")
    for result in findings.impossible[:1]:
        more = len(findings.impossible) - 1
        say_folded(result.sentence + (f" {plural(more, 'more result')} of this kind" if more else ""))
    if findings.open:
        say_folded(first_open(findings))
    if report:
        say(f"report: {report}")
    options = "".join(f" --{option} {shlex.quote(value)}" for option, value in vars(place).items() if value)
    say(f"tables: loopscale best {name} --full{options}; trials: loopscale ui {name}{options}")


def _ratio(claim: "types.JudgedClaim") -> str:
    """The ratio of a claim in words, or that there is none."""
    return claim.ratio_in_words if claim.sides.ratio is None else f"ratio {claim.ratio_in_words}"


def _decided(claim: "types.JudgedClaim") -> str:
    """How the looks ended a claim; empty for a study without looks."""
    return f"; {claim.decision.end}" if claim.decision else ""
