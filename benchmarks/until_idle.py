"""What workers lose at the looks of `until: decided`: idle shares, trials and hours, in simulated time.

    python benchmarks/until_idle.py [--courses 20]

The real conductor decides. The errors of single runs are drawn: no claim has an effect, and laws follow theory with a
noise of .2. The time of a trial grows with its loops T, and each trial takes 10 seconds to start. The same courses run
with 2, 8 and 32 workers, and with six or three looks up to the same most replicates.
"""

import argparse
import math
from typing import Any

from loopscale.runner.simulation.curves import LearningCurves
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from loopscale.runner.simulation.until import UNKNOWN_ERROR, AssumedErrors
from loopscale.studies.spec import Study

RATE = 1e6
"""FLOP/s of a worker: a trial takes 2 to 12 minutes."""
LOOKS = {"3, 5, 8, 12, 18, 27": [3, 5, 8, 12, 18, 27], "3, 12, 27": [3, 12, 27]}


def claim(first: int, second: int) -> dict[str, Any]:
    sides = {"first": {"training.loops": first}, "second": {"training.loops": second}}
    return {"text": f"{first} and {second}", "of": "error", "margin": None} | sides


LAW = {"along": "training.loops", "theory": {"kind": "ista", "smoothness": 1, "distance": 1}}
QUESTIONS: dict[str, dict[str, Any]] = {
    "one claim": {"claims": [claim(4, 8)]},
    "7 claims, 8 cells": {"claims": [claim(1, loops) for loops in range(2, 9)]},
    "one law, 4 cells": {"laws": [LAW]},
}


def study_of(name: str, looks: list[int]) -> Study:
    values = list(range(1, 9)) if name.startswith("7") else [1, 2, 4, 8]
    tree: dict[str, Any] = {
        "question": "What do the looks cost?",
        "fixed": {
            "task": {"kind": "linear_regression", "dim": 2, "points": 3},
            "model": {"kind": "looped", "width": 4, "heads": 1},
            "training": {"steps": 90, "eval_every": 10, "window": 1},
        },
        "scientific": {"training.loops": values},
        "scheduler": {"kind": "none"},
        "replicates": 3,
        "evaluate": {"loops": 8},
        "until": {"looks": looks},
    }
    return Study.parse(tree | QUESTIONS[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--courses", type=int, default=20)
    courses = parser.parse_args().courses
    print("| questions | looks | workers | idle % | trials | hours |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in QUESTIONS:
        for title, looks in LOOKS.items():
            study = study_of(name, looks)
            law = "law" in name
            means = {
                cell.key: math.log(UNKNOWN_ERROR) - law * math.log(cell.values["training.loops"])
                for cell in study.cells()
            }
            for workers in (2, 8, 32):
                busy, span, trials = 0.0, 0.0, 0
                for draw in range(courses):
                    errors = AssumedErrors(means, 0.2 if law else 0.15, draw)
                    curves = LearningCurves(study, [], RATE)
                    simulation = Simulation(study, curves, SimulatedCluster(workers), errors=errors)
                    simulation.run()
                    busy += sum(end - start for start, end in simulation.busy)
                    span += simulation.now
                    trials += len(simulation.busy)
                idle = 100 * (1 - busy / span / workers)
                row = name, title, workers, f"{idle:.0f}", f"{trials / courses:.0f}"
                print("|", " | ".join(map(str, row)), f"| {span / courses / 3600:.2f} |", flush=True)


if __name__ == "__main__":
    main()
