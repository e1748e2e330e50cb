"""Seconds and peak memory of a training step, beside other code on the same work.

    python benchmarks/step.py --size b --against v0.1.0
    python benchmarks/step.py --size a --batch 8 --models algoformer
    python benchmarks/step.py --size b --compile --products mkl --steps 60
    python benchmarks/step.py --size a --device cuda --json
    python benchmarks/step.py --size b --device cuda --optimizer muon

A step is forward, backward and the optimizer, of eq. 6: T loops. The last ΔT loops are supervised, the others have no
gradient. The loss covers the x tokens. The sides are:

- `ours`: This code.
- `plain`: `nn.TransformerEncoderLayer`s of the same size (norm_first, causal mask), looped or stacked.
- `earlier`, with `--against`: This project's code at another commit.
- `compiled`, with `--compile`: This code through torch's compiler.
- `graph`, on a GPU: This code as a CUDA graph.
- `mkl` and `onednn`, with `--libraries`: This code with the products of one library.

--products chooses the library of this code's products instead of the faster library. Each side runs in its own process,
so that its peak memory is its own. The sides take turns of a few steps, so that other work slows all alike.

The least time of a step stands beside the median. Other work empties the caches at every interruption, and the least
time contains the fewest interruptions.

The FLOP limit is the time of the step's matrix products (forward and backward, counted) at the best product rate that
the machine reached at the start.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from earlier_code import code_at
from torch import Tensor, nn

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.training.device import prepare

TURN = 5
"""Steps of one side before the turn of the next side."""


@dataclass(frozen=True)
class Size:
    """`a` is the published size of Yang et al. and AlgoFormer, `b` trains on a laptop, `q` is the quickstart's size."""

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
    "q": Size(dim=2, points=8, width=32, heads=2, loops=6, window=3, layers=4),
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


LR = 1e-4


