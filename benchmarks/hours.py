"""Planned over measured seconds of trials, for all reduced studies.

    python benchmarks/hours.py [--steps 30] [--shapes 3] [--only pca] [--json]

`loopscale plan` measures a few shapes of a study and predicts the others. Here a few trials of every study really run:
the cheapest trial, the dearest, and trials between. A trial takes `--steps` steps, spread over its training, so that a
curriculum counts. Then it validates and evaluates. The measured seconds are

    steps * mean step + reports * validation + evaluation

of a trial alone, and of two at a time in two processes. "judging" is the share of validation and evaluation. Times are
seconds of processor, because elapsed time on a busy machine counts other work. The reference is the earlier rule: FLOPs
over one rate of each model kind.

The last columns compare the plan with the records in `notebooks/data`: planned over recorded seconds, and the same over
the median of all studies. The recorded trials ran on another day, with older code and beside other work.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import pandas as pd
import torch

from loopscale.core.cheap_imports import without_compiler
from loopscale.evaluate import Evaluation, evaluate, validation_errors
from loopscale.pricing.speed import TRIAL_SECONDS, MeasuredSpeed, measured_speed, trial_cost
from loopscale.studies.spec import Study
from loopscale.training.cost import measure
from loopscale.training.device import prepare
from loopscale.training.loop import Learner
from loopscale.training.trial import Trial

ROOT = Path(__file__).parent.parent
WORKERS = 2
EVALUATED_PROMPTS = 512
"""Prompts of a measured evaluation. The time for all prompts is proportional."""
RECORDS = {"clustering": "clustering_", "mixture_regression": "mixture_", "sparse_recovery": "sparse_"}
"""The start of the records' names, where the folder of the studies is no such start."""


