"""A study's records, as the functions and the verbs that show them ask for them."""

from collections.abc import Set

from loopscale.errors import UsageError
from loopscale.interface import types


def recorded(store: "types.Store", study: str, curves: bool = True) -> "types.Results":
    """The records of a study, given its file or its name.

    Raises NoRecords for a study that has not been run. Raises Mistakes or UsageError if the file or name is no valid
    study.
    """
    from loopscale.analysis.recorded.load import load_results, with_claims
    from loopscale.notation.files import recorded_name
    from loopscale.notation.plugins import load_recorded_plugins
    from loopscale.records.model import NoRecords

    name = recorded_name(study)
    try:
        results = load_results(store, name, curves=curves)
    except NoRecords:
        check_study(store, study, name)
        raise
    if curves:  # tables of trials need no members
        load_recorded_plugins(study, name, results.study.get("plugins") or ())
    return with_claims(results, study)


def meeting(store: "types.Store", study: str, where: str) -> Set[str]:
    """The study's trials that meet an SQL condition. Raises QueryError."""
    from loopscale.records.mirror import Mirror

    mirror = Mirror(store)
    mirror.sync(study)
    mirror.query(f"SELECT trial FROM trials WHERE {where}\n")  # brackets that hide each other fail here
    of_study = "study = '{}'".format(study.replace("'", "''"))
    found = mirror.query(f"SELECT trial FROM trials WHERE {of_study} AND ({where}\n)")
    return frozenset(found["trial"].to_pylist())


def check_study(store: "types.Store", study: str, name: str) -> None:
    """Raises Mistakes for a file that holds no study, and UsageError where there is no file."""
    from loopscale.notation.files import find_study, known_studies
    from loopscale.notation.mistakes import Mistakes, one_of
    from loopscale.records.mirror import Mirror
    from loopscale.studies.spec import Study

    try:
        file = find_study(study)
    except Mistakes:
        mirror = Mirror(store)
        mirror.sync()
        found = mirror.query("SELECT study FROM studies ORDER BY 1")["study"].to_pylist()
        remedy = one_of(name, dict.fromkeys([*found, *known_studies()]))
        raise UsageError(
            f"there are no records of {name} in {store.name}, and no file of such a study; {remedy}"
        ) from None
    Study.load(file)
