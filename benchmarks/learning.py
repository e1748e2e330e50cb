"""Steps, FLOPs and seconds until a net has learnt, by optimizer and initial weights.

    python benchmarks/learning.py [--models looped gpt2 algoformer] [--steps 1500] [--seeds 2] [--json]

The task is linear regression without noise: d = 4, κ = 16 with four eigenvalues, 12 pairs. The nets have width 32 and
4 heads. The looped net and AlgoFormer run T = ΔT = 4 loops, GPT-2 has 4 layers. Batches have 64 prompts, and the rate
has a warm-up of 100 steps and a cosine. Rates are those that suit each optimizer: Adam 2e-3, Muon 5e-3.

All recipes of a net and a seed train by turns, report by report, in one process. So load on the machine slows all of
them alike. A level is reached at the first of two reports whose regret on the validation prompts is below it.
"""

import argparse
import json
import os
import statistics
import time
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
from machine import describe

from loopscale.core.prompt_sets import VALIDATION_PROMPTS
from loopscale.regret import floor
from loopscale.stats.learning import History
from loopscale.stats.milestones import Milestone
from loopscale.training.cost import step_flops
from loopscale.training.loop import train
from loopscale.training.trial import Trial

LEVELS = (0.05, 0.01)
UNITS = ("steps", "flops", "seconds")
EVERY = 25
"""Steps between two reports."""
TASK = {"kind": "linear_regression", "dim": 4, "points": 12, "condition": 16, "spectrum_levels": 4}
MODELS: dict[str, dict[str, Any]] = {
    "looped": {"kind": "looped"},
    "gpt2": {"kind": "gpt2", "layers": 4},
    "algoformer": {"kind": "algoformer"},
}
RECIPES = [("adam", 0.02, 2e-3), ("adam", 0.1, 2e-3), ("muon", 0.02, 5e-3), ("muon", 0.1, 5e-3)]
"""Optimizer, standard deviation of the initial weights, learning rate. The first is that of the papers."""


def trial(model: str, recipe: tuple[str, float, float], steps: int, seed: int) -> Trial:
    optimizer, init_std, rate = recipe
    training = {
        "steps": steps,
        "batch_size": 64,
        "loops": 4,
        "window": 4,
        "warmup": 100,
        "schedule": "cosine",
    }
    return Trial.model_validate(
        {
            "task": TASK,
            "model": MODELS[model] | {"width": 32, "heads": 4, "init_std": init_std},
            "training": training | {"lr": rate, "optimizer": optimizer, "eval_every": EVERY},
            "seed": seed,
        }
    )


def train_by_turns(trials: list[Trial]) -> list[dict[str, Any]]:
    """The reports of trials that train side by side, one report each by turns, with the processor time of each."""
    known = floor(trials[0].task, "validate", VALIDATION_PROMPTS)
    floors = float(known.error.mean()), float(known.ignorance.mean())
    runs: list[dict[str, Any]] = [
        {"seconds": [0.0], "steps": list[int](), "error": list[float]()} for _ in trials
    ]
    courses = [train(each) for each in trials]
    for _ in range(trials[0].training.steps // EVERY):
        for course, run in zip(courses, runs, strict=True):
            start = time.process_time()
            progress = next(course)
            run["seconds"].append(run["seconds"][-1] + time.process_time() - start)
            run["steps"].append(progress.step)
            run["error"].append(progress.metrics["error"])
    for each, run in zip(trials, runs, strict=True):
        run["history"] = History(np.array(run["steps"], float), np.array(run["error"]), *floors)
        run["flops"] = step_flops(each)
        run["regret"] = run["error"][-1] - floors[0]
    return runs


def cost(run: dict[str, Any], step: float, unit: str) -> float:
    """The cost of a run up to a step; inf for a level that was never reached."""
    if unit == "steps" or not np.isfinite(step):
        return step
    return float(run["flops"].after(step)) if unit == "flops" else run["seconds"][int(step) // EVERY]


def row(model: str, recipe: tuple[str, float, float], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over seeds; None where half of the runs never reach the level."""
    made: dict[str, Any] = {"model": model, "optimizer": recipe[0], "init_std": recipe[1], "lr": recipe[2]}
    made["regret"] = statistics.geometric_mean(run["regret"] for run in runs)
    logs = [float(np.log(run["regret"])) for run in runs]
    made["sd"] = statistics.stdev(logs) if len(logs) > 1 else None
    for level in LEVELS:
        passed = [Milestone(level).passed(run["history"]) for run in runs]
        by = [each.by for each in passed if each]
        for unit in UNITS:
            middle = float(np.median([cost(run, step, unit) for run, step in zip(runs, by, strict=True)]))
            made[f"{unit} to {level:g}"] = middle if np.isfinite(middle) else None
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    options = parser.parse_args()
    rows = []
    for model in options.models:
        by_seed = [
            train_by_turns([trial(model, recipe, options.steps, seed) for recipe in RECIPES])
            for seed in range(1, options.seeds + 1)
        ]
        rows += [row(model, recipe, [runs[n] for runs in by_seed]) for n, recipe in enumerate(RECIPES)]
    if options.json:
        print(json.dumps({"machine": describe().to_dict(), **vars(options), "rows": rows}))
        return
    print(describe())
    costs = [f"{unit} to {level:g}" for level in LEVELS for unit in UNITS]
    names = ["model", "optimizer", "init_std", "lr", "regret", "sd", *costs]
    print(*(f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names))), sep="\n")
    for made in rows:
        print(f"| {' | '.join(shown(made[name]) for name in names)} |")


def shown(value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.3g}"


if __name__ == "__main__":
    main()
