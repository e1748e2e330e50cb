"""`loopscale report`: a study's figures, laws and verdicts as one page."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument, opened
from loopscale.cli.output import say, show_json, tell
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.analysis.reading import Reading
    from loopscale.records.store import Store


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
    from loopscale.analysis.reading import read
    from loopscale.studies.find import recorded_name

    place = opened(context, store, storage)
    file, attached = write_report(place, read(place, recorded_name(study)), out)
    if as_json:
        show_json({"file": file, "attached": attached})
    else:
        say(f"the report is {file}" + (", and report.html of the study in the MLflow UI" if attached else ""))


def write_report(store: "Store", found: "Reading", out: Path | None = None) -> tuple[Path, bool]:
    """Write the page, and attach it to the study's parent run, if there is one: where it lies, and whether it was.

    Raises Wrong where the file cannot be written. Of a store that takes no artifact it only warns.
    """
    from loopscale.analysis.report import report

    name = found.study["name"]
    page = report(found.study, found.trials, found.curves, found.history, found.provenance).encode()
    file = out or store.storage / "reports" / f"{name}.html"
    if os.path.isdir(file):
        raise Wrong(f"cannot write {file} (it is a folder); give a file with --out")
    if out is None and not file.resolve().is_relative_to((store.storage / "reports").resolve()):
        raise Wrong(
            f"the study's name {name} leads out of {store.storage / 'reports'}; give a file with --out"
        )
    part = file.with_name(f"{file.name}.part")
    try:
        if out is None:
            file.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(page)
        os.replace(part, file)
    except OSError as problem:
        raise Wrong(f"cannot write {file} ({problem.strerror}); give another file with --out") from problem
    return file, not store.exported and _attach(store, name, page)


def _attach(store: "Store", study: str, page: bytes) -> bool:
    from loopscale.records.notes import REPORT, STUDY, Note
    from loopscale.records.write import Writer

    with Writer(store, study, {}) as writer:
        writer.write(Note(STUDY, artifacts=((REPORT, page),)))
        if writer.flush(60) and not writer.refused:
            return True
        reason = writer.refused[0][1] if writer.refused else "it does not answer"
    tell(f"the report was not attached to the study in {store.name}: {reason}")
    return False
