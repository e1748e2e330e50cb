"""A study on Ray: Ray Tune's searcher and scheduler, which ask the conductor.

Tune's own state is never used.
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from typing_extensions import override

from loopscale.core.machine_share import trials_per_machine
from loopscale.errors import ResourcesError
from loopscale.runner.decide.budget import BudgetSpent
from loopscale.runner.decide.conductor import Conductor, Interrupted
from loopscale.runner.decide.job import CauseOfDeath, Idle, Job, Order
from loopscale.runner.machine import count_memory_kills
from loopscale.runner.on_ray.session import RayFailed, RaySession
from loopscale.runner.on_ray.worker import trainable
from loopscale.studies.schema import Resources
from loopscale.training.trial import Trial as TrainedTrial

MakeOrder = Callable[[Job], Order]
TellStage = Callable[[str], None]
"""Receives the name of the event that the run waits for."""

IDLE_SECONDS = 10.0
"""Time that an idle worker is kept: about the time to start another worker.

This rule costs at most twice the best choice (ski rental: rent until the rent equals the price).
"""

PLACEMENT_SECONDS = 5.0
"""Time between two looks for hosts that can hold a trial."""

HOST_LOST = "its host is not alive any more"
"""Added to the reason of a death if Ray says that the host is dead."""
HOST_TEXTS = (
    HOST_LOST,
    "node has died",  # ActorDiedError: the head has marked the host dead
    "NodeDiedError",
    "LocalRayletDiedError",
    "ActorUnavailableError",  # the host does not answer, and may be alive
    "StorageUnavailable",  # the host's disk is full, or its connection to the bucket is cut
    "StorageDenied",  # the host's disk is read-only, or the host lacks a key of the bucket
    "StorageMissing",  # the host has not mounted the folder
    "No space left on device",
    "OutOfDiskError",
)
"""Texts in errors of Ray 2.60 and of loopscale's storage that blame the host."""
OUT_OF_MEMORY = "the kernel has killed processes of this machine for want of memory"
"""Added to the reason of a death after a kill by the kernel. Ray only knows that the process is gone."""
MEMORY_TEXTS = ("running low on memory", "OutOfMemoryError", OUT_OF_MEMORY)
"""Texts in errors of Ray's memory monitor. Ray also says that a death "may" be a lack of memory: no evidence."""


def ray_amounts(resources: Resources) -> dict[str, float]:
    """Resources of a trial by Ray's names, memory in bytes."""
    amounts = {"CPU": resources.cpu, "GPU": resources.gpu, "memory": (resources.memory or 0) * 2.0**30}
    return {name: float(amount) for name, amount in amounts.items() if amount}


def slots_by_host(resources: Resources) -> Counter[str]:
    """Number of trials that each live host of the connected cluster holds when it is empty."""
    slots = Counter[str]()
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            amounts = (has.get("CPU", 0.0), has.get("GPU", 0.0), has.get("memory", 0.0) / 2**30)
            slots[node["NodeManagerHostname"]] += trials_per_machine(resources.amounts, *amounts)
    return slots


def private_slots(resources: Resources) -> int:
    """Number of trials that the private Ray holds. Ray counts GPUs and memory in its own way.

    Raises ResourcesError if Ray cannot hold a trial.
    """
    if slots := sum(slots_by_host(resources).values()):
        return slots
    has = ray.cluster_resources()
    counted = {
        "cpu": has.get("CPU", 0.0),
        "gpu": has.get("GPU", 0.0),
        "memory": has.get("memory", 0.0) / 2**30,
    }
    needed = {name: amount for name, amount in resources.amounts.items() if amount}
    raise ResourcesError(
        f"a trial needs {_listed(needed)}, and Ray counts {_listed(counted)} on this machine; ask for less under "
        "resources, or start Ray with other numbers, as in `ray start --head --num-gpus=1`, and give its --address"
    )


def _listed(amounts: Mapping[str, float]) -> str:
    units = {"cpu": "CPUs", "gpu": "GPUs", "memory": "GiB of memory"}
    return ", ".join(f"{amount:.3g} {units[name]}" for name, amount in amounts.items())


