"""Linear layers whose products run in the faster of two libraries.

torch computes float32 products on a CPU with MKL, which is fast on Intel processors and slow on others. oneDNN is also
part of torch. On one thread of an AMD EPYC with AVX-512, MKL reached 72 to 101 GFLOP/s and oneDNN 170 to 220. Every
process measures both before its first product. `benchmarks/step.py` prints the rates.
"""

import time
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from typing_extensions import override

Library = Literal["mkl", "onednn"]
"""The library of float32 products on a CPU."""

SMALLEST = 64
"""Widths below this run in MKL: oneDNN gains less there than the call costs."""
FASTER = 1.25
"""oneDNN is used from this ratio of speeds on, so that noise does not choose."""

_chosen: Library | None = None


def use(library: Library) -> None:
    """Run the products of this process in `library` from now on. A resumed trial keeps its library."""
    global _chosen
    _chosen = library


def used() -> Library:
    """The library of this process: the last choice of `use`, else the fastest."""
    return _chosen or fastest()


def rates(rows: int = 1024, width: int = 128, repetitions: int = 5) -> dict[Library, float]:
    """GFLOP/s of both libraries on this machine, for a product (rows x width) (width x 2 width). Takes 10 ms."""
    x, weight = torch.ones(rows, width), torch.ones(2 * width, width)
    products = {"mkl": lambda: F.linear(x, weight), "onednn": lambda: _onednn(x, weight)}

    def seconds(library: str) -> float:
        start = time.perf_counter()
        products[library]()
        return time.perf_counter() - start

    flops = 4 * rows * width**2
    return {
        library: flops / min(seconds(library) for _ in range(1 + repetitions)) / 1e9
        for library in ("mkl", "onednn")
    }


@cache
def fastest() -> Library:
    """Measured once per process. The faster library on this machine; MKL unless oneDNN is clearly faster."""
    measured = rates()
    return "onednn" if measured["onednn"] > FASTER * measured["mkl"] else "mkl"


class Linear(nn.Linear):
    """`nn.Linear` in the library of `use`. Weights, initial values and state dict are those of `nn.Linear`."""

    @override
    def forward(self, input: Tensor) -> Tensor:
        return _linear(input, self.weight, self.bias)

    def rows(self, input: Tensor, start: int, end: int) -> Tensor:
        """The outputs `start` .. `end` - 1 alone."""
        return _linear(input, self.weight[start:end], None if self.bias is None else self.bias[start:end])


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if (
        min(weight.shape) < SMALLEST
        or x.dtype != torch.float32
        or x.device.type != "cpu"
        or torch.is_autocast_enabled("cpu")
        or used() == "mkl"
    ):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _onednn(x, weight, bias)
    return _Product.apply(x, weight, bias)


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias."""
    if (
        torch.compiler.is_compiling()
    ):  # torch's compiler takes the operator for one with constant weights, and fails
        return torch.ops.loopscale.product(x, weight, bias)
    return _product(x, weight, bias)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _shape(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weight.shape[0])


_library = torch.library.Library("loopscale", "DEF")
_library.define("product(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
_library.impl("product", _product, "CPU")
_library.impl("product", _shape, "Meta")


class _Product(torch.autograd.Function):
    """x weightᵀ + bias in oneDNN, with its gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _onednn(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator loses the names of parameters
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        (gradient,), (x, weight) = grad_outputs, ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        rows, inputs = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
        return (
            _onednn(gradient, weight.t()) if wants_x else None,
            _weight_gradient(rows, inputs) if wants_weight else None,
            rows.sum(0) if wants_bias else None,
        )


def _weight_gradient(rows: Tensor, inputs: Tensor) -> Tensor:
    """rowsᵀ inputs. oneDNN copies its first argument in transposed order: the narrower matrix costs less."""
    if rows.shape[1] <= inputs.shape[1]:
        return _onednn(rows.t(), inputs.t())
    return _onednn(inputs.t(), rows.t()).t().contiguous()
