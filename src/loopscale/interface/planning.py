"""The plan of a study: its cost, and the chances of its verdicts, before anything is spent."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loopscale.errors import NoRecords
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.records.model import OVER, Run
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store


@with_loopscale_errors
def plan(
    study: "types.Study | str | Path",
    store: Store | str | Path | None = None,
    *,
    workers: int | None = None,
    rate: float | None = None,
    cluster: str | None = None,
    least_effect: float | None = None,
) -> "types.StudyPlan":
    """Plan a study: cells, trials, exact FLOPs, memory, time, room and power.

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    store
        Earlier records of the study, for the noise between replicates, the expected learning and a check of the speed.
        The store may be absent.
    workers
        Trials at a time. None fills the machine, or takes the number of the cluster.
    rate
        FLOP/s of one trial. None measures the speed here.
    cluster
        The name of a cluster, for its workers, its hosts and its prices.
    least_effect
        The plan warns of an axis that changes the error of the best known algorithm by less than this part.

    Raises
    ------
    StudyError, StoreError
    """
    from loopscale.foresight.plan import plan_study
    from loopscale.runner.machine import local_workers
    from loopscale.studies.spec import Study

    loaded = study if isinstance(study, Study) else Study.load(study)
    offer, cluster_workers = _offer(cluster, loaded) if cluster else (None, None)
    workers = workers or cluster_workers or local_workers(loaded.resources)
    recorded = _records(store, loaded.name)
    loaded = loaded.as_recorded(recorded.plugins)
    planned = plan_study(
        loaded, rate, workers, offer, recorded.noise, least_effect, recorded.times, recorded.ended
    )
    return replace(planned, warnings=(*_changes(loaded, planned, recorded.plugins), *planned.warnings))


def _changes(study: "types.Study", planned: "types.StudyPlan", recorded: Sequence[str]) -> Iterator[str]:
    """One sentence for each plugin whose code has changed since the last run. A changed plugin makes other trials."""
    from loopscale.notation.plugins import digests, plugin_texts

    if not recorded:
        return
    before = digests(recorded)
    for text in study.used_plugins:
        name, _, digest = text.rpartition(" ")
        if before.get(name, digest) == digest:
            continue
        trials = study.layout.trials
        changed = [cell for cell in planned.cells if text in plugin_texts(trials[cell.key].model_dump())]
        number = sum(cell.tuning + cell.replicates for cell in changed)
        again = "1 trial trains again" if number == 1 else f"{number:,} trials train again"
        solvers = [solver for solver in study.baselines if text in plugin_texts(solver.model_dump())]
        again += f", and {len(solvers)} of the baselines run again" if solvers else ""
        yield f"{name} has changed since the last run: {again}"


@dataclass(frozen=True)
class _Recorded:
    """What a plan takes from earlier records of the study."""

    noise: "types.Noise"
    times: "Sequence[tuple[types.Trial, float]]" = ()
    """The finished trials of this processor, with the seconds of their training."""
    ended: "Mapping[str, tuple[int, int]] | None" = None
    """The tuning trials and the replicates that have ended, by cell; None without records."""
    plugins: Sequence[str] = ()
    """The name and the hash of every plugin."""


def _records(where: Store | str | Path | None, study: str) -> _Recorded:
    """The earlier records of the study, if a store has some. Raises StoreError."""
    from loopscale.foresight.noise import Noise, NoiseTable

    try:
        store = where if isinstance(where, Store) else open_store(where)
        if (experiment := store.find_experiment(study)) is None:
            return _Recorded(Noise())
        from loopscale.analysis.answers.noise import noise_rows, recorded_cells
        from loopscale.analysis.recorded.load import load_results

        results = load_results(store, study)
        noise = Noise(NoiseTable.with_totals(noise_rows(results)), tuple(recorded_cells(results)))
        ended = {cell.key: (_ended(cell.tuning), _ended(cell.replicates)) for cell in results.cells}
        times = list(_times(results, store.runs(experiment, params=False)))
        return _Recorded(noise, times, ended, results.study.get("plugins") or ())
    except NoRecords:
        return _Recorded(Noise())


def _ended(trials: "Iterable[types.TrialResult]") -> int:
    return sum(trial.outcome in OVER for trial in trials)


def _times(results: "types.Results", runs: "Iterable[Run]") -> "Iterator[tuple[types.Trial, float]]":
    """The finished trials on this processor, with the seconds of their training."""
    from loopscale.analysis.recorded.prices import as_trial
    from loopscale.runner.machine import processor

    here = {
        run.tags.get("trial") for run in runs if run.tags.get("hardware", "").startswith(f"{processor()}, ")
    }
    for trial in results.trained:
        seconds = trial["seconds"]
        finished = trial.outcome == "finished" and trial.trial in here and math.isfinite(seconds)
        if finished and (known := as_trial(trial)) is not None:
            yield known, seconds


def _offer(cluster: str, study: "types.Study") -> "tuple[types.Offer, int]":
    """The cluster's hosts and prices, and the number of trials that run there at a time. Raises Mistakes."""
    from loopscale.cluster.base import trials_on
    from loopscale.cluster.files import load_cluster
    from loopscale.cluster.preflight import known_hosts
    from loopscale.foresight.plan import Offer

    name, settings = load_cluster(cluster)
    trial = study.resources.amounts
    hosts, remarks = known_hosts(name, settings, trial)
    workers = settings.workers or trials_on(hosts)
    offer = Offer(name, gpu_memory=settings.gpu_memory, hosts=hosts, remarks=tuple(remarks))
    if prices := settings.prices:
        price = {"core_hour": prices.core_hour, "gpu_hour": prices.gpu_hour, "currency": prices.currency}
        offer = replace(offer, **price)
    return offer, workers
