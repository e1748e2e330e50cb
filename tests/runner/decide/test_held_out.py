"""Held-out cells: they start last, after a recorded prediction that no death of a driver changes."""

import math
import random
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from loopscale.records.model import PREDICTION, STUDY
from loopscale.records.predictions import RecordedPrediction, recorded_predictions
from loopscale.runner.decide.conductor import Unrecorded
from loopscale.runner.decide.job import Job, Report
from loopscale.stats.prediction import predict
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.runner.simulated_study import TREE, Store, Workers, complete, ends, resumed, study

LOOPS = [1, 2, 4, 8, 16]
AXES: dict[str, Any] = {"training.loops": LOOPS, "training.window": [1]}
LAW = {"along": "training.loops", "hold_out": 1}
CHANGES: dict[str, Any] = {"scientific": AXES, "search": {"kind": "tpe", "trials": 4}, "replicates": 2}


def held_out_study(*laws: dict[str, Any], **changes: Any) -> Study:
    return study(**CHANGES | {"laws": list(laws or [LAW])} | changes)


def final_error(trial: Trial) -> float:
    """A power law in the loops, with noise that depends on the seed and the loops only."""
    noise = random.Random(f"{trial.seed} {trial.training.loops}").gauss(0, 0.05)
    return trial.training.loops**-0.8 * math.exp(noise)


class Evaluated(Workers):
    """Workers whose final errors follow a law."""

    @override
    def _evaluate(self, job: Job) -> Report:
        report = super()._evaluate(job)
        if isinstance(job.work, Trial) and report.metrics:
            report.metrics["evaluate/error"] = final_error(job.work)
            report.metrics["evaluate/error_last"] = 2 * final_error(job.work)
        return report


def predictions(store: Store) -> list[RecordedPrediction]:
    """All predictions that were ever recorded, in order."""
    tags = [{name: text} for note in store.notes for name, text in note.tags.items() if PREDICTION in name]
    return [prediction for tag in tags for prediction in recorded_predictions(tag).values()]


def cells_at(made: Study, loops: int) -> set[str]:
    return {cell.key for cell in made.cells() if cell.values["training.loops"] == loops}


def assert_predicted_before_held_out_trials(made: Study, store: Store):
    """All fitted trials end, then the prediction is recorded, and then held-out trials start."""
    held_out = cells_at(made, LOOPS[-1])
    cell_of = {note.key: note.tags["cell"] for note in store.notes if note.tags.get("cell")}
    place = next(n for n, note in enumerate(store.notes) if any(PREDICTION in name for name in note.tags))
    before, after = store.notes[:place], store.notes[place:]
    assert not [note for note in before if cell_of.get(note.key) in held_out]
    assert not [note for note in after if note.key in cell_of and cell_of[note.key] not in held_out]


def test_held_out_trials_start_after_the_recorded_prediction_of_the_other_cells():
    made, store = held_out_study(), Store()
    records = complete(made, Evaluated(2), store)
    assert_predicted_before_held_out_trials(made, store)
    [recorded] = predictions(store)
    fitted = [r for r in records if r.role == "replicate" and r.cell not in cells_at(made, 16)]
    loops = {cell.key: cell.values["training.loops"] for cell in made.cells()}
    x = np.array([loops[r.cell] for r in fitted], dtype=float)
    logs = np.log([r.metrics["evaluate/error"] for r in fitted])
    expected = predict(x, logs, 16.0, 2)
    assert expected
    assert expected.judged
    assert recorded.prediction.centre == pytest.approx(expected.centre, rel=1e-6)
    assert (recorded.prediction.low, recorded.prediction.high) == pytest.approx(
        (expected.low, expected.high), rel=1e-6
    )


def test_a_hold_out_changes_no_trial():
    plain = complete(held_out_study(laws=[]), Evaluated(1), Store())
    assert ends(complete(held_out_study(), Evaluated(1), Store())) == ends(plain)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(20))
def test_a_study_whose_driver_dies_repeatedly_makes_the_same_prediction_once(seed: int):
    made, store, alive = held_out_study(), Store(), Store()
    killed = complete(made, Evaluated(1 + seed % 3), store, random.Random(seed))
    whole = complete(made, Evaluated(1 + seed % 3), alive)
    if seed % 3 == 0:
        assert ends(killed) == ends(whole)
        assert predictions(store)[0].fitted == predictions(alive)[0].fitted
    assert_predicted_before_held_out_trials(made, store)
    assert len(predictions(store)) == 1, "a prediction was made twice"


