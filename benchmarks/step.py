"""Seconds and peak memory of a training step, beside a plain PyTorch reference of the same size.

    python benchmarks/step.py --size b --threads 1
    python benchmarks/step.py --size a --device cuda --json

A step is forward, backward and Adam of eq. 6: T loops. The last ΔT loops are supervised, the others have no gradient.
The reference uses `nn.TransformerEncoderLayer` (norm_first, causal mask), looped or stacked. Each case runs in its own
process, so that its peak memory is not shared. The two cases of a pair take turns of a few steps, so that other work on
the machine slows both alike.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model

TURN = 5
"""Steps of one process of a pair before the turn of the other process."""


@dataclass(frozen=True)
class Size:
    """`a` is the published size of Yang et al. and AlgoFormer, `b` trains on a laptop."""

    dim: int
    points: int
    width: int
    heads: int
    loops: int
    window: int
    layers: int
    batch: int = 64


SIZES = {
    "a": Size(dim=20, points=41, width=256, heads=8, loops=20, window=15, layers=12),
    "b": Size(dim=5, points=11, width=64, heads=4, loops=10, window=5, layers=4),
}


class Plain(nn.Module):
    """The reference: encoder layers before, in and after the loop, or stacked."""

    def __init__(self, kind: str, size: Size) -> None:
        super().__init__()

        def stack(layers: int) -> nn.ModuleList:
            return nn.ModuleList(
                nn.TransformerEncoderLayer(
                    size.width,
                    size.heads,
                    4 * size.width,
                    0.0,
                    "gelu",
                    batch_first=True,
                    norm_first=True,
                )
                for _ in range(layers)
            )

        outer = 1 if kind == "algoformer" else 0
        self.read_in, self.read_out = nn.Linear(size.dim, size.width), nn.Linear(size.width, 1)
        self.position = nn.Parameter(torch.randn(2 * size.points, size.width) * 0.02)
        self.pre, self.body, self.post = (
            stack(outer),
            stack(size.layers if kind == "gpt2" else 1),
            stack(outer),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size.width) for _ in range(3))
        self.loops = kind != "gpt2"
        mask = nn.Transformer.generate_square_subsequent_mask(2 * size.points)
        self.register_buffer("mask", mask)

    def run(self, x: Tensor, layers: nn.ModuleList, norm: nn.Module) -> Tensor:
        for layer in layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return norm(x) if len(layers) else x

    def forward(self, tokens: Tensor, steps: int, first: int, truncate: bool) -> Tensor:
        prompt = self.run(self.read_in(tokens) + self.position, self.pre, self.norms[0])
        if not self.loops:
            return self.read_out(self.run(prompt, self.body, self.norms[1])).unsqueeze(0)
        state, outputs = torch.zeros_like(prompt), []
        for step in range(1, steps + 1):
            with torch.set_grad_enabled(step >= first or not truncate):
                state = self.run(state + prompt + self.position, self.body, self.norms[1])
            if step >= first:
                outputs.append(self.read_out(self.run(state, self.post, self.norms[2])))
        return torch.stack(outputs)


def build_net(kind: str, size: Size, plain: bool) -> nn.Module:
    if plain:
        torch.manual_seed(0)
        return Plain(kind, size)
    settings = {"kind": kind, "width": size.width, "heads": size.heads}
    model = Model.model_validate(settings | ({"layers": size.layers} if kind == "gpt2" else {}))
    return model.build(Prompt(2 * size.points, size.dim, 1), stream(0, "weights"))


def stepper(kind: str, size: Size, plain: bool, device: str) -> tuple[Callable[[], None], int]:
    """A function that trains one step, and the number of weights."""
    net = build_net(kind, size, plain).to(device)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)
    tokens = torch.randn(size.batch, 2 * size.points, size.dim, generator=stream("tokens")).to(device)
    targets = torch.randn(size.batch, size.points, 1, generator=stream("targets")).to(device)
    steps = size.layers if kind == "gpt2" else size.loops
    first = steps if kind == "gpt2" else size.loops - size.window + 1

    def step() -> None:
        output = net(tokens, steps, first, truncate=kind != "gpt2")
        loss = (output[:, :, ::2] - targets).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step, sum(weight.numel() for weight in net.parameters() if weight.requires_grad)


def peak_mib(device: str) -> float:
    """MiB of the device on cuda; on a CPU, MiB of the process with its libraries."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def serve(kind: str, size: Size, plain: bool, device: str, threads: int) -> None:
    """One case in its own process: prints a line of seconds for every number of steps on stdin."""
    torch.set_num_threads(threads)
    step, weights = stepper(kind, size, plain, device)
    for _ in range(2):
        step()
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        print(json.dumps({"seconds": seconds, "weights": weights, "peak_mib": peak_mib(device)}), flush=True)


def turns(children: list["subprocess.Popen[str]"], steps: int) -> Iterator[tuple[int, dict]]:
    """The reports of both cases of a pair, in turns."""
    for done in range(0, steps, TURN):
        for index, child in enumerate(children):
            assert child.stdin
            assert child.stdout
            child.stdin.write(f"{min(TURN, steps - done)}\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"a case ended with exit code {child.wait()}")
            yield index, json.loads(line)


def pair(kind: str, options: argparse.Namespace) -> dict:
    """A model and its plain reference, measured side by side."""
    command = [sys.executable, __file__, "--serve", kind, "--size", options.size, "--device", options.device]
    command += ["--threads", str(options.threads)]
    children = [
        subprocess.Popen(command + extra, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for extra in ([], ["--plain"])
    ]
    seconds: list[list[float]] = [[], []]
    last: list[dict] = [{}, {}]
    for index, report in turns(children, options.steps):
        seconds[index] += report["seconds"]
        last[index] = report
    for child in children:
        child.communicate()
    ours, plain = (
        {
            "median_s": statistics.median(times),
            "p10_s": statistics.quantiles(times, n=10)[0],
            "peak_mib": round(report["peak_mib"]),
            "weights": report["weights"],
        }
        for times, report in zip(seconds, last, strict=True)
    )
    return {"model": kind, **ours, "plain": plain, "ratio": ours["median_s"] / plain["median_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="b")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--models", nargs="+", default=["looped", "gpt2", "algoformer"])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, SIZES[options.size], options.plain, options.device, options.threads)
        return
    rows = [pair(kind, options) for kind in options.models]
    if options.json:
        print(json.dumps({"torch": torch.__version__, **vars(options), "cases": rows}, indent=2))
        return
    print(f"size {options.size}, {options.device}, {options.threads} thread(s), {options.steps} steps")
    heads = "median s", "p10 s", "MiB", "weights", "plain s", "p10 s", "MiB", "ratio"
    print(" " * 12 + "".join(f"{head:>11}" for head in heads))
    for row in rows:
        plain = row["plain"]
        print(
            f"{row['model']:12}{row['median_s']:11.4f}{row['p10_s']:11.4f}{row['peak_mib']:11}{row['weights']:11,}"
            f"{plain['median_s']:11.4f}{plain['p10_s']:11.4f}{plain['peak_mib']:11}{row['ratio']:11.2f}"
        )


if __name__ == "__main__":
    main()
