"""The cost of a study before it runs."""

import importlib
import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import pytest
import torch

from loopscale.foresight.plan import START_SECONDS, Offer, plan_study, study_price
from loopscale.pricing.speed import TRIAL_SECONDS, GivenRate
from loopscale.studies.schedulers.base import Scheduler
from loopscale.studies.spec import Study
from loopscale.training.cost import cost

BASE: dict[str, Any] = {
    "question": "Does it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 100, "batch_size": 4, "loops": 2, "window": 2},
    },
    "nuisance": {"training.lr": {"real": [1e-4, 1e-2], "scale": "log"}},
    "search": {"kind": "random", "trials": 4},
    "replicates": 2,
}


def study(**changes: Any) -> Study:
    return Study.parse(BASE | changes)


def test_trials_flops_and_hours_add_up():
    made = study(scientific={"training.loops": [2, 4]}, baselines=["newton", "ridge"])
    planned = plan_study(made, rate=1e9, workers=2)
    exact = sum(6 * cost(made.at(cell, {}, 0)).flops_total for cell in made.cells())
    assert (planned.tuning, planned.replicates, planned.trials, planned.baselines) == (8, 4, 12, 2)
    assert planned.flops == (exact, exact)
    # A validation of 512 prompts at the end of 100 steps of 4, and 20 loops on 1,024 prompts.
    forward = [cost(made.at(cell, {}, 0)).flops_forward for cell in made.cells()]
    beside = sum(6 * f * (512 / 4 + 1024 / 4 * 20 / t) for f, t in zip(forward, (2, 4), strict=True))
    seconds = (exact + beside) / 1e9 + 12 * TRIAL_SECONDS
    assert planned.core_hours[1] == pytest.approx(seconds / 3600)
    assert planned.hours[1] == pytest.approx((seconds / 2 + START_SECONDS) / 3600)
    assert planned.gpu_hours == (0, 0)


def test_the_price_of_a_study_is_that_of_its_plan_with_one_trial_at_a_time():
    made = study(scientific={"training.loops": [2, 4]})
    planned, price = plan_study(made, rate=1e9, workers=1), study_price(made, GivenRate(1e9))
    assert (price.trials, price.flops) == (planned.trials, planned.flops_expected)
    assert price.hours == pytest.approx([hours - START_SECONDS / 3600 for hours in planned.hours])


def test_a_tuned_size_gives_a_span():
    planned = plan_study(study(nuisance={"model.layers": {"integer": [1, 3]}}), rate=1e9)
    low, high = planned.cells[0].flops
    assert 3 * low < high < 4 * low, (
        "the last layer, which answers the queries alone, costs less than the others"
    )


def test_a_plan_in_a_notebook_is_one_line_with_its_notes():
    planned = plan_study(study(replicates=1, baselines=["ridge"]), rate=1e9, workers=2)
    first, *notes = repr(planned).splitlines()
    assert first.startswith("study: 5 trials in 1 cell: 4 to tune, 1 replicate; 1 baseline; ")
    assert first.endswith("core-hours")
    assert notes == [f"note: {warning}" for warning in planned.warnings]
    assert notes


def test_a_plan_is_plain_data():
    assert json.loads(json.dumps(plan_study(study(), rate=1e9).document()))["trials"] == 6


def test_a_rate_is_measured_by_default():
    planned = plan_study(study())
    assert planned.rate_source.startswith("measured")
    assert 1e5 < planned.rate["looped"] < 1e13


@pytest.mark.parametrize(("cpu", "words"), [(0.5, "1 thread of"), (1, "1 thread of"), (2, "2 threads of")])
def test_a_rate_is_measured_on_the_threads_that_a_trial_will_have(cpu, words):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    seen = set[int]()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda *_: seen.add(torch.get_num_threads()), always_call=True
    )
    try:
        planned = plan_study(study(resources={"cpu": cpu}))
        assert torch.get_num_threads() == 3
    finally:
        hook.remove()
        torch.set_num_threads(before)
    assert words in planned.rate_source
    assert max(1, int(cpu)) in seen
    assert seen <= {max(1, int(cpu)), 3}  # counting FLOPs runs on the meta device, with any number of threads


def test_a_share_of_a_gpu_is_counted():
    planned = plan_study(study(resources={"gpu": 0.25}), rate=1e9)
    assert planned.gpu_hours[1] == pytest.approx(planned.core_hours[1] / 4)


def test_the_cost_on_a_cluster_is_the_sum_of_its_prices():
    made = study(resources={"cpu": 2, "gpu": 0.5}, nuisance={"model.layers": {"integer": [1, 3]}})
    planned = plan_study(made, rate=1e9, offer=Offer("there", 0.1, 3.0, "EUR"))
    assert planned.cost
    for end, price in enumerate((planned.cost.low, planned.cost.high)):
        assert price == pytest.approx(0.1 * planned.core_hours[end] + 3.0 * planned.gpu_hours[end])
    assert planned.core_hours[1] == pytest.approx(4 * planned.gpu_hours[1])
    assert plan_study(made, rate=1e9, offer=Offer("there")).cost is None