class PlacementWatch:
    """Says when no host of the cluster can hold a trial, each time that this begins.

    Ray itself waits without a message. Ray does not say whether the cluster can grow. An autoscaler sees pending
    trials, if the cluster has one.
    """

    def __init__(self, conductor: Conductor, notice: Callable[[str], None]) -> None:
        self.conductor, self.notice = conductor, notice
        self._next, self._waits = 0.0, False

    def look(self) -> None:
        """Look at the hosts, at most every PLACEMENT_SECONDS."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PLACEMENT_SECONDS
        resources, excluded = self.conductor.study.resources, self.conductor.excluded_hosts
        with suppress(Exception):  # a head that does not answer is another problem, which Tune meets too
            slots = slots_by_host(resources)
            waits = not any(number for host, number in slots.items() if host not in excluded)
            if waits and not self._waits:
                self.notice(placement_notice(resources, excluded.keys() & slots.keys()))
            self._waits = waits


def placement_notice(resources: Resources, excluded: Collection[str]) -> str:
    """Message for a cluster without any host that can hold a trial. Some hosts are `excluded`."""
    request = _listed({name: amount for name, amount in resources.amounts.items() if amount})
    without = f" (the excluded {', '.join(sorted(excluded))} left out)" if excluded else ""
    return (
        f"no machine of the cluster{without} has the resources of a trial ({request}); the study waits for such a "
        "machine: if none will be added, stop the study with Ctrl-C and reduce its resources"
    )


def classify_fault(reason: str) -> CauseOfDeath:
    """Cause of a worker's death, from Ray's reason for the actor's end. In doubt it is the worker.

    The death of a host is not the trial's fault, so it does not use up the trial's retries.
    """
    if any(text in reason for text in MEMORY_TEXTS):
        return "memory"
    return "host" if any(text in reason for text in HOST_TEXTS) else "worker"


class RayDied(BaseException):
    """A process of Ray has died. Not an `Exception`, which Tune would catch to clean up slowly."""


class TuneSearcher(Searcher):
    """Tune's searcher. It returns the conductor's next job: None means ask again, FINISHED is final."""

    def __init__(self, conductor: Conductor, first: Job, make_order: MakeOrder, keys: dict[str, str]) -> None:
        super().__init__()
        self.conductor, self.first, self.make_order = conductor, [first], make_order
        self.keys = keys
        """Key of the job of each of Tune's trials that runs."""
        self.reasons: dict[str, str] = {}
        """Reason of the end of each of Tune's trials that failed."""
        self.hosts: dict[str, str] = {}
        """Host of each of Tune's trials that failed."""

    @override
    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    @override
    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        job = self.first.pop() if self.first else self.conductor.start_next()
        if isinstance(job, Idle):
            return Searcher.FINISHED if job is Idle.DONE else None
        self.keys[trial_id] = job.key
        excluded = node_ids(self.conductor.excluded_hosts)
        return {"key": job.key, "order": self.make_order(job).model_dump_json(), "excluded": excluded}

    @override
    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        # The conductor ignores trials that have reported an outcome. A stopped trial has no key here any more,
        # because its job may already run again.
        if key := self.keys.pop(trial_id, None):
            reason = self.reasons.pop(trial_id, "")
            host = self.hosts.pop(trial_id, "")
            self.conductor.report_lost(key, reason, classify_fault(reason), host)

    @override
    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneScheduler(FIFOScheduler):
    """Tune's scheduler. It passes reports to the conductor, and stops trials that the conductor stops."""

    def __init__(
        self,
        conductor: Conductor,
        searcher: TuneSearcher,
        stage: TellStage = lambda _: None,
        session: RaySession | None = None,
        placement: PlacementWatch | None = None,
    ) -> None:
        super().__init__()
        self.conductor, self.searcher, self.memory_kills = conductor, searcher, count_memory_kills()
        self.stage, self.session, self.placement = stage, session, placement
        self.idle_workers = IdleWorkers()

    @override
    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if self.conductor.report(trial.config["key"], result["report"]):
            return self.CONTINUE
        self.searcher.keys.pop(trial.trial_id, None)
        if not self.conductor.share_used:  # otherwise the worker's slot goes to another study
            self.idle_workers.keep(tune_controller, trial)
        return self.STOP

    @override
    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Store the reason. Tune calls this method just before the searcher's, which has no access to the reason."""
        reason = _error_text(trial) + _host_state(trial.node_ip)
        if (kills := count_memory_kills()) > self.memory_kills:
            reason, self.memory_kills = f"{reason}; {OUT_OF_MEMORY}", kills
        self.searcher.reasons[trial.trial_id] = reason[-2000:]
        self.searcher.hosts[trial.trial_id] = _host_at(trial.node_ip)

    @override
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Choose a waiting trial. Tune calls this method ten times a second: the only place to leave its loop."""
        if self.session and self.session.failure:
            raise RayDied
        if self.conductor.stopping:
            raise Interrupted
        if self.placement:
            self.placement.look()
        if not self.conductor.has_reports:
            started = (each for each in tune_controller.get_live_trials() if each.status == Trial.RUNNING)
            jobs = self.conductor.running_jobs
            keys = [self.searcher.keys.get(each.trial_id) for each in started]
            self.stage(first_report([jobs[key] for key in keys if key in jobs]))
        if meter := self.conductor.meter:
            # Tune's actors with resources: actors that start, train, idle or stop.
            meter.update(tune_controller._actor_manager.num_live_actors, len(self.searcher.keys))
            if meter.must_stop:
                raise BudgetSpent
        self.idle_workers.release_expired(tune_controller)
        forget_ended(tune_controller)
        idle_too_long = self.placement and not self.idle_workers.expiries  # a host may go then
        if self.conductor.share_used or idle_too_long:
            _stop_cached_actor(tune_controller)
        return _waiting_without_actor(tune_controller) or super().choose_trial_to_run(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}


def first_report(started: Sequence[Job]) -> str:
    """Name the first report that the run waits for. `started` are the jobs whose worker has started."""
    if not started:
        return "the first worker"
    validations = [
        (min(job.steps, (job.step // every + 1) * every), job.steps)
        for job in started
        if isinstance(job.work, TrainedTrial)
        for every in [job.work.training.eval_every]
    ]
    if not validations:
        return "the first evaluation of an algorithm"
    step, steps = min(validations)
    return f"the first validation, at step {step:,} of {steps:,}"


class IdleWorkers:
    """Workers without a trial. Each is kept for IDLE_SECONDS.

    Tune keeps one idle worker, and stops all others before it asks for the next trial. If a cell's last trial opens
    the cell's replicates, Tune would stop the worker that the replicates need. Ray 2.60 has no public option for this.
    """

    def __init__(self) -> None:
        self.expiries: deque[tuple[float, Any]] = deque()

    def keep(self, controller: Any, trial: Any) -> None:
        """Keep the worker of a trial that is about to stop."""
        self.expiries.append((time.monotonic() + IDLE_SECONDS, trial.placement_group_factory))
        controller._actor_cache.increase_max(trial.placement_group_factory)

    def release_expired(self, controller: Any) -> None:
        """Return expired workers to Tune, which stops them at the end of its turn."""
        while self.expiries and self.expiries[0][0] < time.monotonic():
            controller._actor_cache.decrease_max(self.expiries.popleft()[1])


def _waiting_without_actor(controller: Any) -> Any:
    """The first waiting trial without a starting actor.

    Tune would choose the first waiting trial of all. It gives that trial an idle actor, and kills the actor that is
    being started for it. If trials are shorter than the start of a worker, a host that has lost its worker would then
    never get another worker (Ray 2.60).
    """
    waiting = (trial for trial in controller.get_live_trials() if trial.status == Trial.PENDING)
    return next((trial for trial in waiting if trial not in controller._trial_to_actor), None)


def forget_ended(controller: Any) -> None:
    """Let Tune forget the trials that have ended, except the last one.

    Tune 2.60 keeps every trial of the study with its last report and its state as JSON. Tune also looks at all trials
    several times a second, and writes all states to a file again and again. The conductor keeps its own records, and
    nothing reads the file.
    """
    ended = controller._stopped_trials | controller._failed_trials
    ended -= controller._live_trials
    ended -= controller._trial_to_actor.keys()
    trials = controller.get_trials()
    ended -= set(trials[-1:])  # without any trial, Tune would read its file at the end
    if not ended:
        return
    trials[:] = [trial for trial in trials if trial not in ended]
    for kept in (controller._stopped_trials, controller._failed_trials, controller._trials_to_cache):
        kept.difference_update(ended)
    for trial in ended:
        controller._trial_metadata.pop(trial.trial_id, None)


class NoTrialProgress(TrialProgressCallback):
    """Takes the place of Tune's own callback, which prints nothing at this verbosity, and keeps every trial."""

    @override
    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        pass

    @override
    def log_result(self, trial: Trial, result: dict[str, Any], error: bool = False) -> None:
        pass


