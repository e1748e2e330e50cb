"""A running study and its records give the same evidence and the same verdicts, for every kind of claim."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from loopscale.analysis.answers.claims import judged_claims
from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.runs import RecordedRuns
from loopscale.questions.claim import ClaimSpec
from loopscale.questions.claim_evidence import Sides, compare_sides
from loopscale.questions.claim_verdict import judge
from loopscale.questions.runs import Runs
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.decide.live_runs import LiveRuns
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.analysis.answers.test_until import recorded_in
from tests.runner.decide.test_until import LEARNT, Sometimes, claim, deciding
from tests.runner.simulated_study import Store, complete, resumed

CLAIMS: list[dict[str, Any]] = [
    claim(1, 2, text="clear", margin=None),
    claim(1, 2, text="clear regret", of="regret"),
    claim(1, 2, text="last query", of="error_last"),
    claim(2, 4, text="some have not learnt", of="regret"),
    claim(4, 8, text="none has learnt", of="regret"),
    claim(1, 4, text="equality", level=0.1),
    claim(1, {"solver": "ridge"}, text="beside the floor", of="regret"),
    claim(1, {"solver": "gradient_descent", "step": 2}, text="beside an algorithm", of="error"),
    claim(2, {"solver": "least_squares"}, text="all cells") | {"first": {}, "over": ["training.loops"]},
    claim(1, 1, text="more loops overflow") | {"first": {"training.loops": 1, "loop": 8}},
    claim(4, 4, text="more loops") | {"first": {"training.loops": 4, "loop": 8}},
    claim(2, 1, text="loops of another T") | {"first": {"training.loops": 2, "loop": 4}},
    claim(1, 2, text="emergence, and runs of one side never emerge", of="emerged_at"),
    claim(4, 8, text="emergence, and runs of both sides never emerge", of="emerged_at"),
]
"""One claim of each kind of side and measure."""
CLAIM_VERDICTS = (
    "of",
    "ratio_is",
    "whole",
    "among_learnt",
    "blocked",
    "valued",
    "compared",
    "why",
    "notes",
    "learnt_words",
)
BASELINES = ["least_squares", "gradient_descent", "ridge"]
STUCK = {2: (2,), 4: (1, 3), 8: range(1, 40)}
"""The seeds whose nets stay on the plateau, by the loops of the cell."""


class Mixed(Sometimes):
    """Workers with nets that overflow after more loops, and that leave the plateau at step 50."""

    @override
    def error_at(self, job: Job, step: int) -> float:
        return super().error_at(job, step) if step >= LEARNT["emerged_at"] else 0.95

    @override
    def _evaluate(self, job: Job) -> Report:
        report = super()._evaluate(job)
        assert report.curve
        assert report.curve.regret
        assert report.metrics
        last = {
            f"{name}_last": value for name, value in report.metrics.items() if name.startswith("evaluate/")
        }
        if isinstance(job.work, Trial) and job.work.training.loops == 1:
            for grid in (report.curve.error, report.curve.regret.regret):
                grid[4:] = np.nan
        return replace(report, metrics=report.metrics | last, floor="bayes ridge")


def diverging(job: Job) -> str:
    """The second replicate with two loops diverges, and so does the third one in the next cell."""
    assert isinstance(job.work, Trial)
    return "diverged" if (job.work.training.loops, job.seed) in ((2, 3), (4, 2)) else ""


def both(made: Study, store: Store, place: Path) -> tuple[Runs[Any], Runs[Any], Conductor]:
    """The runs of a driver that goes on now, and of the records, from the same notes."""
    conductor = resumed(made, store)
    assert conductor.looks
    live = LiveRuns(
        made, conductor.looks.schedule, conductor.cell_runs, conductor.baselines, conductor.looks.read_curve
    )
    results = load_results(recorded_in(place, made, store), made.name)
    return live, RecordedRuns(results), conductor


def same(one: Sides[Any], other: Sides[Any]) -> None:
    """Both sides have the same cells, numbers, looks and counts of learnt runs."""
    assert [cell.key for cell in one.cells] == [cell.key for cell in other.cells]
    for name in CLAIM_VERDICTS:
        assert (name, getattr(one, name)) == (name, getattr(other, name))
    for name in ("ratio", "ratios"):
        numbers = getattr(one, name), getattr(other, name)
        assert numbers == (None, None) or numbers[0] == pytest.approx(numbers[1], rel=1e-9), name
    assert (one.looks is None) == (other.looks is None)
    if one.looks and other.looks:
        assert one.looks.schedule == other.looks.schedule
        assert one.looks.interval() == pytest.approx(other.looks.interval(), rel=1e-9)
    if one.learning and other.learning:
        assert one.learning.runs == other.learning.runs
    assert (one.learning is None) == (other.learning is None)


@pytest.mark.parametrize("deaths", [None, 25], ids=["complete", "interrupted"])
def test_a_driver_and_a_report_judge_every_kind_of_claim_by_the_same_evidence(
    tmp_path: Path, deaths: int | None
):
    made, store = (
        deciding(*CLAIMS, until={"looks": [3, 5]}, baselines=["least_squares", "gradient_descent", "ridge"]),
        Store(),
    )
    workers = Mixed(1, means={1: -2.0}, stuck=STUCK, fate=diverging)
    if deaths is None:
        complete(made, workers, store)
    else:
        workers.drive(resumed(made, store), deaths)
    live, recorded, conductor = both(made, store, tmp_path)
    specs = [ClaimSpec.model_validate(each) for each in CLAIMS]
    of_live, of_records = ([compare_sides(runs, spec) for spec in specs] for runs in (live, recorded))
    for spec, one, other in zip(specs, of_live, of_records, strict=True):
        try:
            same(one, other)
        except AssertionError as difference:
            raise AssertionError(f"{spec.text}: {difference}") from None
    verdicts = judge(specs, of_live)
    for one, other in zip(verdicts, judge(specs, of_records), strict=True):
        assert (one.verdict, one.alone, one.of_learning) == (other.verdict, other.alone, other.of_learning)
        assert (one.p, one.adjusted_p) == pytest.approx((other.p, other.adjusted_p), rel=1e-9, nan_ok=True)
    if deaths is None:
        words = {spec.text: verdict.verdict for spec, verdict in zip(specs, verdicts, strict=True)}
        assert words["clear"] == "holds"
        assert words["more loops overflow"] == "does not hold"
        assert words["emergence, and runs of both sides never emerge"] == "not learnt"
        of = {spec.text: sides.of for spec, sides in zip(specs, of_live, strict=True)}
        assert (of["clear regret"], of["beside the floor"]) == ("regret", "error")
        decided = {each.text: each.verdict for each in store.decisions()}
        assert {each.text: each.verdict for each in judged_claims(recorded.results)} == decided
        assert conductor.looks.is_over
        assert {sides.ratio_is for sides in of_live} == {"known", "at most", "unknown"}
        assert len({sides.why for sides in of_live}) > 2