def run_trial(trial: Trial, settings: Evaluation, steps: int) -> tuple[float, float, float]:
    """Seconds of processor of a trial's training, from a sample of its steps, of validation and of evaluation."""
    options, clock = trial.training, time.process_time
    with without_compiler():
        learner = Learner(trial)
        learner.learn(1)
        sample = [1 + round((options.steps - 1) * number / (steps - 1)) for number in range(steps)]
        start = clock()
        for step in sample:
            learner.learn(step).item()
        a_step = (clock() - start) / steps
    validation_errors(learner.net, trial.task, trial.steps_per_prompt)  # draws the prompts
    start = clock()
    validation_errors(learner.net, trial.task, trial.steps_per_prompt)
    validation = clock() - start
    prompts = min(EVALUATED_PROMPTS, settings.prompts)
    short = settings.model_copy(update={"prompts": prompts})
    start = clock()
    evaluate(learner.net, short.posed(trial.task), short)
    evaluation = (clock() - start) * settings.prompts / prompts
    return options.steps * a_step, -(-options.steps // options.eval_every) * validation, evaluation


def serve(steps: int) -> None:
    """A process that runs trials: a line on stdin names a file and a cell, a line on stdout has its seconds."""
    prepare(1)  # as in a worker
    for line in sys.stdin:
        file, key = json.loads(line)
        study = Study.load(file)
        print(json.dumps(run_trial(study.layout.trials[key], study.evaluate, steps)), flush=True)


class Lane:
    """A process of `serve`."""

    def __init__(self, steps: int) -> None:
        command = [sys.executable, __file__, "--serve", "--steps", str(steps)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, file: Path, key: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps([str(file), key]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> list[float]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())


def by_flops(study: Study) -> dict[str, float]:
    """Seconds of every cell's trial by the earlier rule: FLOPs over the rate of one trial of each model kind."""
    kinds = {trial.model.kind: trial for trial in study.layout.trials.values()}
    rates = {kind: trial_cost(t).flops_step / measure(t, study.evaluate).step for kind, t in kinds.items()}
    return {key: trial_cost(t).flops_total / rates[t.model.kind] for key, t in study.layout.trials.items()}


def chosen_cells(study: Study, shapes: int) -> list[str]:
    """The cheapest cell, the dearest, and cells between."""
    trials = study.layout.trials
    ordered = sorted(trials, key=lambda key: trial_cost(trials[key]).step.size())
    places = {round((len(ordered) - 1) * number / max(1, shapes - 1)) for number in range(shapes)}
    return [ordered[place] for place in sorted(places)]


def planned_over_recorded(study: Study, file: Path, speed: MeasuredSpeed) -> float | None:
    """The planned seconds of training, validation and evaluation over the recorded ones, of all finished trials."""
    folder = file.parent.parent.name
    names = [file.stem, f"{folder}_{file.stem}", RECORDS.get(folder, "?") + file.stem]
    data = next((path for name in names if (path := ROOT / "notebooks" / "data" / name).is_dir()), None)
    if data is None:
        return None
    trials, history = pd.read_parquet(data / "trials.parquet"), pd.read_parquet(data / "history.parquet")
    seconds = history[history.metric == "seconds"].groupby("run").value.max()
    planned = recorded = 0.0
    for run, text in zip(trials.run, trials.tags, strict=True):
        tags = json.loads(text)
        trial = study.layout.trials.get(tags.get("cell"))
        if trial and tags.get("outcome") == "finished" and run in seconds.index:
            planned += speed.seconds(trial, study.evaluate)
            recorded += float(seconds[run])
    return planned / recorded if recorded else None


def study_row(file: Path, lanes: list[Lane], shapes: int) -> dict[str, float | str | None]:
    """All ratios of a study: planned over measured seconds, of the chosen trials."""
    study = Study.load(file)
    trials, keys = list(study.layout.trials.values()), chosen_cells(study, shapes)
    start = time.process_time()
    speed = measured_speed(trials, study.evaluate, workers=WORKERS)
    planning = time.process_time() - start
    single = MeasuredSpeed(speed.shapes)
    earlier = by_flops(study)
    planned: dict[str, list[float]] = {"alone": [], "beside": [], "flops": []}
    measured: dict[str, list[float]] = {"alone": [], "beside": []}
    judging = 0.0
    for key in keys:
        trial: Trial = study.layout.trials[key]
        planned["alone"].append(single.seconds(trial, study.evaluate) - TRIAL_SECONDS)
        planned["beside"].append(speed.seconds(trial, study.evaluate) - TRIAL_SECONDS)
        planned["flops"].append(earlier[key])
        for side, used in (("alone", lanes[:1]), ("beside", lanes)):
            for lane in used:
                lane.ask(file, key)
            answers = [lane.answer() for lane in used]
            measured[side].append(statistics.mean(map(sum, answers)))
            judging += sum(sum(answer[1:]) for answer in answers) if side == "beside" else 0.0
    ratios = [p / m for p, m in zip(planned["beside"], measured["beside"], strict=True)]
    total = sum(measured["beside"])
    return {
        "study": str(file.relative_to(ROOT / "studies")).removesuffix(".yaml").replace("/reduced", ""),
        "shapes": len(speed.shapes),
        "planning_s": planning,
        "planned_s": sum(planned["beside"]),
        "measured_s": total,
        "ratio": sum(planned["beside"]) / total,
        "lowest": min(ratios),
        "highest": max(ratios),
        "alone": sum(planned["alone"]) / sum(measured["alone"]),
        "slow_down": speed.slow_down,
        "measured_slow_down": total / sum(measured["alone"]),
        "judging": judging / WORKERS / total,
        "by_flops": sum(planned["flops"]) / total,
        "recorded": planned_over_recorded(study, file, speed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30, help="measured steps of a trial")
    parser.add_argument("--shapes", type=int, default=3, help="measured trials of a study")
    parser.add_argument("--only", default="", help="part of the path of a study")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.steps)
        return
    torch.set_num_threads(1)
    files = [ROOT / "studies" / "quickstart.yaml", *sorted((ROOT / "studies").glob("*/reduced/*.yaml"))]
    lanes = [Lane(options.steps) for _ in range(WORKERS)]
    rows = []
    print(
        f"{'study':36}{'planned s':>10}{'measured s':>11}{'ratio':>7}{'of single trials':>18}{'alone':>7}"
        f"{'side by side':>14}{'judging':>9}{'FLOPs rule':>11}{'recorded':>9}",
        file=sys.stderr,
    )
    for file in files:
        if options.only in str(file):
            rows.append(row := study_row(file, lanes, options.shapes))
            recorded = f"{row['recorded']:9.2f}" if row["recorded"] else f"{'-':>9}"
            print(
                f"{row['study']:36}{row['planned_s']:10.1f}{row['measured_s']:11.1f}{row['ratio']:7.2f}"
                f"{row['lowest']:10.2f} .. {row['highest']:.2f}{row['alone']:7.2f}"
                f"{row['slow_down']:7.2f} {row['measured_slow_down']:.2f}{row['judging']:9.1%}"
                f"{row['by_flops']:11.2f}{recorded}",
                file=sys.stderr if options.json else sys.stdout,
                flush=True,
            )
    for lane in lanes:
        lane.process.communicate()
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for name, label in (("ratio", "planned / measured"), ("by_flops", "FLOPs rule / measured")):
        ratios = [row[name] for row in rows]
        near = sum(1 / 1.2 <= ratio <= 1.2 for ratio in ratios)
        print(
            f"{label}: {min(ratios):.2f} .. {max(ratios):.2f}, within 20 % in {near} of {len(rows)} studies"
        )
    recorded = [row["recorded"] for row in rows if row["recorded"]]
    if recorded:
        middle = statistics.median(recorded)
        near = sum(1 / 1.2 <= ratio / middle <= 1.2 for ratio in recorded)
        print(
            f"planned / recorded: median {middle:.2f}; over the median {min(recorded) / middle:.2f} .. "
            f"{max(recorded) / middle:.2f}, within 20 % in {near} of {len(recorded)}"
        )


if __name__ == "__main__":
    main()
