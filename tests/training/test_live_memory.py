import pytest
import torch

from loopscale.training.live_memory import LiveMemory


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_live_tensors_count_until_they_are_freed(device: str):
    outside = torch.empty(1000, device=device)
    with LiveMemory() as memory:
        first = outside + 1
        second = first * 2
        assert memory.bytes == 8000
        del first
        assert (memory.bytes, memory.peak) == (4000, 8000)
        part = second.view(10, 100)[:5]
        del second
        assert memory.bytes == 4000, "a view keeps its storage"
        del part
        assert memory.bytes == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_tensors_from_before_do_not_count(device: str):
    outside = torch.empty(1000, device=device)
    with LiveMemory() as memory:
        outside.add_(1)
        part = outside[:10]
        assert memory.peak == 0
        del part
