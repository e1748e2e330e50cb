"""The overhead of a trial beyond its training: a study of one-step trials, beside stock Ray Tune on the same work.

Both sides train the same net for one step in each of `--trials` trials, two at a time. They choose the learning rate
with Optuna's random sampler and record every trial in MLflow on SQLite. The stock side is Ray Tune with `OptunaSearch`
and `MLflowLoggerCallback`, as in its documentation. The clock starts at the first result; the start of Ray is printed
beside. The clock stops when everything is recorded and Ray is down. The training itself, timed in this process, is
subtracted.

    python benchmarks/overhead.py [--trials 200] [--json]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from loopscale.records.stores.opening import open_store
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.on_ray import RAY_ENVIRONMENT
from loopscale.runner.run import run
from loopscale.studies.spec import Study
from loopscale.training.loop import train
from loopscale.training.trial import Trial

WORKERS = 2
TRIAL = {
    "task": {"kind": "linear_regression", "dim": 2, "points": 4},
    "model": {"kind": "looped", "width": 8, "heads": 1},
    "training": {"steps": 1, "loops": 2, "window": 1, "batch_size": 8},
}


def training_itself(trials: int) -> float:
    """Seconds of a one-step trial alone, with validation."""
    torch.set_num_threads(1)
    list(train(Trial.model_validate(TRIAL)))
    began = time.perf_counter()
    for seed in range(trials):
        list(train(Trial.model_validate(TRIAL | {"seed": seed})))
    return (time.perf_counter() - began) / trials


class Clock:
    """The seconds until the first result, and from there to the end."""

    def __init__(self) -> None:
        self.began, self.first = time.perf_counter(), 0.0

    def result(self) -> None:
        self.first = self.first or time.perf_counter()

    def stop(self) -> tuple[float, float]:
        return self.first - self.began, time.perf_counter() - self.first


def loopscale_side(trials: int, folder: Path) -> tuple[float, float]:
    study = Study.parse(
        {
            "question": "What does a trial cost beside its training?",
            "fixed": TRIAL,
            "nuisance": {"training.lr": {"real": [1e-5, 1e-2], "scale": "log"}},
            "search": {"kind": "random", "trials": trials - 1},
            "evaluate": {"loops": 2, "prompts": 8},
        }
    )
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


def stock_side(trials: int, folder: Path) -> tuple[float, float]:
    os.environ |= RAY_ENVIRONMENT
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    itself = training_itself(min(options.trials, 50))
    rows = {}
    for name, side in (("loopscale", loopscale_side), ("stock Ray Tune", stock_side)):
        with tempfile.TemporaryDirectory() as folder:
            startup, seconds = side(options.trials, Path(folder))
        above = seconds / options.trials - itself / WORKERS
        print(f"{name}: start-up {startup:.1f} s, then {seconds:.1f} s", file=sys.stderr, flush=True)
        rows[name] = {"startup_s": startup, "seconds": seconds, "overhead_s_per_trial": above}
    ratio = rows["stock Ray Tune"]["overhead_s_per_trial"] / rows["loopscale"]["overhead_s_per_trial"]
    result = {"trials": options.trials, "training_s_per_trial": itself, "ratio": ratio} | rows
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        return
    print(
        f"{options.trials} one-step trials, {WORKERS} at a time; the training itself: {itself * 1000:.1f} ms a trial"
    )
    print(f"{'':16}{'start-up':>10}{'all trials':>12}{'overhead per trial':>30}")
    for name, row in rows.items():
        print(
            f"{name:16}{row['startup_s']:>9.1f}s{row['seconds']:>11.1f}s{row['overhead_s_per_trial']:>29.3f}s"
        )
    print(f"stock / loopscale: {ratio:.1f}")


if __name__ == "__main__":
    main()
