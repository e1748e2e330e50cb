"""The memory limit of a trial: a larger trial runs out of memory, and no other trial notices."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch

from loopscale.runner.on_ray.worker import memory_limit


def in_own_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of `function` in a process of its own, because the limit changes the process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def allocate(asked: list[tuple[float | None, int]]) -> list[str]:
    """Allocate a tensor of each size in MiB under each limit in GiB. Returns "fits" or the error of each."""
    results: list[str] = []
    for limit, size in asked:
        try:
            with memory_limit(limit, 0):
                torch.ones(size * 2**18)
            results.append("fits")
        except (MemoryError, RuntimeError) as error:
            results.append(type(error).__name__)
    return results


@pytest.mark.slow
def test_a_process_gets_its_limit_and_no_more_and_works_afterwards():
    asked = [(2.0, 256), (2.0, 4096), (2.0, 256), (2.0, 4096), (None, 3000), (0.01, 1), (2.0, 256)]
    assert in_own_process(allocate, asked) == [
        "fits",
        "RuntimeError",
        "fits",
        "RuntimeError",
        "fits",  # no limit
        "MemoryError",  # the process itself needs more than this limit
        "fits",
    ]


def allocate_on_gpu(shares: list[float]) -> list[bool]:
    """Whether 60 % of the GPU's memory can be allocated under each share."""
    total = torch.cuda.get_device_properties(0).total_memory
    results: list[bool] = []
    for share in shares:
        try:
            with memory_limit(None, share):
                torch.empty(int(0.6 * total), dtype=torch.uint8, device="cuda")
            results.append(True)
        except torch.OutOfMemoryError:
            results.append(False)
        torch.cuda.empty_cache()
    return results


@pytest.mark.cuda
def test_a_share_of_a_gpu_holds_no_more_than_its_share_of_the_memory():
    assert in_own_process(allocate_on_gpu, [0.5, 1.0, 0.5, 0.8]) == [False, True, False, True]
