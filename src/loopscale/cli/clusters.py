"""`loopscale submit`, `status`, `logs` and `stop`: studies on a cluster."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import (
    JsonOption,
    RateOption,
    SetOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    check_rate,
    open_store,
    parse_assignments,
    records_of,
    store_place,
)
from loopscale.cli.output import (
    first_few,
    format_bytes,
    format_duration,
    say,
    show_json,
    show_table,
    show_verbatim,
    tell,
)
from loopscale.cli.progress import progress_of, show_progress
from loopscale.cli.trial_log import show_trial_log
from loopscale.core.temporary import temporary_folder
from loopscale.interface import types


def complete_cluster(incomplete: str) -> list[str]:
    from loopscale.cluster.files import cluster_names

    return [name for name in cluster_names() if name.startswith(incomplete)]


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A cluster's name below cluster/, or its file. [dim]Default: $LOOPSCALE_CLUSTER, else local[/dim]",
        autocompletion=complete_cluster,
    ),
]


def submit(
    context: typer.Context,
    study: StudyArgument,
    cluster: ClusterOption = None,
    rate: RateOption = None,
    overrides: SetOption = None,
    render: Annotated[
        bool, typer.Option("--render", help="Print the text for the cluster, and send nothing.")
    ] = False,
    preflight: Annotated[
        bool,
        typer.Option("--preflight/--no-preflight", help="First check that the cluster can run the study."),
    ] = True,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Start a study on a cluster, or attach to it if it runs there. The command returns at once.

    It sends the code at its commit, the study's file and its plugins. Submitting again resumes a study that stopped
    or failed.

    [bold]Example[/bold]  loopscale submit quickstart --cluster lab
    """
    from loopscale.cluster.base import Request
    from loopscale.cluster.package import build_package
    from loopscale.cluster.preflight import remarks_on_hosts
    from loopscale.notation.plugins import packed_files
    from loopscale.studies.spec import Study

    name, target = cluster_from_options(context, cluster, store, storage)
    changes = parse_assignments(overrides)
    check_rate(rate)
    loaded = Study.load(study, changes)
    plugins = packed_files(
        f"studies/{loaded.name}.yaml", loaded.path.parent if loaded.path else Path.cwd(), loaded.sources
    )
    package = build_package(loaded.name, loaded.text, plugins)
    resources = loaded.resources.amounts
    with temporary_folder("package") as folder:
        archive = package.write(folder)
        request = Request(
            loaded.name, loaded.text, changes, archive, package.digest, resources, rate, plugins
        )
        if render:
            show_verbatim(target.render(name, request))
            for remark in remarks_on_hosts(name, target, resources):
                tell(f"note: {remark}")
            return
        commit = f" at commit {package.commit[:10]}" if package.commit else ""
        tell(f"package: {format_bytes(len(package.content))}{commit}")
        if package.unsent:
            tell(f"note: uncommitted changes are not sent: {first_few(package.unsent)}")
        submission = _submit(name, target, request, preflight)
    if as_json:
        show_json(submission.document() | {"package_bytes": len(package.content), "commit": package.commit})
        return
    option = f" --cluster {cluster}" if cluster else ""
    if submission.attached:
        say(f"{submission.study} runs on {submission.cluster} already, as {submission.id}")
    else:
        say(f"{submission.study} is submitted to {submission.cluster}, as {submission.id}")
    say(f"to follow it: loopscale logs -f {submission.study}{option}")
    say(f"to see its state: loopscale status {submission.study}{option}")
    say(f"to see its page: loopscale watch {submission.study}{option}")


def _submit(name: str, cluster: "types.Cluster", request: "types.Request", check: bool) -> "types.Submission":
    """Raises UsageError if the preflight finds a fatal problem."""
    from loopscale.cluster.base import ENDED
    from loopscale.cluster.preflight import preflight

    latest = cluster.latest(name, request.study)
    if check and (latest is None or latest.state in ENDED):
        problems = preflight(name, cluster, request)
        for problem in problems:
            if not problem.fatal:
                tell(f"note: {problem.text}")
        if fatal := [problem.text for problem in problems if problem.fatal]:
            raise UsageError("\n".join(f"{name}: {text}" for text in fatal))
    return cluster.submit(name, request)


def status(
    context: typer.Context,
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="A study, or the id of a submission. Default: all."),
    ] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """List what was submitted to a cluster, and what runs here.

    For one study, also its trials and its spent budget. While the study runs, also its hosts, the reason why a host
    waits, and the trials that run.

    [bold]Example[/bold]  loopscale status quickstart --cluster lab
    """
    name, target = cluster_from_options(context, cluster, store, storage)
    if study is None:
        show_submissions(name, target, as_json)
        return
    submission = _latest_submission(name, target, study)
    progress = progress_of(target, submission)
    if as_json:
        show_json(submission.document() | progress)
        return
    show_table(["id", "state", "since", "took"], [_row(submission)])
    if submission.detail:
        say(submission.detail)
    show_progress(progress)


def show_submissions(name: str, cluster: "types.Cluster", as_json: bool) -> None:
    """Print every submission that the cluster remembers."""
    submissions = cluster.submissions(name)
    if as_json:
        show_json([each.document() for each in submissions])
    elif not submissions:
        say(cluster.no_submissions(name))
    else:
        show_table(
            ["study", "id", "state", "since", "took"], [[each.study, *_row(each)] for each in submissions]
        )


def _row(submission: "types.Submission") -> list[Any]:
    started = submission.started
    since = started and time.strftime("%Y-%m-%d %H:%M", time.localtime(started))
    took = started and format_duration((submission.ended or time.time()) - started)
    return [submission.id, submission.state, since, took]