def optimizers_of(net: nn.Module, kind: str, plain: bool, graph: bool) -> list[Any]:
    """Optimizers of all weights. Muon of the plain side is torch's, and has the same matrices as Muon of this code."""
    if kind == "adam":
        return [torch.optim.Adam(net.parameters(), lr=LR, fused=True, capturable=graph)]
    if plain:
        layers = [part for part in net.modules() if isinstance(part, nn.TransformerEncoderLayer)]
        hidden = {id(weight): weight for part in layers for weight in part.parameters() if weight.ndim == 2}
        others = [weight for weight in net.parameters() if id(weight) not in hidden]
        return [
            torch.optim.Muon(hidden.values(), LR, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            torch.optim.Adam(others, lr=LR, fused=True),
        ]
    from loopscale.optimizers.base import Optimizer  # here, because an earlier commit may lack this module

    optimizer = Optimizer.model_validate({"kind": kind}).build(net, LR)
    if graph:  # as `Learner` does
        device = next(net.parameters()).device
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"], device=device)
            if "capturable" in group:
                group["capturable"] = True
    return [optimizer]


def stepper(
    kind: str,
    size: Size,
    plain: bool,
    device: str,
    optimizer: str = "adam",
    compiled: bool = False,
    graph: bool = False,
) -> tuple[Callable[[], None], nn.Module]:
    """A function that trains one step, and the net. With `graph` a step on a GPU is one CUDA graph."""
    net = build_net(kind, size, plain).to(device)
    optimizers = optimizers_of(net, optimizer, plain, graph)
    tokens = torch.randn(size.batch, 2 * size.points, size.dim, generator=stream("tokens"))
    targets = torch.randn(size.batch, size.points, 1, generator=stream("targets"))
    queries = torch.arange(0, 2 * size.points, 2)
    batch = Batch(tokens, targets, queries, None).to(device)
    steps = size.layers if kind == "gpt2" else size.loops
    first = steps if kind == "gpt2" else size.loops - size.window + 1
    truncate = kind != "gpt2"

    if compiled:
        from loopscale.training.compiler import compiled_answers

        net.answers = compiled_answers(net, "on")

    def answers(batch: Batch) -> Tensor:
        if hasattr(net, "answers"):
            return net.answers(batch, steps, first, truncate)
        return net(batch.tokens, steps, first, truncate)[
            :, :, batch.queries
        ]  # plain code, or an earlier commit

    def update(batch: Batch) -> Tensor:
        for part in optimizers:
            part.zero_grad()
        loss = (answers(batch) - batch.targets).square().mean()
        loss.backward()
        for part in optimizers:
            part.step()
        return loss.detach()

    if graph:
        from loopscale.training.graph import GraphedStep  # here, because an earlier commit lacks this module

        update = GraphedStep(update)

    def step() -> None:
        update(batch)
        if device == "cuda":
            torch.cuda.synchronize()

    return step, net


def peak_mib(device: str) -> float:
    """MiB of the device on cuda; on a CPU, MiB of the process with its libraries."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def serve(options: argparse.Namespace) -> None:
    """One side in its own process: prints a line of seconds for every number of steps on stdin."""
    if options.plain:
        torch.set_num_threads(options.threads)
    else:  # as in a worker, of each version
        prepare(options.threads)
    if options.products:
        from loopscale.models import linear  # here, because an earlier commit may lack this module

        linear.use(linear.fastest() if options.products == "fastest" else options.products)
    options_of_side = options.plain, options.device, options.optimizer, options.compile, options.graph
    step, net = stepper(options.serve, chosen_size(options), *options_of_side)
    for _ in range(5):  # a graph is captured at the fourth step
        step()
    weights = sum(weight.numel() for weight in net.parameters() if weight.requires_grad)
    for line in sys.stdin:
        wall, cpu = [], []
        for _ in range(int(line)):
            start, start_cpu = time.perf_counter(), time.process_time()
            step()
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - start_cpu)
        report = {"wall": wall, "cpu": cpu, "weights": weights, "peak_mib": peak_mib(options.device)}
        print(json.dumps(report), flush=True)


def turns(children: list["subprocess.Popen[str]"], steps: int) -> Iterator[tuple[int, dict]]:
    """The reports of all sides, in turns."""
    for done in range(0, steps, TURN):
        for index, child in enumerate(children):
            assert child.stdin
            assert child.stdout
            child.stdin.write(f"{min(TURN, steps - done)}\n")
            child.stdin.flush()
            line = child.stdout.readline()
            if not line:
                raise SystemExit(f"a side ended with exit code {child.wait()}")
            yield index, json.loads(line)


def measure_sides(kind: str, options: argparse.Namespace, earlier: Path | None) -> dict[str, dict]:
    """The figures of all sides of one model, measured in turns."""
    command = [sys.executable, __file__, "--serve", kind, "--size", options.size, "--device", options.device]
    command += ["--optimizer", options.optimizer]
    command += ["--threads", str(options.threads), "--batch", str(chosen_size(options).batch)]
    products = ["--products", options.products or "fastest"]  # as a worker chooses before the first step
    sides: dict[str, tuple[list[str], dict[str, str]]] = {"ours": (products, {}), "plain": (["--plain"], {})}
    if options.compile:
        sides["compiled"] = (["--compile", *products], {})
    if options.libraries:
        sides |= {library: (["--products", library], {}) for library in ("mkl", "onednn")}
    if options.device == "cuda":
        sides["graph"] = (["--graph", *products], {})
    if earlier:
        sides["earlier"] = ([], {"PYTHONPATH": str(earlier / "src")})
    children = [
        subprocess.Popen(
            command + words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        for words, environment in sides.values()
    ]
    wall: list[list[float]] = [[] for _ in children]
    cpu: list[list[float]] = [[] for _ in children]
    last: list[dict] = [{} for _ in children]
    for index, report in turns(children, options.steps):
        wall[index] += report["wall"]
        cpu[index] += report["cpu"]
        last[index] = report
    for child in children:
        child.communicate()
    return {
        side: {
            "wall_s": statistics.median(wall[index]),
            "cpu_s": statistics.median(cpu[index]),
            "least_cpu_s": min(cpu[index]),
            "peak_mib": round(last[index]["peak_mib"]),
            "weights": last[index]["weights"],
        }
        for index, side in enumerate(sides)
    }


def count_flops(kind: str, size: Size, optimizer: str) -> int:
    """FLOPs of all matrix products of one step of this code. torch does not count the products of oneDNN."""
    from torch.utils.flop_counter import FlopCounterMode

    from loopscale.models import linear

    linear.use("mkl")
    step, _ = stepper(kind, size, False, "cpu", optimizer)
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def count_kernels(kind: str, size: Size, optimizer: str) -> int:
    """Operations of one step of this code that write a tensor. On a GPU each starts at least one kernel."""
    from torch.utils._python_dispatch import TorchDispatchMode

    from loopscale.models import linear

    linear.use("mkl")  # one operation for a product, as on a GPU

    class Counter(TorchDispatchMode):
        kernels = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            self.kernels += not func.is_view and func is not torch.ops.aten.detach.default
            return func(*args, **(kwargs or {}))

    step, _ = stepper(kind, replace(size, batch=2), False, "cpu", optimizer)
    step()
    with Counter() as counter:
        step()
    return counter.kernels


def chosen_size(options: argparse.Namespace) -> Size:
    size = SIZES[options.size]
    return replace(size, batch=options.batch) if options.batch else size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=SIZES, default="b")
    parser.add_argument("--batch", type=int, help="prompts in a batch; default 64")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--optimizer", choices=["adam", "muon"], default="adam")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--models", nargs="+", default=["looped", "gpt2", "algoformer"])
    parser.add_argument("--against", metavar="COMMIT", help="also measure the code of this commit")
    libraries = ["mkl", "onednn", "fastest"]
    parser.add_argument("--products", choices=libraries, help="library of this code's products")
    parser.add_argument("--libraries", action="store_true", help="also measure this code with either library")
    parser.add_argument("--compile", action="store_true", help="also measure this code, compiled")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--graph", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options)
        return
    # Here, because a side may be an earlier commit without the module of products.
    from machine import describe

    torch.set_num_threads(options.threads)
    machine, size = describe(), chosen_size(options)
    with code_at(options.against) as earlier:
        cases = {kind: measure_sides(kind, options, earlier) for kind in options.models}
    kernels = {kind: count_kernels(kind, size, options.optimizer) for kind in options.models}
    rate = 1e9 * max(machine.gflops.values())
    limits = {kind: count_flops(kind, size, options.optimizer) / rate for kind in options.models}
    if options.json:
        found = {"machine": machine.to_dict(), "limits": limits, "kernels": kernels, "cases": cases}
        print(json.dumps({**vars(options), **found}, indent=2))
        return
    print(
        f"size {options.size}, batch {size.batch}, {options.optimizer}, {options.device}, {options.threads} threads"
    )
    print(machine)
    print(
        f"{'':12}{'side':>9}{'wall s':>9}{'cpu s':>9}{'least':>9}{'MiB':>7}"
        f"{'weights':>10}{'cpu / ours':>12}{'cpu / limit':>13}"
    )
    for kind, sides in cases.items():
        print(f"{kind}: {kernels[kind]} operations a step")
        for side, row in sides.items():
            ratio = row["cpu_s"] / sides["ours"]["cpu_s"]
            limit = f"{row['cpu_s'] / limits[kind]:13.1f}" if side == "ours" else ""
            print(
                f"{kind:12}{side:>9}{row['wall_s']:9.4f}{row['cpu_s']:9.4f}{row['least_cpu_s']:9.4f}{row['peak_mib']:7}"
                f"{row['weights']:10,}{ratio:12.2f}{limit}"
            )


if __name__ == "__main__":
    main()
