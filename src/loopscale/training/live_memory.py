"""Memory of a step at its peak, counted tensor by tensor on any device, the meta device included."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override


class LiveMemory(TorchDispatchMode):
    """Counts the bytes of all tensors that are made inside the context, as long as they live.

    Tensors from before the context do not count. Two tensors of one storage count once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self.peak = 0
        self._outside = weakref.WeakSet[torch.UntypedStorage]()
        self._counted = weakref.WeakSet[torch.UntypedStorage]()

    @override
    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        for storage in _storages((args, kwargs)):
            if storage not in self._counted:
                self._outside.add(storage)
        result = func(*args, **kwargs)
        for storage in _storages(result):
            if storage not in self._counted and storage not in self._outside:
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        size = storage.nbytes()
        self._counted.add(storage)
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        weakref.finalize(storage, self._release, size)

    def _release(self, size: int) -> None:
        self.bytes -= size


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
