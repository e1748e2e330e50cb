"""The overhead of a trial beyond its training: a study of one-step trials, beside stock Ray Tune on the same work.

Both sides train the same net for one step in each of `--trials` trials, two at a time. They choose the learning rate
with Optuna's random sampler and record every trial in MLflow on SQLite. The stock side is Ray Tune with `OptunaSearch`
and `MLflowLoggerCallback`, as in its documentation. The clock starts at the first result; the start of Ray is printed
beside. The clock stops when everything is recorded and Ray is down. The training itself, timed in this process, is
subtracted. Beside the elapsed time stands the processor time of all processes of a side.

    python benchmarks/overhead.py [--trials 200] [--json]
    python benchmarks/overhead.py --busy 40

With --busy, the benchmark runs eight trials of about so many seconds each instead, two at a time. It prints the
processor time of the workers over elapsed time x cores, from the first result to the last. On a machine with other
work this share says little: compare the workers' share of the study's processor time.
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from machine import describe
from processes import processor_times

from loopscale.core.ray_environment import QUIET
from loopscale.records.stores.opening import open_store
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.run import run
from loopscale.studies.spec import Study
from loopscale.training.cost import step_seconds
from loopscale.training.loop import Learner, train
from loopscale.training.trial import Trial

WORKERS = 2
TRIAL = {
    "task": {"kind": "linear_regression", "dim": 2, "points": 4},
    "model": {"kind": "looped", "width": 8, "heads": 1},
    "training": {"steps": 1, "loops": 2, "window": 1, "batch_size": 8},
}
LONG = {
    "task": {"kind": "linear_regression", "dim": 5, "points": 11},
    "model": {"kind": "looped", "width": 64, "heads": 4},
    "training": {"steps": 10, "loops": 10, "window": 5, "batch_size": 64},
}
"""A trial of the size that trains on a laptop."""


def training_itself(trials: int) -> float:
    """Seconds of a one-step trial alone, with validation."""
    torch.set_num_threads(1)
    list(train(Trial.model_validate(TRIAL)))
    began = time.perf_counter()
    for seed in range(trials):
        list(train(Trial.model_validate(TRIAL | {"seed": seed})))
    return (time.perf_counter() - began) / trials


@dataclass(frozen=True)
class Use:
    """What a side needs, in seconds: until the first result, from there to the end, and of processor to the end."""

    startup: float
    elapsed: float
    processor: float
    workers: float
    """The part of `processor` in Ray's workers, until the last result."""
    until_last: float
    """Elapsed seconds from the first to the last result."""
    worker_start: float
    """Processor seconds of a worker at the first result."""


class Clock:
    """Measures a side in a thread beside it, because Ray's processes are gone at the end."""

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune writes its callbacks to a file, which nothing here reads

    def __init__(self) -> None:
        self.began, self.first, self.last = time.perf_counter(), 0.0, 0.0
        self.seen: dict[int, tuple[str, float]] = {}
        """Name and processor seconds of this process and its descendants, also of those that have ended."""
        self.before, self.workers_before = 0.0, 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def result(self) -> None:
        if not self.first:
            self._look()
            self.before, self.workers_before = self._total(), self._total("ray::")
            self.first = time.perf_counter()
        self.last = time.perf_counter()

    def stop(self) -> Use:
        end = time.perf_counter()
        self._stop.set()
        self._thread.join()
        self._look()
        return Use(
            self.first - self.began,
            end - self.first,
            self._total() - self.before,
            self._total("ray::") - self.workers_before,
            self.last - self.first,
            self.workers_before / WORKERS,
        )

    def _total(self, name: str = "") -> float:
        return sum(seconds for title, seconds in list(self.seen.values()) if title.startswith(name))

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            self._look()

    def _look(self) -> None:
        self.seen |= processor_times(os.getpid())


def one_step_study(trials: int) -> Study:
    return Study.parse(
        {
            "question": "What does a trial cost beside its training?",
            "fixed": TRIAL,
            "nuisance": {"training.lr": {"real": [1e-5, 1e-2], "scale": "log"}},
            "search": {"kind": "random", "trials": trials - 1},
            "evaluate": {"loops": 2, "prompts": 8},
        }
    )


