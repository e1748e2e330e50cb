"""Play with kept keys and values against play that computes every prefix again.

    python benchmarks/play.py [--width 32] [--turns 3]

A net plays 1,024 games of every task, as at the end of a trial. Both sides play the same games by turns in one process,
and the least seconds of processor of each side count. The regrets of both sides must agree.
"""

import argparse
import os
import time

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from loopscale.core.seeds import stream
from loopscale.evaluate import outcomes
from loopscale.models.base import Net
from loopscale.models.layers import TransformerNet
from loopscale.training.device import prepare
from loopscale.training.trial import Trial

MODELS = ({"kind": "gpt2", "layers": 3}, {"kind": "looped"}, {"kind": "algoformer"})
TASKS = ({"kind": "bandit", "points": 30}, {"kind": "linear_bandit", "points": 60}, {"kind": "mdp"})
LOOPS = 4


def played(net: Net, trial: Trial) -> tuple[float, float]:
    """Seconds of processor, and the regret."""
    start = time.process_time()
    regret = outcomes(net, trial.task, LOOPS)["play_regret"]
    return time.process_time() - start, regret


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    prepare(1)
    kept = TransformerNet.answerer
    print(f"{'model':12}{'task':16}{'prefixes s':>12}{'kept s':>9}{'ratio':>8}{'regrets':>22}")
    for model in MODELS:
        for task in TASKS:
            trial = Trial.model_validate(
                {
                    "task": task,
                    "model": model | {"width": options.width, "heads": 4},
                    "training": {"steps": 100, "loops": LOOPS, "window": LOOPS},
                }
            )
            net = trial.model.build(trial.task.prompt, stream(0))
            sides = dict[str, list[tuple[float, float]]](prefixes=[], kept=[])
            for _ in range(options.turns):
                for side, answerer in (("prefixes", Net.answerer), ("kept", kept)):
                    TransformerNet.answerer = answerer
                    sides[side].append(played(net, trial))
            (before, regret), (now, same) = (min(turns) for turns in sides.values())
            assert abs(regret - same) < 1e-3 * regret, "the two sides have played other games"
            print(
                f"{model['kind']:12}{task['kind']:16}{before:12.2f}{now:9.2f}{before / now:8.1f}"
                f"{regret:11.4f}{same:11.4f}",
                flush=True,
            )


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    main()
