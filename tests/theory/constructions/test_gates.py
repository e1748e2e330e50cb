"""Functions between knots, in units and in heads, and gates, each in a net of one block and held against a formula."""

import math

import pytest
import torch

from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.gates import alike, newton
from loopscale.theory.constructions.piecewise import Piecewise, even, geometric, whole
from loopscale.theory.constructions.plan import Plan, Rows

ROWS = Rows(x=1, y=1, id=5, one=1, flag=1)
FLAG = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0], dtype=torch.float64)


def passed(plan: Plan, x: torch.Tensor) -> torch.Tensor:
    """What a block of relu attention with this plan leaves in y, of five tokens."""
    positions = ROWS.state(5, one=1.0, id=torch.eye(5), flag=FLAG)
    net = Design(ROWS, ROWS["x"].T, ROWS["y"], positions, [plan], attention="relu").net(5)
    return net(x[None, :, None], 1)[0, 0, :, 0]


def own() -> list:
    return alike(ROWS["one"], 1000.0, (ROWS["id"], ROWS["id"]))


@pytest.mark.parametrize(("power", "constant"), [(-1.0, 1 / 4), (-0.5, 3 / 32), (0.5, 1 / 32)])
def test_powers_are_off_by_what_the_length_of_a_piece_says(power: float, constant: float):
    t = geometric(1e-3, 1e3, 5000)
    for pieces in (64, 256):
        made = Piecewise.through(lambda t: t**power, geometric(1e-3, 1e3, pieces), -1)
        off = ((made(t) - t**power) / t**power).abs().max().item()
        assert off == pytest.approx(constant * (math.log(1e6) / pieces) ** 2, rel=0.2)


def test_functions_of_counts_are_exact_and_flat_beyond_the_far_knot():
    made = Piecewise.through(torch.reciprocal, whole(1, 40), -1)
    counts = whole(1, 40)
    assert (made(counts) - 1 / counts).abs().max() < 1e-15
    assert made(torch.tensor([41.0, 400.0]).double()).tolist() == pytest.approx([1 / 40, 1 / 40])
    assert made(torch.zeros(1).double()).item() == pytest.approx(1.5), "on along the first piece"


@pytest.mark.parametrize(("side", "knots"), [(-1, geometric(0.5, 30.0, 40)), (1, even(0.0, 30.0, 40))])
def test_units_and_heads_compute_the_formula_at_flagged_tokens_alone(side, knots: torch.Tensor):
    x = torch.tensor([0.6, 0.0, 7.0, 4.4, 0.0], dtype=torch.float64)
    made = Piecewise.through(torch.sin, knots, side)
    units = made.units(Plan(), ROWS["x"], ROWS["y"], ROWS["flag"])
    heads = made.heads(
        Plan(), (ROWS["x"], ROWS["one"]), (ROWS["one"], ROWS["y"]), (ROWS["flag"], ROWS["one"]), own()
    )
    for plan in (units, heads):
        assert (passed(plan, x) - FLAG * made(x)).abs().max() < 1e-11


def test_a_token_hears_itself_alone_and_without_identity_nobody():
    x = torch.tensor([2.0, -3.0, 5.0, 0.5, -10.0], dtype=torch.float64)
    product = ((ROWS["x"], ROWS["x"]), (ROWS["one"], ROWS["y"]))
    gated = Plan().pair([product[0]], [product[1]], own())
    assert (passed(gated, x) - x**2).abs().max() < 1e-12
    part = ROWS.part("id", 0, 2)
    gated = Plan().pair([product[0]], [product[1]], alike(ROWS["one"], 1000.0, (part, part)))
    assert (passed(gated, x) - torch.tensor([4.0, 9, 0, 0, 0])).abs().max() < 1e-12
    weak = Plan().pair([product[0]], [product[1]], alike(ROWS["one"], 0.5, (ROWS["id"], ROWS["id"])))
    assert (passed(weak, x) - x**2).abs().max() > 1, "a bound that is too small lets others through"


def test_alike_is_an_and_of_its_matches():
    flag, id = ROWS["flag"], ROWS["id"]
    plan = Plan().head(
        [(ROWS["one"], ROWS["one"]), *alike(ROWS["one"], 1.0, (flag, flag), (id, id))],
        [(ROWS["x"], ROWS["y"])],
    )
    x = torch.arange(1.0, 6.0, dtype=torch.float64)
    assert (passed(plan, x) == FLAG * x).all()


def test_a_newton_step_squares_what_a_norm_is_off_by():
    off = torch.tensor([1e-2, -1e-2, 1e-3, -1e-3, 0.0], dtype=torch.float64)
    plan = newton(Plan(), (ROWS["x"], ROWS["x"]), ROWS["x"], 0.5, (ROWS["one"], ROWS["one"]), own())
    after = passed(plan.add(ROWS["x"], ROWS["y"]), 1 + off) - 1
    assert ((after + 1.5 * off**2).abs() <= off.abs() ** 3 + 1e-12).all()