def long_study(trials: int, steps: int) -> Study:
    """A study without a search, so that no trial waits for another."""
    training = LONG["training"] | {"steps": steps, "eval_every": max(1, steps // 10)}  # pyright: ignore[reportOperatorIssue]
    return Study.parse(
        {
            "question": "How busy are the cores?",
            "fixed": LONG | {"training": training},
            "replicates": trials,
            "evaluate": {"loops": 10, "prompts": 8},
        }
    )


def loopscale_side(study: Study, trials: int, folder: Path) -> Use:
    clock = Clock()
    report = Conductor.report

    def timed(self: Conductor, key: str, progress: Any) -> bool:
        clock.result()
        return report(self, key, progress)

    Conductor.report = timed
    conductor = run(study, open_store(folder / "store", create=True), WORKERS)
    Conductor.report = report
    assert conductor.counts() == {"finished": trials}
    return clock.stop()


def stock_side(trials: int, folder: Path) -> Use:
    os.environ |= QUIET
    import ray
    from optuna.samplers import RandomSampler
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    clock = Clock()

    class FirstResult(tune.Callback):
        def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
            clock.result()

    def train_one_step(config: dict[str, float]) -> None:
        torch.set_num_threads(1)
        settings = TRIAL | {"training": TRIAL["training"] | config}  # pyright: ignore[reportOperatorIssue]
        for progress in train(Trial.model_validate(settings)):
            tune.report(progress.metrics)

    ray.init(num_cpus=WORKERS, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    results = tune.Tuner(
        tune.with_resources(train_one_step, {"cpu": 1}),
        param_space={"lr": tune.loguniform(1e-5, 1e-2)},
        tune_config=tune.TuneConfig(
            metric="error",
            mode="min",
            num_samples=trials,
            max_concurrent_trials=WORKERS,
            search_alg=OptunaSearch(sampler=RandomSampler(seed=0)),
        ),
        run_config=tune.RunConfig(
            name="stock",
            storage_path=str(folder / "ray"),
            verbose=0,
            callbacks=[
                FirstResult(),
                MLflowLoggerCallback(f"sqlite:///{folder}/mlflow.db", experiment_name="stock"),
            ],
        ),
    ).fit()
    assert len(results) == trials
    assert not results.errors
    ray.shutdown()
    return clock.stop()


def busy_share(seconds: float) -> dict[str, float]:
    """The share of the cores that eight trials of about `seconds` each keep busy."""
    torch.set_num_threads(1)
    trial = Trial.model_validate(LONG)
    steps = max(10, round(seconds / step_seconds(Learner(trial))))
    with tempfile.TemporaryDirectory() as folder:
        use = loopscale_side(long_study(8, steps), 8, Path(folder))
    share = use.workers / (use.until_last * WORKERS)
    return {
        "steps": steps,
        "seconds": use.until_last,
        "share": share,
        "training": use.workers / use.processor,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--busy", type=float, metavar="SECONDS", help="length of eight long trials")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = describe()
    print(machine, file=sys.stderr, flush=True)
    if options.busy:
        result: dict[str, Any] = {"machine": machine.to_dict()} | busy_share(options.busy)
        if options.json:
            json.dump(result, sys.stdout, indent=1)
        else:
            print(
                f"8 trials of {result['steps']:.0f} steps in {result['seconds']:.0f} s: workers use "
                f"{result['share']:.1%} of {WORKERS} cores, and {result['training']:.1%} of the study's processor time"
            )
        return
    itself = training_itself(min(options.trials, 50))
    rows = {}
    ours = partial(loopscale_side, one_step_study(options.trials))
    for name, side in (("loopscale", ours), ("stock Ray Tune", stock_side)):
        with tempfile.TemporaryDirectory() as folder:
            use = side(options.trials, Path(folder))
        print(f"{name}: start-up {use.startup:.1f} s, then {use.elapsed:.1f} s", file=sys.stderr, flush=True)
        rows[name] = {
            "startup_s": use.startup,
            "worker_start_processor_s": use.worker_start,
            "seconds": use.elapsed,
            "overhead_s_per_trial": use.elapsed / options.trials - itself / WORKERS,
            "processor_s_per_trial": use.processor / options.trials - itself,
        }
    ratio = rows["stock Ray Tune"]["overhead_s_per_trial"] / rows["loopscale"]["overhead_s_per_trial"]
    result = {"machine": machine.to_dict(), "trials": options.trials, "training_s_per_trial": itself}
    result |= {"ratio": ratio} | rows
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        return
    print(
        f"{options.trials} one-step trials, {WORKERS} at a time; the training itself: {itself * 1000:.1f} ms a trial"
    )
    print(
        f"{'':16}{'start-up':>10}{'of a worker':>13}{'all trials':>12}{'overhead per trial':>20}{'of processor':>14}"
    )
    for name, row in rows.items():
        print(
            f"{name:16}{row['startup_s']:>9.1f}s{row['worker_start_processor_s']:>12.2f}s{row['seconds']:>11.1f}s{row['overhead_s_per_trial']:>19.3f}s"
            f"{row['processor_s_per_trial']:>13.3f}s"
        )
    print(f"stock / loopscale: {ratio:.1f}")


if __name__ == "__main__":
    main()
