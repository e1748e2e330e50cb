"""`bound` and `verify`: theorems from the command line."""

import pytest


def test_bound_prints_a_value_and_its_meaning(loopscale):
    told = loopscale("bound", "newton_residual", "--set", "kappa=2", "--set", "loops=5")
    assert told.code == 0
    assert "newton_residual: residual, exact" in told.out
    assert "0.000100452" in told.out
    found = loopscale("bound", "newton_residual", "--set", "kappa=2", "--set", "loops=5", "--json").json
    assert found["value"] == pytest.approx(1.0045e-4, rel=1e-3)
    assert found["settings"]["kappa"] == 2


def test_bound_prints_values_and_slopes_along_a_setting(loopscale):
    found = loopscale(
        "bound", "bayes_ridge", "--set", "noise=1", "--along", "point=40,80,10000", "--json"
    ).json
    assert [row["point"] for row in found["values"]] == [40, 80, 10000]
    assert found["values"][0]["value"] == pytest.approx(0.9501, rel=1e-3)
    assert found["values"][2]["slope"] == pytest.approx(-1, abs=0.01)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("newton_res",), "there is no bound 'newton_res'; did you mean newton_residual?"),
        (("newton_residual", "--set", "loops=x"), "loops is 'x'; write a whole number, such as 10"),
        (
            ("newton_residual", "--set", "loop=1"),
            "newton_residual has no setting 'loop'; did you mean loops?",
        ),
        (("newton_residual", "--along", "loop=1"), "newton_residual has no setting 'loop'; it has dim,"),
        (("newton_residual", "--along", "loops=0,1"), "loops is 0; write a number above 0"),
        (
            ("newton_residual", "--along", "loops"),
            "--along loops is no list of values; write it as setting=1,2,5",
        ),
        (("gmm_bayes", "--set", "snr=-1"), "snr is -1; write 0.0 or more"),
    ],
)
def test_a_mistake_with_a_bound_is_one_line(loopscale, words, said):
    told = loopscale("bound", *words)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1


def test_verify_prints_every_step_of_an_exact_construction(loopscale):
    told = loopscale("verify", "newton", "--set", "variant=relu")
    assert told.code == 0
    assert "net (algoformer)" in told.out
    assert "Exact: all distances are within rounding." in told.out
    assert len([line for line in told.out.splitlines() if line.strip()[:2].strip().isdigit()]) == 12


def test_verify_measures_the_order_of_a_limit(loopscale):
    found = loopscale("verify", "newton", "--set", "variant=sink", "--set", "expansion=2", "--json").json
    assert found["holds"]
    assert found["limit"]["expected"] == 2
    assert found["limit"]["measured"] == pytest.approx(2, abs=0.05)
    low, high = found["limit"]["interval"]
    assert low < found["limit"]["measured"] < high


@pytest.mark.slow
def test_verify_prints_the_sizes_of_the_source_beside_the_sizes_of_the_net(loopscale):
    told = loopscale("verify", "principal_components", "--set", "iterations=10", "--set", "polish=0").out
    row = next(line for line in told.splitlines() if line.split()[:1] == ["layers"])
    assert row.split() == [
        "layers",
        "67",
        *["2τ", "+", "4k", "+", "1", "=", "33"],
    ]  # 67 = 1 + 3 · 2 · 10 + 3 · 2, for k = 3
    assert "C λ₁^d / ε²" in told
    assert "not stated" in told


def test_verify_separates_statements_of_the_source_from_derivations(loopscale):
    told = loopscale("verify", "newton", "--set", "variant=sink", "--set", "expansion=2").out
    assert "The source states: one loop is one Newton step, arbitrarily close for c to 0" in told
    assert "as derived here: order 2. The source states no order." in told
    found = loopscale("verify", "ucb_vi", "--json").json["stated"]
    assert (found["accuracy"], found["layers"], found["heads"]) == ("exact", "2H + 8 = 14", "not stated")


def test_verify_exits_with_1_if_the_net_is_not_exact(loopscale):
    """A start beyond the open interval: the largest direction never converges, and rounding grows."""
    told = loopscale("verify", "newton", "--set", "variant=relu", "--set", "start=2")
    assert told.code == 1
    assert "Not exact: a distance is above rounding." in told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nwton",), "there is no construction 'nwton'; did you mean newton?"),
        (("newton", "--set", "variant=snk"), "variant is 'snk'; did you mean sink?"),
        (("newton", "--set", "start"), "--set start is no assignment"),
        (
            ("newton", "--set", "expansion=1"),
            "construction newton requires expansion 2 or 4 with mirrored keys",
        ),
    ],
)
def test_a_mistake_with_a_construction_is_one_line(loopscale, words, said):
    told = loopscale("verify", *words)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1
