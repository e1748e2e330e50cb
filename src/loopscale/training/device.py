"""Where and in what precision a trial computes.

`torch.compile` is not offered. Its compilation would be paid by each of a study's hundreds of short trials;
whether it pays in long ones, or on a GPU, has not been measured.
"""

import contextlib
import os
from typing import Literal

import torch

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
"""No AMX unless asked for: a virtual machine announced it, and killed the process (SIGILL) at the first bf16
product. oneDNN reads this at its first product, so it is set on import."""

Precision = Literal["float32", "bf16", "float64"]


def pick(gpu: float | Literal["auto"] = "auto") -> str:
    """The device for a trial that was given so much of a GPU; `auto` takes one where there is one.

    Raises ValueError where a GPU is asked for and torch sees none. Ray hides the GPUs of others, so it is the
    first.
    """
    if gpu == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if gpu > 0 and not torch.cuda.is_available():
        raise ValueError(f"resources ask for {gpu} of a GPU and torch sees none; 0 trains on the CPU")
    return "cuda" if gpu > 0 else "cpu"


def prepare(threads: int) -> None:
    """Set what is global in torch. For every trial anew: the actor that runs it has run others, and settings
    leak.

    One thread a trial unless the machine is otherwise idle: with two and one busy neighbour a step took 20
    times as long, spinning at barriers. TF32 is off, whatever the one before asked for.
    """
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("highest")
    torch.set_default_dtype(torch.float32)


def dtype(precision: Precision) -> torch.dtype:
    """Of weights, optimiser, loss and read-out."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: Precision, device: str) -> contextlib.AbstractContextManager[object]:
    """What the net's matrix products run in.

    Without autocast's cache of cast weights: where it keeps one from a loop without gradient as a constant,
    the supervised loops train nothing. torch 2.13 does not keep those, others that are allowed were not
    tried.
    """
    if precision != "bf16" or device == "meta":
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)
