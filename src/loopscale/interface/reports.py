"""The report of a study: one page with figures, laws and verdicts, as a file and attached in MLflow."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loopscale.core.output_files import check_page, check_target, write_output
from loopscale.core.visible import tell
from loopscale.errors import UsageError
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.interface.recorded import recorded
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store

ANSWER = "**Answer**"
"""The line of a parent run's description that follows the note of the study's file."""
ATTACH_SECONDS = 60.0
"""The longest wait for a store that takes no page."""


@with_loopscale_errors
def report(
    study: "types.Study | str | Path", store: Store | str | Path | None = None, path: str | Path | None = None
) -> Path:
    """Write figures, laws and best configurations of a study as one page, which is also attached in MLflow.

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    store
        The records: an open store, a folder, or an address. By default those of the command line.
    path
        The file of the page. By default a file in `reports/` in the storage.

    Returns
    -------
    Path
        The written file.

    Raises
    ------
    StudyError
        There are neither records nor a file of the study.
    StoreError
        The study has no records, or the records cannot be read.
    UsageError
        The page cannot be written, or the file is no page.
    """
    from loopscale.analysis.answers.findings import study_findings

    file = None if path is None else Path(path)
    if file is not None:
        check_named(file)
    place = store if isinstance(store, Store) else open_store(store)
    named = str(study) if isinstance(study, str | Path) else study.name
    return write_report(place, study_findings(recorded(place, named)), file)[0]


def write_report(store: "Store", findings: "types.Findings", out: Path | None = None) -> tuple[Path, bool]:
    """Write the page, attach it to the study's parent run, and write the answer as the description of this run.

    Returns the file, and True if the page was attached. A store that takes no artifact causes a warning only. Raises
    UsageError or StoreError if the file cannot be written or must not be replaced.
    """
    from loopscale.analysis.report.study_page import study_page
    from loopscale.core.files import bounded_path
    from loopscale.records.stores.folder import REPORTS

    results = findings.results
    page = study_page(results, provenance(store, results), findings).encode()
    reports = store.storage / REPORTS
    file = out or reports / bounded_path(results.name, ".html")
    if out is None and not file.resolve().is_relative_to(reports.resolve()):
        raise UsageError(f"the study's name {results.name} leads out of {reports}; give a file with --out")
    write_page(file, page, named=out is not None)
    return file, not store.read_only and _attach(store, results.name, page, _description(store, findings))


def _description(store: "Store", findings: "types.Findings") -> str:
    """The description of the parent run in Markdown: the note of the study's file, the answer, and the report."""
    from loopscale.analysis.answers.summary import summary
    from loopscale.records.model import REPORT, RUN_NOTE

    parent = store.parent_run(findings.results.name)
    note = parent.tags.get(RUN_NOTE, "").partition(ANSWER)[0].rstrip() if parent else ""
    report = f"Figures and tables: the artifact `{REPORT}` of this run."
    return "\n\n".join([*filter(None, [note]), ANSWER, *summary(findings), report])


def write_page(file: Path, page: bytes, named: bool = True) -> None:
    """Write the page to a file, whole or not at all. Raises UsageError if the write fails.

    A file that a person has `named` must not lie in a store, and must not exist with other content than a page. Raises
    StoreError or UsageError otherwise. A file with the usual name gets its folder.
    """
    if named:
        check_named(file)
    try:
        if not named:
            file.parent.mkdir(parents=True, exist_ok=True)
        write_output(file, page)
    except OSError as problem:
        raise _cannot_write(file, problem) from problem


def check_named(file: Path) -> None:
    """Check a file that a person has named for a page, before the page is made. Raises StoreError or UsageError."""
    from loopscale.records.stores.folder import require_outside_stores

    try:
        require_outside_stores(file, "--out a file", reports=True)
        check_target(file)
        check_page(file)
    except OSError as problem:
        raise _cannot_write(file, problem) from problem


def _cannot_write(file: Path, problem: OSError) -> UsageError:
    return UsageError(f"cannot write {file} ({problem.strerror}); give another file with --out")


def provenance(store: "Store", results: "types.Results") -> dict[str, Any]:
    """The origin of a study's results: tables by name, and the study's file."""
    from loopscale.records.model import ENDED_EARLY
    from loopscale.records.study_records import origin_of, spending_of

    where = origin_of(store, results.name)
    used = str(spending_of(store, results.name))
    about = {
        "source": results.provenance.get("source"),
        "commit of the study": where.tags.get("git_commit") or results.provenance.get("commit"),
        "changed since that commit": where.tags.get("git_changed"),
        "command": where.tags.get("command"),
        "ended early": where.tags.get(ENDED_EARLY),
        "started": results.provenance.get("started"),
        "held in all": used,
        "records": results.provenance.get("store"),
    }
    machines = {"driver": where.tags.get("hardware"), "its GPUs": where.tags.get("gpus")}
    machines |= {"system": where.tags.get("platform"), "trials ran on": _counts(where.hardware)}
    machines |= {"trained in": _counts(where.execution)}
    tables = {
        "Study": about | {"commits of the trials": _counts(where.commits), "seeds": _counts(where.seeds)},
        "Versions": where.versions,
        "Hardware": machines | {"hosts": _counts(where.hosts)},
    }
    kept = {
        name: {what: str(value) for what, value in table.items() if value} for name, table in tables.items()
    }
    kept |= {"The study's file": where.text} if where.text else {}
    return {name: table for name, table in kept.items() if table}


def _counts(counts: Mapping[str, int]) -> str:
    """`AMD EPYC (12 trials), not recorded (3 trials)`."""
    return ", ".join(
        f"{name} ({count:,} {'trial' if count == 1 else 'trials'})" for name, count in counts.items()
    )


def _attach(store: "Store", study: str, page: bytes, description: str) -> bool:
    from loopscale.records.model import REPORT, RUN_NOTE, STUDY, Note
    from loopscale.records.writing.mlflow_writer import MlflowWriter

    if store.forbids_writing():  # the writer would try again for a minute
        reason = "it cannot be written"
    else:
        with MlflowWriter(store, study, {}) as writer:
            writer.write(Note(STUDY, tags={RUN_NOTE: description}, artifacts=((REPORT, page),)))
            if writer.close(ATTACH_SECONDS) and not writer.refused:
                return True
            fault = f"it takes no notes ({writer.fault})" if writer.fault else "it does not answer"
            reason = writer.refused[0][1] if writer.refused else writer.denied or fault
    tell(f"the report was not attached to the study in {store.name}: {reason}")
    return False
