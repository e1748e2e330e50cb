"""The line with which every benchmark begins: the machine, and how fast its matrix products are.

python benchmarks/machine.py
"""

import os
from dataclasses import asdict, dataclass

import torch

from loopscale.models import linear
from loopscale.runner.machine import processor


@dataclass(frozen=True)
class Machine:
    processor: str
    cores: int
    torch: str
    library: linear.Library
    """The library of float32 products that training chooses here."""
    gflops: dict[linear.Library, float]
    """Products per second on one thread, in GFLOP/s."""
    load: float
    """Runnable processes in the last minute. Elapsed times say little if this exceeds the cores."""

    def __str__(self) -> str:
        rates = ", ".join(f"{name} {rate:.0f}" for name, rate in self.gflops.items())
        return (
            f"{self.processor}, {self.cores} cores, load {self.load:.1f}; torch {self.torch}, "
            f"products by {self.library} (GFLOP/s of one thread: {rates})"
        )

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def describe() -> Machine:
    """This machine now. Measured with one thread in some 10 ms."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rates, library = linear.rates(), linear.fastest()
    finally:
        torch.set_num_threads(threads)
    cores = len(os.sched_getaffinity(0))
    return Machine(processor(), cores, torch.__version__, library, rates, os.getloadavg()[0])


if __name__ == "__main__":
    print(describe())
