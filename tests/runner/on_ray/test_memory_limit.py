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


def allocate(limit: float | None, sizes: list[int]) -> list[str]:
    """Allocate tensors of these sizes in MiB, each under a new limit. Returns "fits" or the error of each."""
    results: list[str] = []
    for size in sizes:
        try:
            with memory_limit(limit, 0):
                torch.ones(size * 2**18)
            results.append("fits")
        except (MemoryError, RuntimeError) as error:
            results.append(type(error).__name__)
    return results


def test_a_process_gets_its_limit_and_no_more_and_works_afterwards():
    results = in_own_process(allocate, 2.0, [256, 4096, 256, 4096])
    assert results == ["fits", "RuntimeError", "fits", "RuntimeError"]
    assert in_own_process(allocate, None, [3000]) == ["fits"]


def test_a_limit_below_the_memory_of_the_process_itself_raises():
    assert in_own_process(allocate, 0.01, [1]) == ["MemoryError"]


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
