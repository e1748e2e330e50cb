"""The loss over a vocabulary in parts, beside the loss of all logits at once: seconds and memory of a step.

A looped net reads sentences of 128 tokens and predicts 16,000 sub-words after each of ten loops. A batch has 8 pairs.
Each side runs in processes of its own, by turns, because the peak of memory never falls.

    python benchmarks/vocabulary.py [--turns 3] [--pairs 8]
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from loopscale.core.prompt import Batch
from loopscale.models.base import Model
from loopscale.tasks.translation import Translation
from loopscale.training.objective import loss_in_parts

LENGTH, WORDS, LOOPS = 128, 16_000, 10
STEPS = 3
"""Measured steps, after one that is not measured."""


def step(parts: bool, pairs: int) -> dict[str, float]:
    """Seconds of a forward and a backward pass, and what they add to the peak of memory in MiB."""
    torch.set_num_threads(1)
    task = Translation(length=LENGTH, vocabulary=WORDS)
    net = Model.model_validate({"kind": "looped", "width": 64}).build(
        task.prompt, torch.Generator().manual_seed(0)
    )
    batch = _sentences(pairs)
    before, times = _peak(), list[float]()
    for _ in range(STEPS + 1):
        start = time.process_time()
        net.zero_grad()
        if parts:
            loss = loss_in_parts(net.read_out, task, net.hidden(batch, LOOPS, 1), batch)
        else:
            loss = task.loss(net.answers(batch, LOOPS, 1), batch).mean()
        loss.backward()
        times.append(time.process_time() - start)
    return {"seconds": statistics.median(times[1:]), "mib": _peak() - before, "loss": float(loss)}


def _sentences(pairs: int) -> Batch:
    """Random tokens, of which the last 40 % are targets, as in German-English corpora."""
    tokens = torch.randint(WORDS, (pairs, LENGTH + 1), generator=torch.Generator().manual_seed(0))
    weights = (torch.arange(LENGTH) >= 0.6 * LENGTH).float().expand(pairs, -1)
    return Batch(tokens[:, :-1, None], tokens[:, 1:], torch.arange(LENGTH), None, weights / weights[0].sum())


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--turns", type=int, default=3)
    asked.add_argument("--pairs", type=int, default=8)
    asked.add_argument("--side", choices=("parts", "whole"), help=argparse.SUPPRESS)
    chosen = asked.parse_args()
    if chosen.side:
        print(json.dumps(step(chosen.side == "parts", chosen.pairs)))
        return
    found: dict[str, list[dict[str, float]]] = {"parts": [], "whole": []}
    for _ in range(chosen.turns):
        for side, results in found.items():
            command = [sys.executable, __file__, "--side", side, "--pairs", str(chosen.pairs)]
            results.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    logits = 4 * LOOPS * chosen.pairs * LENGTH * WORDS / 2**20
    print(f"{chosen.pairs} pairs, {LOOPS} loops: {logits:,.0f} MiB of logits at once")
    print("| loss | seconds a step | memory above the net (MiB) |\n|---|---|---|")
    medians = dict[str, dict[str, float]]()
    for side, results in found.items():
        medians[side] = {name: statistics.median(each[name] for each in results) for name in results[0]}
        print(f"| {side} | {medians[side]['seconds']:.2f} | {medians[side]['mib']:,.0f} |")
    ratios = (medians["parts"][name] / medians["whole"][name] for name in ("seconds", "mib"))
    print("ratio: {:.2f} in seconds, {:.2f} in memory".format(*ratios))
    difference = abs(medians["parts"]["loss"] / medians["whole"]["loss"] - 1)
    print(f"relative difference of the losses: {difference:.0e}")


if __name__ == "__main__":
    main()
