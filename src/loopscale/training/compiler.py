"""When torch's compiler makes the forward and backward pass of a trial, and how.

Compiled code is faster where MKL computes the products: a step of AlgoFormer takes 0.82 of the plain time. With oneDNN
a compiled step takes 1.06 of the plain time, because the compiler cannot merge other operations into oneDNN's products.
`benchmarks/step.py --compile` prints both ratios (measured at width 64 on one thread of an AMD EPYC).
"""

import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
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
CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""The environment variable with the folder of the compiler's cache."""


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
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    os.environ[CACHE] = str(cache_of_processor(Path(cache_dir())))
    torch._dynamo.config.suppress_errors = setting != "on"
    return torch.compile(net.answers, dynamic=False)


def cache_of_processor(folder: Path) -> Path:
    """The folder below `folder` with the compiled code of this processor.

    torch finds kept code by the net and the shapes, whatever processor the code was made for. A kernel for AVX-512
    that a processor with AVX2 compiles again fills half of its results, and the other half keeps old memory.
    Hosts of a cluster can share the folder, and a virtual machine can move to another processor.
    """
    name = f"processor-{_processor()}"
    return folder if folder.name == name else folder / name


@cache
def _processor() -> str:
    """A digest of the processor's model and instructions, and of the limit that torch is given for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = [platform.processor()]
    known = ("model name", "cpu family", "model\t", "flags", "Features", "CPU implementer", "CPU part")
    facts = {line for line in lines if line.startswith(known)} or {platform.processor()}
    facts |= {platform.machine(), os.environ.get("ATEN_CPU_CAPABILITY", "")}
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:12]


def _has_cpp_compiler() -> bool:
    return any(shutil.which(name) for name in (os.environ.get("CXX", ""), "g++", "clang++") if name)
