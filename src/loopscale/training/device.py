"""The device and the precision of a trial."""

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import torch

from loopscale.training.trial import Training

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
"""AMX is off by default. A virtual machine announced AMX, and its first bf16 product killed the process (SIGILL).
oneDNN reads this variable at its first product, so the import of this module sets the variable."""

Precision = Literal["float32", "tf32", "bf16", "float64"]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's `mallopt`."""
LARGEST_HEAP_BLOCK = 32 * 2**20
"""Bytes. The largest block for which glibc accepts the heap in place of a mapping of its own."""

AMPERE = (8, 0)
"""The first compute capability of NVIDIA GPUs with TF32."""


class NoGpu(RuntimeError):
    """A process that needs a GPU sees none. Every process of this host with these devices would see none."""


def pick(gpu: float | Literal["auto"] = "auto") -> str:
    """The device for a trial with a share `gpu` of a GPU. `auto` takes a GPU if torch sees one.

    The device is always the first GPU, because Ray hides the others. Raises NoGpu if the trial asks for a GPU and
    torch sees none.
    """
    if gpu == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if gpu > 0 and not torch.cuda.is_available():
        devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        which = "a GPU" if devices is None else f"the GPU {devices!r} (CUDA_VISIBLE_DEVICES)"
        here = socket.gethostname()
        raise NoGpu(f"a trial on {here} got {which}, and torch sees no GPU there; {_gpu_remedy()}")
    return "cuda" if gpu > 0 else "cpu"


def _gpu_remedy() -> str:
    if torch.version.cuda or torch.version.hip:
        return "`nvidia-smi` shows whether the GPU and its driver work"
    return f"torch {torch.__version__} is built without CUDA, so install a build with CUDA"


def prepare(threads: int) -> None:
    """Set torch's global settings. Called for every trial, because an earlier trial of the actor may have changed them.

    One thread per trial is best unless the machine is otherwise idle. With two threads and one busy neighbour a step
    took 20 times as long, because threads spin at barriers. TF32 is off, also in LSTMs, where torch turns TF32 on.
    """
    torch.set_num_threads(threads)
    _set_tf32(False)
    torch.set_default_dtype(torch.float32)
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Keep the memory of freed tensors for the next step, and return the memory of the last trial to the system.

    glibc returns free memory at the end of the heap to the system. The next step then pays for every page again: a
    quarter of the time of a step at width 64. Other C libraries keep their rules.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        libc.mallopt(M_MMAP_THRESHOLD, LARGEST_HEAP_BLOCK)


def dtype(precision: Precision) -> torch.dtype:
    """The type of weights, optimizer, loss and read-out."""
    return torch.float64 if precision == "float64" else torch.float32


@contextlib.contextmanager
def products(precision: Precision, device: str) -> Iterator[None]:
    """The context of a step, forward and backward. In TF32 a GPU rounds the factors of float32 products to 11 bits."""
    if precision != "tf32" or device != "cuda":
        yield
        return
    _set_tf32(True)
    try:
        yield
    finally:
        _set_tf32(False)


def _set_tf32(on: bool) -> None:
    torch.set_float32_matmul_precision("high" if on else "highest")
    torch.backends.cudnn.allow_tf32 = on


def shares_by_mps() -> bool:
    """Whether processes of this machine share a GPU through NVIDIA's Multi-Process Service.

    Every CUDA process finds the service by its pipe. Without the service, processes use a GPU by turns.
    """
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def execution(options: Training, device: str, compiled: bool = False, gpu: float = 1.0) -> str:
    """How the steps of a trial run on `device`, for the record. The way can differ from the settings.

    `gpu` is the trial's share of a GPU.
    """
    precision = options.precision
    if precision == "tf32" and (device != "cuda" or torch.cuda.get_device_capability() < AMPERE):
        precision = "float32 (no TF32 here)"
    words = f"{precision} on {device}"
    if options.data == "device":
        words += ", prompts drawn there"
    if compiled:
        words += ", compiled"
    if device != "cuda":
        return words
    if gpu < 1:
        words += f", {gpu:g} of a GPU {'through MPS' if shares_by_mps() else 'by turns'}"
    if options.graph == "auto":
        words += ", a step is one CUDA graph"
    return words


def autocast(precision: Precision, device: str) -> contextlib.AbstractContextManager[object]:
    """The context in which the net's matrix products run.

    The cache of cast weights is off. A cache that keeps a weight from a loop without gradient as a constant would stop
    the training of the supervised loops. torch 2.13 does not keep such weights; other allowed versions were not tried.
    """
    if precision != "bf16" or device == "meta":
        return contextlib.nullcontext()
    return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=False)
