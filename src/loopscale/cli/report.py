"""`loopscale report`: a study's figures, laws and verdicts as one page."""

from pathlib import Path
from typing import Annotated

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument, open_store
from loopscale.cli.output import say, show_json


def command(
    context: typer.Context,
    study: StudyArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Where to write the page. [dim]Default: reports/ in the storage[/dim]",
        ),
    ] = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Write figures, laws and best configurations as one page that needs no network; also attached in MLflow.

    [bold]Example[/bold]  loopscale report quickstart --out quickstart.html
    """
    from loopscale.analysis.answers.findings import study_findings
    from loopscale.analysis.answers.pareto import stretches
    from loopscale.analysis.figures.base import Reported
    from loopscale.interface.recorded import recorded
    from loopscale.interface.reports import check_named, write_report

    if out is not None:
        check_named(out)
    place = open_store(context, store, storage)
    results = recorded(place, study)
    findings = study_findings(results)
    file, attached = write_report(place, findings, out)
    if as_json:
        claims = [claim.to_dict() for claim in findings.claims]
        pareto = [vars(stretch) for front in Reported(results).fronts for stretch in stretches(front)]
        show_json({"file": file, "attached": attached, "claims": claims, "pareto": pareto})
    else:
        say(f"the report is {file}" + (", and report.html of the study in the MLflow UI" if attached else ""))
