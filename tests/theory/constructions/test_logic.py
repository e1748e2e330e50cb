"""Piecewise linear functions, gates and Newton steps, each in a net of one block, compared with a formula."""

import math

import pytest
import torch

from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.logic import gate_terms, newton_step
from loopscale.theory.constructions.piecewise import Piecewise, geometric_knots, integer_knots, uniform_knots

ROWS = StateRows(x=1, y=1, id=5, one=1, flag=1)
FLAG = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)


def block_output(plan: BlockPlan, x: torch.Tensor) -> torch.Tensor:
    """The row y of five tokens after a block of relu attention with this plan."""
    positions = ROWS.state(5, one=1.0, id=torch.eye(5), flag=FLAG)
    net = Design(ROWS, ROWS["x"].T, ROWS["y"], positions, [plan], attention="relu").net(5)
    return net(x[None, :, None], 1)[0, 0, :, 0]


def self_gate() -> list:
    return gate_terms(ROWS["one"], 1000.0, (ROWS["id"], ROWS["id"]))


@pytest.mark.parametrize(("power", "constant"), [(-1.0, 1 / 4), (-0.5, 3 / 32), (0.5, 1 / 32)])
def test_piecewise_powers_have_the_predicted_relative_error(power: float, constant: float):
    t = geometric_knots(1e-3, 1e3, 5000)
    for pieces in (64, 256):
        construction = Piecewise.through(lambda t: t**power, geometric_knots(1e-3, 1e3, pieces), -1)
        off = ((construction(t) - t**power) / t**power).abs().max().item()
        assert off == pytest.approx(constant * (math.log(1e6) / pieces) ** 2, rel=0.2)


def test_functions_of_counts_are_exact_and_constant_beyond_the_last_knot():
    construction = Piecewise.through(torch.reciprocal, integer_knots(1, 40), -1)
    counts = integer_knots(1, 40)
    assert (construction(counts) - 1 / counts).abs().max() < 1e-15
    assert construction(torch.tensor([41.0, 400.0]).double()).tolist() == pytest.approx([1 / 40, 1 / 40])
    assert construction(torch.zeros(1).double()).item() == pytest.approx(1.5), "the first piece continues"


@pytest.mark.parametrize(
    ("side", "knots"), [(-1, geometric_knots(0.5, 30.0, 40)), (1, uniform_knots(0.0, 30.0, 40))]
)
def test_units_and_heads_compute_the_formula_at_flagged_tokens_only(side, knots: torch.Tensor):
    x = torch.tensor([0.6, 0.0, 7.0, 4.4, 0.0], dtype=torch.float64)
    construction = Piecewise.through(torch.sin, knots, side)
    units = construction.add_units(BlockPlan(), ROWS["x"], ROWS["y"], ROWS["flag"])
    heads = construction.add_heads(
        BlockPlan(),
        (ROWS["x"], ROWS["one"]),
        (ROWS["one"], ROWS["y"]),
        (ROWS["flag"], ROWS["one"]),
        self_gate(),
    )
    for plan in (units, heads):
        assert (block_output(plan, x) - FLAG * construction(x)).abs().max() < 1e-11


def test_identity_gate_restricts_attention_to_the_token_itself():
    x = torch.tensor([2.0, -3.0, 5.0, 0.5, -10.0], dtype=torch.float64)
    product = ((ROWS["x"], ROWS["x"]), (ROWS["one"], ROWS["y"]))
    gated = BlockPlan().signed_pair([product[0]], [product[1]], self_gate())
    assert (block_output(gated, x) - x**2).abs().max() < 1e-12
    part = ROWS.part("id", 0, 2)
    gated = BlockPlan().signed_pair([product[0]], [product[1]], gate_terms(ROWS["one"], 1000.0, (part, part)))
    assert (block_output(gated, x) - torch.tensor([4.0, 9, 0, 0, 0])).abs().max() < 1e-12
    weak = BlockPlan().signed_pair(
        [product[0]], [product[1]], gate_terms(ROWS["one"], 0.5, (ROWS["id"], ROWS["id"]))
    )
    assert (block_output(weak, x) - x**2).abs().max() > 1, "a too small bound does not suppress other tokens"


def test_gate_requires_all_matches():
    flag, id = ROWS["flag"], ROWS["id"]
    plan = BlockPlan().head(
        [(ROWS["one"], ROWS["one"]), *gate_terms(ROWS["one"], 1.0, (flag, flag), (id, id))],
        [(ROWS["x"], ROWS["y"])],
    )
    x = torch.arange(1.0, 6.0, dtype=torch.float64)
    assert (block_output(plan, x) == FLAG * x).all()


def test_newton_step_squares_the_error_of_a_norm():
    off = torch.tensor([1e-2, -1e-2, 1e-3, -1e-3, 0.0], dtype=torch.float64)
    plan = newton_step(
        BlockPlan(), (ROWS["x"], ROWS["x"]), ROWS["x"], 0.5, (ROWS["one"], ROWS["one"]), self_gate()
    )
    after = block_output(plan.add(ROWS["x"], ROWS["y"]), 1 + off) - 1
    assert ((after + 1.5 * off**2).abs() <= off.abs() ** 3 + 1e-12).all()
