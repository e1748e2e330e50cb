"""Ray Tune's two interfaces, passed on to the conductor. All of Tune's own memory is thrown away."""

import logging
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from typing_extensions import override

from loopscale.runner.decide.budget import Spent
from loopscale.runner.decide.conductor import Conductor, Interrupted
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.messages import Order
from loopscale.runner.on_ray.faults import LOST, OUT_OF_MEMORY, fault
from loopscale.runner.on_ray.memory_limit import kills
from loopscale.runner.on_ray.worker import in_actor
from loopscale.studies.parts import Resources

OrderOf = Callable[[Job], Order]

IDLE = 10.0
"""Seconds that a worker with nothing to do is kept: about what starting another takes.

Whatever comes, that costs at most twice what knowing it would have (ski rental: rent until you could have bought).
"""


class TuneSearcher(Searcher):
    """Which trial is next. `None` means ask again in a moment; `FINISHED` is for ever."""

    def __init__(self, conductor: Conductor, first: Job, order: OrderOf, keys: dict[str, str]) -> None:
        super().__init__()
        self.conductor, self.first, self.order, self.keys = conductor, [first], order, keys
        self.reasons: dict[str, str] = {}

    @override
    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        return True

    @override
    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        job = self.first.pop() if self.first else self.conductor.next()
        if isinstance(job, Idle):
            return Searcher.FINISHED if job is Idle.DONE else None
        self.keys[trial_id] = job.key
        return {"key": job.key, "order": self.order(job).model_dump_json()}

    @override
    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        # Does nothing if the trial has said how it ended. One that was told to stop may be under way again by now.
        if key := self.keys.pop(trial_id, None):
            reason = self.reasons.pop(trial_id, "")
            self.conductor.lost(key, reason, fault(reason))

    @override
    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        pass

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TuneScheduler(FIFOScheduler):
    """Whether a trial goes on."""

    def __init__(self, conductor: Conductor, suggest: TuneSearcher) -> None:
        super().__init__()
        self.conductor, self.suggested, self.kills = conductor, suggest, kills()
        self.free = Free()

    @override
    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        if self.conductor.report(trial.config["key"], result["report"]):
            return self.CONTINUE
        self.suggested.keys.pop(trial.trial_id, None)
        if not self.conductor.full:  # else it gives way to another study, which waits for the place
            self.free.add(tune_controller, trial)
        return self.STOP

    @override
    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Called just before the searcher hears of the end: the reason is to be had here only."""
        said = _reason(trial) + _whereabouts(trial.node_ip)
        if (killed := kills()) > self.kills:
            said, self.kills = f"{said}; {OUT_OF_MEMORY}", killed
        self.suggested.reasons[trial.trial_id] = said[-2000:]

    @override
    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        """Asked at every turn of Tune's loop, ten times a second: the one place to leave it from."""
        if self.conductor.stopping:
            raise Interrupted
        if meter := self.conductor.meter:
            # Actors of Tune's that have their resources: starting, training, idle or being stopped.
            meter.turn(tune_controller._actor_manager.num_live_actors, len(self.suggested.keys))
            if meter.over:
                raise Spent
        self.free.turn(tune_controller)
        if self.conductor.full:
            _let_go(tune_controller)
        return _without_actor(tune_controller) or super().choose_trial_to_run(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}


class Free:
    """The workers that have come free: none is stopped before it has been idle for IDLE seconds.

    Tune keeps one, and stops any other before it asks what is next. Where a cell's last trial opens its replicates,
    that was the worker that they needed. There is no public way to say so (Ray 2.60).
    """

    def __init__(self) -> None:
        self.until: deque[tuple[float, Any]] = deque()

    def add(self, controller: Any, trial: Any) -> None:
        """The worker of `trial` is about to come free."""
        self.until.append((time.monotonic() + IDLE, trial.placement_group_factory))
        controller._actor_cache.increase_max(trial.placement_group_factory)

    def turn(self, controller: Any) -> None:
        """Leave to Tune whoever has been idle for long; it stops them at the end of its turn."""
        while self.until and self.until[0][0] < time.monotonic():
            controller._actor_cache.decrease_max(self.until.popleft()[1])


def _without_actor(controller: Any) -> Any:
    """The first trial that waits and has no actor on its way; Tune would take the first that waits at all.

    To that one it gives any actor that has come free, and kills the one that was being started for it. Where trials
    are shorter than a worker takes to start, a host that has lost its worker would then never get another (Ray 2.60).
    """
    waiting = (trial for trial in controller.get_live_trials() if trial.status == Trial.PENDING)
    return next((trial for trial in waiting if trial not in controller._trial_to_actor), None)


def _whereabouts(address: str | None) -> str:
    """What to add to the reason where Ray speaks of the worker only, and its host is gone as well."""
    import ray

    alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    return "" if not address or address in alive else f"; {LOST}: {address}"


def _let_go(controller: Any) -> None:
    """Tune keeps one idle actor for the next trial; where studies share a cluster, it would keep others from its place.

    There is no public way to say so (Ray 2.60).
    """
    if controller._actor_cache.num_cached_objects and not controller._pending_trials:
        controller._cleanup_cached_actors(force_all=True)


def _reason(trial: Any) -> str:
    """What Ray says of a worker's end: one line where its storage failed, else all of it.

    Read where Tune has just written it: `get_error` looks where it is copied to later.
    """
    file = Path(trial.error_file or "")
    said = file.read_text().strip() if file.is_file() else str(trial.get_error() or "").strip()
    module, found, reason = said.rpartition("\n")[2].rpartition("loopscale.training.storage.")
    return reason if found and not module else said


def fit(conductor: Conductor, first: Job, order: OrderOf, folder: Path, concurrent: int) -> None:
    """Let Ray Tune carry the study to its end. Raises Interrupted, NoWorkers, Spent."""
    for quiet in ("ray.tune", "ray.train", "ray.air"):
        logging.getLogger(quiet).setLevel(logging.CRITICAL)
    suggest = TuneSearcher(conductor, first, order, {})
    tune.Tuner(
        tune.with_resources(in_actor, _resources(conductor.study.resources)),
        tune_config=tune.TuneConfig(
            search_alg=suggest,
            scheduler=TuneScheduler(conductor, suggest),
            num_samples=10**9,
            max_concurrent_trials=concurrent,
            reuse_actors=True,
            trial_dirname_creator=lambda trial: trial.trial_id,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent.absolute()),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    ).fit()


def _resources(resources: Resources) -> dict[str, float]:
    """As Ray names them; its memory is in bytes."""
    wanted = {"cpu": resources.cpu, "gpu": resources.gpu}
    return wanted | ({"memory": resources.memory * 2**30} if resources.memory else {})
