"""Linear layers whose products run in the faster of two libraries.

torch computes float32 products on a CPU with MKL, which is fast on Intel processors and slow on others. oneDNN is also
part of torch. On one thread of an AMD EPYC with AVX-512, MKL reached 72 to 101 GFLOP/s and oneDNN 170 to 220. On an
Intel Xeon with AVX-512, MKL reached 150 to 160 and oneDNN 140 to 155. Every process measures both before its first
product. `benchmarks/step.py` prints the rates.
"""

import time
from collections.abc import Callable
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
SMALLEST_GRADIENT = 48 * 64
"""Gradients of smaller weights are products in MKL: oneDNN first copies a matrix in transposed order."""
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


def rates(rows: int = 1024, width: int = 128, rounds: int = 12) -> dict[Library, float]:
    """GFLOP/s of both libraries on this machine, for a product (rows x width) (width x 2 width). Takes 20 ms.

    The libraries take turns, because the first products of a process are several times slower than later ones.
    Products of one library after the other made MKL look half as fast as oneDNN on an Intel Xeon. There both are
    equally fast.
    """
    x, weight = torch.ones(rows, width), torch.ones(2 * width, width)
    products: dict[Library, Callable[[], Tensor]] = {
        "mkl": lambda: F.linear(x, weight),
        "onednn": lambda: _onednn(x, weight),
    }
    seconds = dict.fromkeys(products, float("inf"))
    for _ in range(rounds):
        for library, multiply in products.items():
            start = time.perf_counter()
            multiply()
            seconds[library] = min(seconds[library], time.perf_counter() - start)
    flops = 4 * rows * width**2
    return {library: flops / least / 1e9 for library, least in seconds.items()}


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
    if min(weight.shape) < SMALLEST or not in_onednn(x):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():
        return _onednn(x, weight, bias)
    return _Product.apply(x, weight, bias)


def in_onednn(x: Tensor) -> bool:
    """True if products of `x` run in oneDNN: only in float32 on a CPU."""
    return (
        x.dtype == torch.float32 and x.is_cpu and not torch.is_autocast_enabled("cpu") and used() == "onednn"
    )


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weightᵀ + bias in the library of `use`, for functions that compute their gradients themselves."""
    if in_onednn(x):
        return _onednn(x, weight, bias)
    # As rows, because torch takes a tenth longer for a product with a third dimension.
    return F.linear(_rows(x), weight, bias).view(*x.shape[:-1], -1)


def product_plus(x: Tensor, weight: Tensor, bias: Tensor, other: Tensor) -> Tensor:
    """x weightᵀ + bias + other, as `product`."""
    if in_onednn(x):
        return torch.ops.mkldnn._linear_pointwise.binary(x, other, weight, bias, "add")
    sums = _rows(other) + bias
    # In place, because a product with a bias first copies the bias. The count of FLOPs does not know `addmm_`.
    torch.addmm(sums, _rows(x), weight.t(), out=sums)
    return sums.view(other.shape)


def head_products(x: Tensor, weight: Tensor, bias: Tensor | None, heads: int) -> Tensor:
    """x weightᵀ + bias in MKL, apart for every head, as a tensor [heads, rows, width of a head].

    MKL computes these products without a copy. Where `product` runs in oneDNN, one product and a copy are faster.
    """
    rows, weights = _rows(x), weight.unflatten(0, (heads, -1))
    apart = torch.bmm(rows.expand(heads, *rows.shape), weights.transpose(1, 2))
    return apart if bias is None else apart.add_(bias.view(heads, 1, -1))


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


def activated_product(x: Tensor, weight: Tensor, bias: Tensor, activation: Literal["gelu", "relu"]) -> Tensor:
    """The activation of x weightᵀ + bias, as `product`."""
    if in_onednn(x):
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "none")
    before = product(x, weight, bias)
    return before.relu_() if activation == "relu" else F.gelu(before)


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of the weight, gradientᵀ x, over all rows of both, in the library of `use`."""
    rows, inputs = gradient.reshape(-1, gradient.shape[-1]), x.reshape(-1, x.shape[-1])
    if rows.shape[1] * inputs.shape[1] < SMALLEST_GRADIENT or not in_onednn(x):
        return rows.t() @ inputs
    if rows.shape[1] <= inputs.shape[1]:  # oneDNN copies its first argument in transposed order
        return _onednn(rows.t(), inputs.t())
    return _onednn(inputs.t(), rows.t()).t()


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
        return (
            product(gradient, weight.t()) if wants_x else None,
            weight_gradient(gradient, x) if wants_weight else None,
            gradient.reshape(-1, gradient.shape[-1]).sum(0) if wants_bias else None,
        )
