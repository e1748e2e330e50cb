"""The LSTM against its explicit equations (Hochreiter & Schmidhuber 1997, with forget gates: Gers et al. 2000)."""

import os
import subprocess
import sys

import pytest
import torch

from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.lstm import Lstm


def test_layers_compute_the_recurrence_from_a_zero_state():
    net = Lstm(layers=2, width=5).build(Prompt(length=6, dim_in=3, dim_out=1), stream(0)).double()
    tokens = torch.randn(2, 6, 3, dtype=torch.float64, generator=stream("tokens"))
    weights = net.state_dict()
    below = tokens @ weights["read_in.weight"].T + weights["read_in.bias"]
    for layer, states in enumerate(net.states(tokens, 2)):
        w, u, b, c = (
            weights[f"layers.{layer}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        hidden = cell = torch.zeros(2, 5, dtype=torch.float64)
        for at in range(6):
            input_gate, forget, new, output_gate = (below[:, at] @ w.T + hidden @ u.T + b + c).chunk(4, -1)
            cell = forget.sigmoid() * cell + input_gate.sigmoid() * new.tanh()
            hidden = output_gate.sigmoid() * cell.tanh()
            torch.testing.assert_close(states[:, at], hidden)
        below = states
    answer = below @ weights["read_out.weight"].T + weights["read_out.bias"]
    torch.testing.assert_close(net(tokens, 2)[1], answer)


WITHOUT_ONEDNN_FIRST = """
import torch
from loopscale.core.prompt import Prompt
from loopscale.models.lstm import Lstm

net = Lstm(width=8, layers=1).build(Prompt(length=6, dim_in=3, dim_out=1), torch.Generator())
tokens = torch.zeros(1, 6, 3)
with torch.autocast("cpu", torch.bfloat16):
    torch.backends.mkldnn.enabled = False
    net(tokens, 1)
    torch.backends.mkldnn.enabled = True
    net(tokens, 1)
"""


@pytest.mark.slow
def test_a_net_that_ran_without_onednn_runs_in_bf16_with_onednn_and_without_avx512():
    words = [sys.executable, "-P", "-c", WITHOUT_ONEDNN_FIRST]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    )
    assert done.returncode == 0, done.stderr
