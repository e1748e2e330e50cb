"""Linear layers in oneDNN, beside torch's own."""

import pytest
import torch
from torch import Tensor, nn

from loopscale.models import linear


@pytest.fixture(autouse=True)
def library():
    """Every test chooses the library, and the next test starts without a choice."""
    yield
    linear._chosen = None


def weights_and_gradients(layer: nn.Linear, x: Tensor) -> list[Tensor]:
    """The outputs, and the gradients of a weighted sum of them, for the inputs and for the parameters."""
    x = x.clone().requires_grad_()
    y = layer(x)
    loss = (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum()
    return [y, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("width", "out"), [(64, 192), (256, 64), (100, 65)])
@pytest.mark.parametrize("shape", [(7,), (3, 22), (2, 3, 5)])
def test_products_in_onednn_equal_torch_with_their_gradients(width: int, out: int, bias: bool, shape):
    torch.manual_seed(0)
    ours = linear.Linear(width, out, bias)
    plain = nn.Linear(width, out, bias)
    plain.load_state_dict(ours.state_dict())
    linear.use("onednn")
    x = torch.randn(*shape, width)
    for a, b in zip(weights_and_gradients(ours, x), weights_and_gradients(plain, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-4)
    turned = torch.randn(width, 5, 9).permute(2, 1, 0)  # inputs whose memory is not in order
    torch.testing.assert_close(ours(turned), plain(turned), rtol=1e-5, atol=1e-5)


def test_narrow_layers_and_double_precision_stay_with_torch_to_the_last_bit():
    linear.use("onednn")
    for width, dtype in ((32, torch.float32), (128, torch.float64)):
        layer = linear.Linear(width, 256).to(dtype)
        x = torch.randn(9, width, dtype=dtype)
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


def test_rows_are_a_part_of_the_outputs():
    layer = linear.Linear(64, 192)
    x = torch.randn(5, 64)
    for library in ("mkl", "onednn"):
        linear.use(library)
        torch.testing.assert_close(layer.rows(x, 64, 192), layer(x)[:, 64:])


def test_the_fastest_library_is_the_one_with_the_larger_rate():
    rates = linear.rates()
    assert all(rate > 0.1 for rate in rates.values())
    ratio = rates["onednn"] / rates["mkl"]
    if not 1.0 < ratio < 1.6:  # otherwise noise may decide
        assert linear.fastest() == ("onednn" if ratio > linear.FASTER else "mkl")
