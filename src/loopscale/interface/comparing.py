"""Two studies beside one another: errors of cells that ask the same, laws, and differences in the settings."""

from pathlib import Path

from loopscale.errors import UsageError
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.interface.recorded import recorded
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store


@with_loopscale_errors
def compare(
    first: "types.Study | str | Path",
    second: "types.Study | str | Path",
    store: Store | str | Path | None = None,
    second_store: Store | str | Path | None = None,
) -> "types.TwoStudies":
    """The second study against the first, from their records.

    A ratio is the second's error over the first's, with a 95 % interval over replicates. Below 1 the second study is
    better. Verdicts are corrected for the number of pairs, intervals are not.

    Parameters
    ----------
    first, second
        A study, the file of a study, or the name of a study.
    store
        The records: an open store, a folder, or an address. By default those of the command line.
    second_store
        The records of the second study. By default those of the first. With two stores, both studies may be the same.

    Returns
    -------
    TwoStudies
        `pairs`, `laws`, `different` settings and `sentences`. `to_dict()` is plain data.

    Raises
    ------
    UsageError
        A study is compared with itself.
    StudyError
        There are neither records nor a file of a study.
    StoreError
        A study has no records, or the records cannot be read.
    """
    from loopscale.analysis.answers.two_studies import compare as compare_results

    written = [str(study) if isinstance(study, str | Path) else study.name for study in (first, second)]
    names = compared_names(written[0], written[1], two_stores=second_store is not None)
    place = store if isinstance(store, Store) else open_store(store)
    other = (
        second_store
        if isinstance(second_store, Store)
        else open_store(second_store)
        if second_store
        else place
    )
    if names[0] == names[1]:
        names = [f"{name} in {each.name}" for name, each in zip(names, (place, other), strict=True)]
    return compare_results(recorded(place, written[0]), recorded(other, written[1]), (names[0], names[1]))


def compared_names(first: str, second: str, two_stores: bool) -> list[str]:
    """The names of two studies, given their files or names. Raises UsageError for one study of one store."""
    from loopscale.notation.files import recorded_name

    names = [recorded_name(study) for study in (first, second)]
    if names[0] == names[1] and not two_stores:
        raise UsageError(
            f"{names[0]} is compared with itself; give two studies (`loopscale list` names them), or --second-store"
        )
    return names