def _host_state(address: str | None) -> str:
    """An addition to the reason if the worker's host is dead. Ray's error may only mention the worker."""
    alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    return "" if not address or address in alive else f"; {HOST_LOST}: {address}"


def _host_at(address: str | None) -> str:
    """The name of the host at an address; empty if it is not known."""
    return next(
        (node["NodeManagerHostname"] for node in ray.nodes() if node["NodeManagerAddress"] == address), ""
    )


def node_ids(hosts: Collection[str]) -> list[str]:
    """Ray's ids of the live nodes on these hosts."""
    nodes = ray.nodes() if hosts else []
    return sorted(node["NodeID"] for node in nodes if node["Alive"] and node["NodeManagerHostname"] in hosts)


def placement(amounts: Mapping[str, float], config: Mapping[str, Any]) -> tune.PlacementGroupFactory:
    """The resources of a trial, on a host that is not excluded."""
    excluded = config["excluded"]
    if not excluded:
        return tune.PlacementGroupFactory([dict(amounts)])
    selector = {"ray.io/node-id": f"!in({','.join(excluded)})"}
    return tune.PlacementGroupFactory([dict(amounts)], bundle_label_selector=[selector])


def _stop_cached_actor(controller: Any) -> None:
    """Stop the idle actor that Tune keeps for the next trial. On a cluster it blocks another study's slot, or a host.

    Ray 2.60 has no public option for this.
    """
    if controller._actor_cache.num_cached_objects and not controller._pending_trials:
        controller._cleanup_cached_actors(force_all=True)