def stop_at_held_out(made: Study, store: Store, workers: Workers, notes: int = 1) -> None:
    """Run the study until this number of notes of held-out trials is recorded, and let the driver die."""
    held_out = cells_at(made, LOOPS[-1])
    while sum(note.tags.get("cell") in held_out for note in store.notes) < notes:
        assert not workers.drive(resumed(made, store), 2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("notes", [1, 3])
def test_a_study_killed_among_its_held_out_trials_keeps_its_prediction(notes: int):
    made, store, workers = held_out_study(), Store(), Evaluated(1)
    stop_at_held_out(made, store, workers, notes)
    before = predictions(store)
    changed = held_out_study(replicates=4, evaluate={"loops": 16, "prompts": 64})
    complete(changed, workers, store)
    assert len(before) == 1
    assert predictions(store) == before


@pytest.mark.slow
def test_a_study_killed_after_its_prediction_starts_held_out_trials_at_once():
    made, store, workers = held_out_study(), Store(), Evaluated(1)
    while not predictions(store):
        workers.drive(resumed(made, store), 2)
    job = resumed(made, store).start_next()
    assert isinstance(job, Job)
    assert job.cell in cells_at(made, 16)


def test_a_cell_with_trials_and_without_a_prediction_is_never_predicted():
    store, workers = Store(), Evaluated(1)
    complete(held_out_study(laws=[]), workers, store)
    complete(held_out_study(replicates=3), workers, store)
    assert not predictions(store)
    assert {r.seed for r in store.records() if r.role == "replicate"} == {1, 2, 3}


def test_a_new_largest_value_is_predicted_from_all_recorded_values():
    store, workers = Store(), Evaluated(1)
    complete(held_out_study(laws=[]), workers, store)
    longer = held_out_study(scientific=AXES | {"training.loops": [*LOOPS, 32]}, evaluate={"loops": 32})
    complete(longer, workers, store)
    [recorded] = predictions(store)
    assert recorded.prediction.at == 32
    assert list(recorded.fitted) == LOOPS


def test_every_law_has_its_own_prediction_and_crossed_laws_wait_for_each_other():
    axes = {"training.loops": [1, 2, 4, 8], "task.noise": [0.1, 0.2, 0.4, 0.8]}
    laws = [LAW, {"along": "task.noise", "hold_out": 1}, LAW | {"of": "error_last"}]
    made, store = held_out_study(*laws, scientific=axes), Store()
    complete(made, Evaluated(3), store)
    recorded = predictions(store)
    assert len({(one.of, one.along, one.cell) for one in recorded}) == len(recorded) == 3 * 4
    last = {cell.key for cell in made.cells() if cell.values == {"training.loops": 8, "task.noise": 0.8}}
    first_note = next(n for n, note in enumerate(store.notes) if note.tags.get("cell") in last)
    assert len([n for n in store.notes[:first_note] if any(PREDICTION in name for name in n.tags)]) == 12


def test_a_law_without_usable_errors_predicts_nothing_and_the_study_ends():
    made, store = held_out_study(), Store()
    records = complete(made, Evaluated(2, lambda job: "diverged" if job.role != "baseline" else ""), store)
    assert not predictions(store)
    assert {r.cell for r in records if r.role == "tuning"} == {cell.key for cell in made.cells()}


class Unreachable(Store):
    """Records of a store that takes no prediction."""

    @override
    def flush(self, timeout: float) -> bool:
        return not any(PREDICTION in name for note in self.notes for name in note.tags)


def test_no_held_out_trial_starts_if_the_store_does_not_take_the_prediction():
    made, store = held_out_study(), Unreachable()
    with pytest.raises(Unrecorded, match="prediction"):
        complete(made, Evaluated(1), store)
    assert not [note for note in store.notes if note.tags.get("cell") in cells_at(made, 16)]


def test_fitted_cells_are_evaluated_anew_before_the_prediction():
    made, store, workers = held_out_study(), Store(), Evaluated(1)
    while not workers.drive(resumed(made, store), 20):
        if len(store.records()) > 12:
            break
    changed = held_out_study(evaluate={"loops": 16, "prompts": 64})
    complete(changed, workers, store)
    place = next(n for n, note in enumerate(store.notes) if any(PREDICTION in name for name in note.tags))
    key = changed.evaluate.key
    after = [note for note in store.notes[place:] if note.tags.get("evaluation") == key]
    cells = {r.key: r.cell for r in store.records() if r.role == "replicate"}
    assert {cells[note.key] for note in after if note.key in cells} == cells_at(changed, 16)


def test_a_recorded_prediction_is_read_back_also_for_fewer_runs():
    store = Store()
    complete(held_out_study(), Evaluated(1), store)
    [recorded] = predictions(store)
    again = recorded_predictions(recorded.note().tags)[recorded.tag]
    assert again.prediction == recorded.prediction
    alone = again.for_runs(1)
    assert alone
    assert alone.centre == pytest.approx(recorded.prediction.centre, abs=1e-6)
    assert alone.high - alone.low > recorded.prediction.high - recorded.prediction.low
    assert recorded.note().key == STUDY


def test_a_damaged_prediction_is_left_out():
    assert recorded_predictions({f"{PREDICTION}error/training.loops/x": "{", "other": "1"}) == {}


class Emerging(Evaluated):
    """Workers whose trainings emerge earlier with more loops; one training with one loop never emerges."""

    @override
    def _evaluate(self, job: Job) -> Report:
        report = super()._evaluate(job)
        if isinstance(job.work, Trial):
            every, steps = job.work.training.eval_every, job.steps
            at = 1.03 * steps * final_error(job.work)
            report.metrics.update(validate_floor=0.0, validate_ignorance=1.0)
            if at < steps:
                report.metrics["emerged_at"] = float(min(math.ceil(at / every) * every, steps))
        return report


@pytest.mark.slow
def test_the_step_of_emergence_is_predicted_from_intervals_and_a_death_changes_nothing():
    fixed = TREE["fixed"] | {"training": TREE["fixed"]["training"] | {"steps": 900}}
    made, store = held_out_study(LAW | {"of": "emerged_at"}, fixed=fixed), Store()
    complete(made, Emerging(2), store)
    assert_predicted_before_held_out_trials(made, store)
    [recorded] = predictions(store)
    ends = np.array(list(recorded.fitted.values())).reshape(4, 2, 2)
    assert np.isinf(ends[0, :, 1]).any(), "no run is censored"
    assert ends[0, np.isinf(ends[0, :, 1]), 0] == pytest.approx(900)
    assert ends[1:, :, 1] - ends[1:, :, 0] == pytest.approx(10)
    assert recorded.prediction.judged
    assert recorded.prediction.low < math.log(900 * 16**-0.8) < recorded.prediction.high
    assert recorded.for_runs(1) != recorded.prediction
    killed = Store()
    complete(made, Emerging(2), killed, deaths=random.Random(2))
    assert [one.prediction for one in predictions(killed)] == [recorded.prediction]
