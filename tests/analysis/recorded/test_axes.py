import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.recorded.axes import in_step, independent_axes
from loopscale.analysis.recorded.results import Results
from loopscale.contracts.planted_study import Planted


def stepped() -> Planted:
    """T and ΔT in step, crossed with the dimension; the error falls as T^-0.5."""
    planted = Planted(noise=0.02)
    for dim in (2, 4):
        for loops, window in ((2, 1), (4, 3), (8, 6), (16, 12)):
            values = {"task.dim": dim, "training.loops": loops, "training.window": window}
            planted.replicated(planted.cell(f"{dim} {loops}", **values), dim * loops**-0.5)
    return planted


def test_settings_that_differ_in_step_are_one_axis():
    planted = stepped()
    assert in_step(planted.results, "training.loops") == ("training.window",)
    assert in_step(planted.results, "task.dim") == ()
    assert independent_axes(planted.results) == ["task.dim", "training.loops"]
    assert independent_axes(planted.results, least=3) == ["training.loops"]


def test_crossed_settings_are_separate_axes():
    planted = Planted()
    for loops, window in ((4, 2), (8, 2), (4, 4), (8, 4)):
        planted.cell(f"{loops} {window}", **{"training.loops": loops, "training.window": window})
    assert in_step(planted.results, "training.loops") == ()
    assert independent_axes(planted.results) == ["training.loops", "training.window"]


def tuned_rates(rates: dict[tuple[int, int], float], **beside: dict[tuple[int, int], float]) -> Planted:
    """Cells of T and condition number with a rate for each cell; the error falls as T^-0.5."""
    planted = Planted(noise=0.02)
    for (loops, condition), lr in rates.items():
        values = {"task.condition": condition, "training.loops": loops, "training.lr": lr}
        values |= {f"training.{name}": column[loops, condition] for name, column in beside.items()}
        planted.replicated(planted.cell(f"{loops} {condition}", **values), condition * loops**-0.5)
    return planted


RATES = {
    (2, 1): 2e-3,
    (4, 1): 2e-3,
    (8, 1): 1e-3,
    (16, 1): 1e-3,
    (2, 9): 4e-3,
    (4, 9): 2e-3,
    (8, 9): 2e-3,
    (16, 9): 1e-3,
}


def test_a_rate_for_each_loop_and_condition_moves_in_step_with_the_loops_in_each_group():
    warmup = {cell: int(1 / rate) for cell, rate in RATES.items()}
    for planted in (tuned_rates(RATES), tuned_rates(RATES, warmup=warmup)):
        assert "training.lr" in in_step(planted.results, "training.loops")
        assert "task.condition" not in in_step(planted.results, "training.loops")
        planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": ["power"]}]
        fitted, missing = study_laws(planted.results)
        assert missing == []
        assert [(law.cell, law.x) for law in fitted] == [
            (f"condition={condition}", (2, 4, 8, 16)) for condition in (1, 9)
        ]
        assert [law.rate for law in fitted] == pytest.approx([0.5, 0.5], abs=0.1)


def test_in_a_latin_square_the_rate_belongs_to_the_loops_and_not_to_the_task():
    square = {(2, 1): 1e-3, (4, 1): 2e-3, (2, 9): 2e-3, (4, 9): 1e-3}
    assert in_step(tuned_rates(square).results, "training.loops") == ("training.lr",)


def test_a_setting_that_differs_between_groups_alone_keeps_its_name():
    by_condition = {cell: 1e-3 * cell[1] for cell in RATES}
    assert in_step(tuned_rates(by_condition).results, "training.loops") == ()
    two_rates = Planted()
    for lr in (1e-3, 2e-3):
        for loops in (2, 4, 8):
            two_rates.cell(f"{loops} {lr}", **{"training.loops": loops, "training.lr": lr})
    assert in_step(two_rates.results, "training.loops") == ()


def test_a_law_along_settings_in_step_has_all_their_values_and_names():
    planted = stepped()
    planted.study["laws"] = [{"of": "error", "along": "training.loops", "form": ["power"]}]
    fitted, missing = study_laws(planted.results)
    assert missing == []
    assert [(law.cell, law.beside, law.x) for law in fitted] == [
        (f"dim={dim}", ("training.window",), (2, 4, 8, 16)) for dim in (2, 4)
    ]
    assert [law.rate for law in fitted] == pytest.approx([0.5, 0.5], abs=0.1)


def test_a_law_along_the_prompts_and_its_bound_use_steps_times_batch_size():
    planted = Planted(noise=0.02)
    for steps in (100, 200, 400, 800):
        values = {"training.steps": steps, "training.batch_size": 64, "task.dim": 2}
        cell = planted.cell(str(steps), **{"training.steps": steps})
        for number in range(3):
            error = (steps * 64) ** -0.5 * np.exp(0.02 * planted.rng.standard_normal())
            planted.trial(cell, "replicate", number, error, **values)
    theory = {"kind": "bai_pretrain", "noise": 1e-4, "points": 20}
    planted.study["laws"] = [{"of": "error", "along": "prompts", "form": ["power"], "theory": theory}]
    planted.rows = [row | {"task.points": 20} for row in planted.rows]
    ((law,), _) = study_laws(with_all_settings(planted))
    assert law.x == (6400, 12800, 25600, 51200), law.note
    assert law.note == ""
    assert (law.predicted, law.rate) == pytest.approx((0.5, 0.5), abs=0.05)
    assert law.judgement.verdict == "agrees"


def test_a_law_along_flops_uses_the_cells_that_no_other_cell_beats():
    planted = Planted(noise=0.02)
    for loops in (1, 2, 4, 8):
        for width in (8, 32):
            flops = 1e6 * loops * width**2
            cell = planted.cell(f"{loops} {width}", **{"training.loops": loops, "model.width": width})
            for number in range(3):
                error = (
                    3 * flops**-0.3 * (1 if width == 8 else 3) * np.exp(0.01 * planted.rng.standard_normal())
                )
                planted.trial(cell, "replicate", number, error, flops=flops)
    planted.study["laws"] = [{"of": "error", "along": "flops", "form": ["power"]}]
    ((law,), _) = study_laws(with_all_settings(planted))
    assert law.cell == ""
    assert law.x == (64e6, 128e6, 256e6, 512e6), "the wide ones cost more and err more"
    assert law.low < 0.3 < law.high


def with_all_settings(planted: Planted) -> Results:
    """Results with a column for every setting of the rows, as in the mirror."""
    return Results(planted.study, pd.DataFrame(planted.rows), *planted.tables[1:])


def test_cells_of_a_budget_lie_on_one_law_along_the_prompts_and_the_flops_that_they_pay_for():
    planted = Planted(noise=0.02)
    for flops, steps in ((1e9, 100), (2e9, 200), (4e9, 400), (8e9, 800)):
        values = {"training.flops": flops}
        cell = planted.cell(f"{flops:g}", **values)
        for number in range(3):
            columns = {"flops": flops * 0.999, "step": steps}
            planted.trial(cell, "replicate", number, 5 * steps**-0.5 * (1 + 0.01 * number), **columns)
    rows = planted.results.trials
    rows["training.flops"] = [float(label) for label in rows["label"]]
    rows["training.steps"], rows["training.batch_size"] = rows["step"], 16
    for along in ("prompts", "flops", "training.flops"):
        planted.study["laws"] = [{"of": "error", "along": along, "form": ["power"]}]
        [law], missing = study_laws(planted.changed(trials=rows))
        assert not missing
        assert law.rate == pytest.approx(0.5, abs=0.02)
        assert len(law.x) == 4