def logs(
    context: typer.Context,
    study: StudyArgument,
    trial: Annotated[
        str | None,
        typer.Option(
            "--trial", metavar="KEY", help="Print the output of this trial, from here or a cluster."
        ),
    ] = None,
    cluster: ClusterOption = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new output until the study, or the trial, ends.")
    ] = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Print the output of a study's driver. Ctrl-C ends this command; the study goes on.

    With --trial, print the validations of one trial and what the trial has printed, also after its host is gone. The
    last seconds before a crash may be missing.

    [bold]Example[/bold]  loopscale logs -f quickstart --cluster lab
    """
    if trial is not None:
        show_trial_log(_store_of(context, cluster, store, storage), study, trial, follow)
        return
    name, target = cluster_from_options(context, cluster, store, storage)
    for text in target.logs(_latest_submission(name, target, study), follow):
        sys.stdout.write(text)
        sys.stdout.flush()


def stop(
    context: typer.Context,
    study: StudyArgument,
    trial: Annotated[
        str | None,
        typer.Option("--trial", metavar="KEY", help="End this trial alone, here or on a cluster."),
    ] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Stop a study here or on a cluster, as Ctrl-C would. Its state is saved, and the next run resumes it.

    With --trial, end one trial of a study wherever the study runs. Nothing replaces the trial, and
    `loopscale run STUDY --again KEY` trains it again.

    [bold]Example[/bold]  loopscale stop quickstart --cluster lab
    """
    if trial is not None:
        _stop_trial(_store_of(context, cluster, store, storage), study, trial, as_json)
        return
    from loopscale.cluster.base import ENDED
    from loopscale.cluster.local import STARTED_BY_RUN

    name, target = cluster_from_options(context, cluster, store, storage)
    submission = _latest_submission(name, target, study)
    running = submission.state not in ENDED
    if running:
        target.stop(submission)
        later = {each.id: each for each in target.submissions(name)}
        submission = later.get(submission.id, submission)
    if as_json:
        show_json(submission.document())
    elif running and submission.state == "succeeded":
        say(f"{submission.id} has finished the study before it could stop")
    elif running:
        named = vars(store_place(context, store, storage))
        places = [f"--{option} {shlex.quote(place)}" for option, place in named.items() if place]
        options = " ".join(["", *_recorded_options(target, submission.study), *places])
        verb = f"submit {submission.study} --cluster {name}"
        if submission.detail == STARTED_BY_RUN:
            verb = f"run {submission.study}"
        say(f"{submission.id} has stopped; `loopscale {verb}{options}` resumes it")
    else:
        say(f"{submission.id} does not run: it has {submission.state}")


def _store_of(
    context: typer.Context, cluster: str | None, store: str | None, storage: str | None
) -> "types.Store":
    """The store with the records of a cluster's studies, or of the studies that run here. Raises StoreError."""
    if cluster:
        own = cluster_from_options(context, cluster, store, storage)[1].driver_places
        store, storage = own[0] or store, own[1] or storage
    return open_store(context, store, storage)


def _recorded_options(cluster: "types.Cluster", study: str) -> list[str]:
    """The options that changed the study's file in its last run; none if this machine cannot read the records."""
    from loopscale.records.model import NO_OPTIONS, OPTIONS, StoreError

    try:
        parent = records_of(cluster).parent_run(study)
    except StoreError:
        return []
    options = parent.tags.get(OPTIONS, NO_OPTIONS) if parent else NO_OPTIONS
    return [] if options == NO_OPTIONS else [options]


def _stop_trial(store: "types.Store", study: str, beginning: str, as_json: bool) -> None:
    """Ask the study's driver to end the trial whose key begins so."""
    from loopscale.notation.files import recorded_name
    from loopscale.records.model import OVER
    from loopscale.records.study_records import request_stop, trial_named

    name = recorded_name(study)
    record = trial_named(store, name, beginning)
    key, outcome = record.key, record.outcome
    if over := outcome in OVER:
        line = f"{key} does not run: it has {outcome.replace('_', ' ')}"
    else:
        request_stop(store, name, key)
        line = (
            f"{key} ends at its next report, and no run trains it; `loopscale run {study} --again {key}` does"
        )
    if as_json:
        show_json({"study": name, "trial": key, "outcome": outcome, "stopped": not over})
    else:
        say(line)


def cluster_from_options(
    context: typer.Context, cluster: str | None, store: str | None, storage: str | None
) -> "tuple[str, types.Cluster]":
    """The cluster's name and settings. The store and storage of the options replace its own. Raises Mistakes."""
    from loopscale.cluster.files import load_cluster

    name, settings = load_cluster(cluster)
    places = vars(store_place(context, store, storage))
    return name, settings.model_copy(update={option: place for option, place in places.items() if place})


def _latest_submission(name: str, cluster: "types.Cluster", study: str) -> "types.Submission":
    """The study's latest submission, given its name, its file, or the id of a submission. Raises UsageError."""
    from loopscale.notation.files import SUFFIXES, study_name

    submissions = cluster.submissions(name)
    if same_id := next((each for each in submissions if each.id == study), None):
        return same_id
    wanted = study_name(Path(study)) if Path(study).suffix in SUFFIXES else study
    same_study = [each for each in submissions if each.study == wanted]
    if not same_study:
        known = ", ".join(dict.fromkeys(each.study for each in submissions)) or "nothing"
        raise UsageError(
            f"{wanted} was not submitted to {name}, and does not run there; {known} was, and `loopscale list` names "
            "the studies with records"
        )
    return same_study[-1]
