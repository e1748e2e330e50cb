"""When torch's compiler makes the forward and backward pass of a trial, and how.

Compiled code is faster where MKL computes the products: a step of AlgoFormer takes 0.82 of the plain time. With oneDNN
a compiled step takes 1.06 of the plain time, because the compiler cannot merge other operations into oneDNN's products.
`benchmarks/step.py --compile` prints both ratios (measured at width 64 on one thread of an AMD EPYC).
"""

import os
import shutil
from collections.abc import Callable
from typing import Literal

from loopscale.models import linear
from loopscale.models.base import Answers, Net

Compile = Literal["auto", "on", "off"]

START_UP = 76.0
"""Seconds from the import of the compiler to the first compiled step of AlgoFormer, with an empty cache."""
NOMINAL_RATE = 6e10
"""FLOP/s of one thread, to plan the time of a trial. A constant, so that the choice depends on the trial only."""
WORTH = 10
"""`auto` compiles if the planned time of the trial is more than this many start-ups."""


def compiles(setting: Compile, flops: float) -> bool:
    """Whether a trial of `flops` FLOPs starts compiled on the CPU of this host."""
    if setting != "auto":
        return setting == "on"
    long = flops / NOMINAL_RATE > WORTH * START_UP
    return long and linear.fastest() == "mkl" and _has_cpp_compiler()


def compiled_answers(net: Net, setting: Compile) -> Callable[..., Answers]:
    """`net.answers`, compiled at the first call for the shapes of that call. Trials of one shape share a cache on disk.

    With `auto` a net that the compiler cannot treat runs as it is. Raises RuntimeError with `on` and without a C++
    compiler.
    """
    if setting == "on" and not _has_cpp_compiler():
        raise RuntimeError(
            "training.compile on needs a C++ compiler (g++ or clang++), and this host has none"
        )
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # no processes beside the trial's own
    import torch._dynamo  # here, because the import takes two seconds of processor

    torch._dynamo.config.suppress_errors = setting != "on"
    return torch.compile(net.answers, dynamic=False)


def _has_cpp_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)
