"""Processor time of an evaluation with and without regret, beside the training of the same trial.

python benchmarks/regret.py [STUDY ..]
"""

import argparse
import time
from statistics import median

import torch

from loopscale.evaluate import evaluate
from loopscale.regret import floor
from loopscale.studies.spec import Study
from loopscale.training.loop import train

STUDIES = (
    "quickstart",
    "algoformer/reduced/figure5",
    "mixture_regression/reduced/models",
    "pca/reduced/loops",
)
REPEATS, STEPS = 5, 40


def measure(name: str) -> str:
    study = Study.load(name)
    cell = study.cells()[-1]
    point = {path: axis.ends[0] for path, axis in study.space(cell).items()}
    trial = study.at(cell, point, 1)
    task, evaluation = study.evaluate.posed(trial.task), study.evaluate
    start = time.process_time()
    known = floor(task, "evaluate", evaluation.prompts)
    floor(trial.task)
    first = time.process_time() - start
    short = trial.model_copy(update={"training": trial.training.model_copy(update={"steps": STEPS})})
    start = time.process_time()
    *_, last = train(short)
    training = (time.process_time() - start) / STEPS * trial.training.steps
    net = last.learner.net.eval()
    plain, regret = [], []
    for _ in range(REPEATS):  # by turns, so that both sides meet the same machine
        for seconds, given in ((plain, None), (regret, known)):
            start = time.process_time()
            evaluate(net, task, evaluation, floor=given)
            seconds.append(time.process_time() - start)
    without, together = median(plain), median(regret)
    return (
        f"{name:30} floor {first:5.2f} s once, evaluation {without:5.2f} s, with regret {together:5.2f} s;"
        f" training {training:6.1f} s; regret takes {100 * (together - without) / training:.2f} % of a trial,"
        f" with the floor {100 * (together - without + first) / training:.2f} %"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", nargs="*", default=STUDIES)
    torch.set_num_threads(1)
    for study in parser.parse_args().studies:
        print(measure(study), flush=True)
