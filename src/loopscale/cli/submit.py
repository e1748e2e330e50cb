"""`loopscale submit`: a study on a cluster, which goes on when the lid is closed."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.clusters import ClusterOption, chosen
from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    assignments,
)
from loopscale.cli.output import say, show_json, size, tell
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.cluster.base import Cluster, Request, Submission
    from loopscale.cluster.pack import Package
    from loopscale.studies.spec import Study


def command(
    context: typer.Context,
    study: StudyArgument,
    cluster: ClusterOption = None,
    overrides: SetOption = None,
    render: Annotated[
        bool, typer.Option("--render", help="Print what would be sent, and send nothing.")
    ] = False,
    preflight: Annotated[
        bool, typer.Option("--preflight/--no-preflight", help="Look first whether the cluster can run it.")
    ] = True,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Start a study on a cluster, or attach to it where it runs, and return at once.

    What is sent is the code at its commit and the study's file. Submitting again resumes what was stopped or died.

    [bold]Example[/bold]  loopscale submit quickstart --cluster lab
    """
    from loopscale.cluster.pack import pack
    from loopscale.studies.spec import Study

    name, where = chosen(context, cluster, store, storage)
    loaded = Study.load(study, assignments(overrides))
    package = pack(loaded.name, loaded.text)
    with tempfile.TemporaryDirectory(prefix="loopscale-") as folder:
        request = _request(loaded, assignments(overrides), package, Path(folder))
        if render:
            say(where.render(name, request))
            return
        _announce(package)
        submission = _submit(name, where, request, preflight)
    if as_json:
        show_json(submission.document() | {"package_bytes": len(package.content), "commit": package.commit})
    else:
        _said(submission, f" --cluster {cluster}" if cluster else "")


def _request(study: "Study", overrides: dict[str, str], package: "Package", folder: Path) -> "Request":
    from loopscale.cluster.base import Request

    wanted = study.resources
    resources = {"cpu": float(wanted.cpu), "gpu": float(wanted.gpu), "memory": float(wanted.memory or 0)}
    return Request(study.name, study.text, overrides, package.write(folder), package.digest, resources)


def _submit(name: str, cluster: "Cluster", request: "Request", look: bool) -> "Submission":
    from loopscale.cluster.base import ENDED
    from loopscale.cluster.preflight import preflight

    running = cluster.latest(name, request.study)
    if look and (running is None or running.state in ENDED):
        found = preflight(name, cluster, request)
        for each in found:
            if not each.fatal:
                tell(f"note: {each.text}")
        if fatal := [each.text for each in found if each.fatal]:
            raise Wrong("\n".join(f"{name}: {text}" for text in fatal))
    return cluster.submit(name, request)


def _announce(package: "Package") -> None:
    commit = f" at commit {package.commit[:10]}" if package.commit else ""
    tell(f"package: {size(len(package.content))}{commit}")
    if package.unsent:
        some = ", ".join(package.unsent[:3]) + (", ..." if len(package.unsent) > 3 else "")
        tell(f"note: changes that are not committed are not sent: {some}")


def _said(submission: "Submission", option: str) -> None:
    if submission.attached:
        say(f"{submission.study} runs on {submission.cluster} already, as {submission.id}")
    else:
        say(f"{submission.study} is submitted to {submission.cluster}, as {submission.id}")
    say(f"to follow it: loopscale logs -f {submission.study}{option}")
    say(f"to see how it stands: loopscale status {submission.study}{option}")