def _error_text(trial: Any) -> str:
    """Ray's reason for a worker's end: one line for an error of storage, else the whole text.

    Tune has just written the error file. `get_error` reads a copy of the file, which appears later.
    """
    file = Path(trial.error_file or "")
    text = file.read_text().strip() if file.is_file() else str(trial.get_error() or "").strip()
    before, storage_module, error = text.rpartition("\n")[2].rpartition("loopscale.training.storage.")
    return error if storage_module and not before else text


def run_tune(
    conductor: Conductor,
    first: Job,
    make_order: MakeOrder,
    folder: Path,
    concurrent: int,
    stage: TellStage,
    session: RaySession,
    notice: Callable[[str], None],
) -> None:
    """Run the study with Ray Tune to its end. Raises Interrupted, NoWorkers, BudgetSpent, RayFailed.

    The conductor has already handed out the job `first`. `concurrent` trials run or wait for a worker at a time. Before
    the first report, `stage` is told of the report that the run waits for. `notice` receives messages for a person.
    """
    for logger in ("ray.tune", "ray.train", "ray.air"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    searcher = TuneSearcher(conductor, first, make_order, {})
    sources = conductor.study.sources
    worker = tune.with_parameters(trainable, plugins=sources) if sources else trainable
    resources = conductor.study.resources
    amounts = ray_amounts(resources)
    conductor.services.live_hosts = lambda: [
        host for host, slots in slots_by_host(resources).items() if slots
    ]
    watch = (
        PlacementWatch(conductor, notice) if session.cluster else None
    )  # a private Ray keeps its resources
    scheduler = TuneScheduler(conductor, searcher, stage, session, watch)
    tuner = tune.Tuner(
        # Only a cluster has hosts to exclude, and the private Ray keeps its resources as they are.
        tune.with_resources(worker, partial(placement, amounts) if session.cluster else amounts),
        tune_config=tune.TuneConfig(
            search_alg=searcher,
            scheduler=scheduler,
            num_samples=10**9,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.absolute()),
            verbose=0,
            callbacks=[NoTrialProgress()],
            progress_reporter=tune.CLIReporter(),  # the reporter of notebooks clears the output of the cell
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )
    try:
        tuner.fit()
    except (Exception, RayDied):
        if session.failure:
            raise RayFailed(session.failure) from None
        raise
