"""What the verbs that speak to a cluster share: which one, and which of its submissions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import Place
from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.cluster.base import Cluster, Submission


def _clusters(incomplete: str) -> list[str]:
    """The clusters' names, for the shell to complete."""
    from loopscale.cluster.find import HERE, names, nearest_folder

    found = dict.fromkeys([HERE, *names(nearest_folder())])
    return [name for name in found if name.startswith(incomplete)]


ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="NAME",
        help="A cluster's name below cluster/, or its file. [dim]Default: $LOOPSCALE_CLUSTER, else local[/dim]",
        autocompletion=_clusters,
    ),
]


def chosen(
    context: typer.Context, name: str | None, store: str | None, storage: str | Path | None
) -> "tuple[str, Cluster]":
    """The cluster, with the store and storage that the options name in place of its own. Raises Mistakes."""
    from loopscale.cluster.find import find

    called, cluster = find(name)
    before = context.obj or Place()
    store, storage = store or before.store, storage or before.storage
    changes = {"store": store} if store else {}
    changes |= {"storage": str(storage)} if storage else {}
    return called, cluster.model_copy(update=changes)


def submission_of(name: str, cluster: "Cluster", study: str) -> "Submission":
    """The study's latest submission; `study` is its name, its file, or the id of a submission. Raises Wrong."""
    found = cluster.submissions(name)
    if exact := next((each for each in found if each.id == study), None):
        return exact
    wanted = _name(study)
    mine = [each for each in found if each.study == wanted]
    if not mine:
        known = ", ".join(dict.fromkeys(each.study for each in found)) or "nothing"
        raise Wrong(f"{wanted} was not submitted to {name}; {known} was")
    return mine[-1]


def _name(study: str) -> str:
    """The name of a study that may be given as a file."""
    from loopscale.studies.files import SUFFIXES, study_name

    return study_name(Path(study)) if Path(study).suffix in SUFFIXES else study
