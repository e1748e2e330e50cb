"""Print the processor, and the kernels that numpy, OpenBLAS and torch choose for it.

Sums and products of two kernels differ in the last digit. These lines explain a test that fails on one machine only.
"""

import os
import platform
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_info

from loopscale.models.linear import rates

torch.set_num_threads(1)


def model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


variables = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
chosen = ", ".join(f"{name}={os.environ[name]}" for name in variables if name in os.environ)
blas = ", ".join(library["architecture"] for library in threadpool_info() if "architecture" in library)
found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
products = ", ".join(f"{library} {rate:.0f}" for library, rate in rates().items())
print(
    f"processor: {model()}, {len(os.sched_getaffinity(0))} cores; {chosen or 'no kernels chosen by variables'}"
)
print(f"kernels: OpenBLAS {blas}, numpy {' '.join(found)}, torch {torch.backends.cpu.get_cpu_capability()}")
print(f"products in float32, GFLOP/s: {products}")