def test_a_trial_larger_than_its_share_of_memory_gets_a_remark():
    large = BASE["fixed"] | {"training": BASE["fixed"]["training"] | {"batch_size": 20_000}}
    offer = Offer("there", gpu_memory=1.0)

    def remarks(offer: Offer | None = offer, **resources: float) -> str:
        return "\n".join(plan_study(study(fixed=large, resources=resources), 1e9, offer=offer).warnings)

    assert "its share of a GPU holds 0.05" in remarks(gpu=0.55)
    assert "out of memory" not in remarks(gpu=0.55, offer=None)
    assert "out of memory" not in remarks(gpu=1, offer=Offer("there", gpu_memory=80))
    assert "resources.memory is 0.25: it would end out of memory" in remarks(memory=0.25)
    assert "out of memory" not in remarks(memory=64)


def test_a_share_of_a_gpu_gets_a_remark():
    def remarks(gpu: float) -> str:
        return "\n".join(plan_study(study(resources={"gpu": gpu}), 1e9).warnings)

    assert "by turns unless its machine runs MPS" in remarks(0.1)
    assert "by turns" not in remarks(1)


def test_a_speed_measured_here_gets_a_remark_in_the_plan_for_a_cluster():
    assert "times and cost are at the speed of one thread" in "\n".join(
        plan_study(study(), offer=Offer("there")).warnings
    )
    assert "the speed of one thread" not in "\n".join(plan_study(study(), 1e9, offer=Offer("there")).warnings)


def share(kind: str, first_rung: int, trials: int, steps: int) -> float:
    return Scheduler.model_validate({"kind": kind, "first_rung": first_rung}).trained_share(trials, steps)


def test_the_expected_saving_of_a_scheduler_is_near_the_simulated_saving():
    # Simulated with stopping by the ceil rank and crossing curves: 0.38 at 8 trials and 0.17 at 81 trials.
    assert share("asha", 1, 8, 81) == pytest.approx(0.38, abs=0.1)
    assert share("asha", 1, 81, 81) == pytest.approx(0.17, abs=0.06)
    assert share("none", 1, 8, 81) == share("asha", 1, 0, 81) == 1
    assert 0.3 < share("median", 10, 20, 100) < 1
    assert share("asha", 1, 20, 81) < share("hyperband", 1, 20, 81) < 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scheduler": {"kind": "asha", "first_rung": 10}}, "costs regret"),
        ({"scheduler": {"kind": "asha", "first_rung": 10}, "nuisance": {}}, "nothing to prune"),
        ({"search": {"kind": "tpe", "trials": 4}}, "random search"),
        ({"replicates": 1}, "no intervals"),
        (
            {"laws": [{"of": "error", "along": "loop", "theory": "first_order_best"}]},
            "the law of error along loop cannot be judged in 1 of 1 cells, with fewer than 4 values along loop",
        ),
        (
            {"scientific": {"training.loops": [2, 4]}, "laws": [{"along": "training.loops"}]},
            "cannot be judged: 2 values, 4 needed",
        ),
        ({"budget": {"core_hours": 1e-9}}, "more than the budget"),
        ({"nuisance": {"training.lr": {"choice": [1e-3, 1e-2]}}}, "only 2 different points"),
    ],
)
def test_choices_that_deserve_a_second_thought_get_a_remark(changes: Any, words: str):
    assert words in "\n".join(plan_study(study(**changes), rate=1e9, workers=2).warnings)


def test_pruning_within_the_curriculum_gets_a_remark():
    training = BASE["fixed"]["training"] | {"curriculum": {"dim": 1, "points": 1, "every": 20}}
    fixed = BASE["fixed"] | {"training": training}
    asha = {"kind": "asha", "first_rung": 10}
    assert "pruning is blind" in "\n".join(plan_study(study(fixed=fixed, scheduler=asha), rate=1e9).warnings)
    late = asha | {"first_rung": 50}
    assert "blind" not in "\n".join(plan_study(study(fixed=fixed, scheduler=late), rate=1e9).warnings)


@pytest.mark.slow
def test_counting_without_the_compiler_of_torch_gives_the_same_costs():
    code = (
        "import json, sys; from dataclasses import asdict; from loopscale.evaluate import Evaluation; "
        "from loopscale.pricing.speed import measured_speed, trial_cost; "
        "from loopscale.studies.spec import Study; "
        f"[trial] = Study.parse({BASE!r}).layout.trials.values(); measured_speed([trial], Evaluation(), workers=2); "
        "print(json.dumps([asdict(trial_cost(trial)), 'torch._dynamo' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    importlib.import_module("torch._dynamo")
    [trial] = study().layout.trials.values()
    assert json.loads(done.stdout) == [asdict(cost(trial)), False]


def test_a_plan_counts_every_seed_of_a_point():
    one, three = (plan_study(study(search={"trials": 6, "seeds": seeds}), 1e9) for seeds in (1, 3))
    assert three.tuning == 3 * one.tuning
    assert three.trials == three.tuning + one.replicates


def test_pruning_saves_the_later_seeds_of_a_point():
    scheduler = Scheduler.model_validate({"kind": "asha", "first_rung": 10})
    shares = [scheduler.trained_share(8, 90, seeds) for seeds in (1, 2, 4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[2] > shares[0] / 4
