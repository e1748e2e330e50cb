"""Held-out cells of a running study: they start after their laws have predicted them, and the prediction is recorded.

A prediction is made once, when every other cell of the law is over. A resumed study takes the recorded prediction. A
held-out cell with trials and without a recorded prediction is never predicted, because its errors may be known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from loopscale.records.predictions import (
    RecordedPrediction,
    predict_from,
    recorded_predictions,
    tag_of,
)
from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job
from loopscale.runner.decide.live_runs import LiveRuns
from loopscale.studies.held_out import HeldOutTest, fitted_runs, held_out_tests
from loopscale.studies.spec import Study


class HeldOutCells:
    """Predicts held-out cells, and says which of them still wait."""

    def __init__(
        self,
        study: Study,
        cell_runs: Mapping[str, CellRun],
        tags: Mapping[str, str],
        outdated: Callable[[Job], bool],
    ) -> None:
        """`tags` are those of the study's parent run. `outdated` tells old evaluations."""
        self._study, self._cell_runs, self._outdated = study, cell_runs, outdated
        laws = [law.model_dump() for law in study.laws]
        tests = held_out_tests(laws, study.cells(), study.layout.shared_settings)
        recorded = recorded_predictions(tags)
        started = {key for key, cell_run in cell_runs.items() if cell_run.jobs}
        self._due: list[tuple[HeldOutTest, list[str]]] = []
        """Tests without a prediction, with the cells that each test predicts."""
        for test in tests:
            cells = [
                key
                for key in test.held_out
                if key not in started and tag_of(test.of, test.along, key) not in recorded
            ]
            if cells:
                self._due.append((test, cells))
        self.waiting = {key for _, cells in self._due for key in cells}
        """The keys of the cells that may not start yet."""
        self._over: set[str] = set()
        """The keys of fitted cells that are over. They stay over while this driver lives."""

    def predict(self) -> list[RecordedPrediction]:
        """The predictions that can be made now, each once. Cells that wait for no other test leave `waiting`."""
        ready = [(test, cells) for test, cells in self._due if all(map(self._is_over, test.fitted))]
        if not ready:
            return []
        self._due = [entry for entry in self._due if entry not in ready]
        self.waiting = {key for _, cells in self._due for key in cells}
        return [prediction for test, cells in ready for prediction in self._predictions(test, cells)]

    def _is_over(self, key: str) -> bool:
        if key in self._over:
            return True
        cell_run = self._cell_runs[key]
        if not cell_run.is_over or any(self._outdated(job) for job in cell_run.answers):
            return False
        self._over.add(key)
        return True

    def _predictions(self, test: HeldOutTest, cells: Iterable[str]) -> Iterator[RecordedPrediction]:
        """None for a cell whose law cannot be fitted, for example because no trial has finished."""
        runs = LiveRuns(self._study, None, self._cell_runs, {}, lambda _: None)
        fitted = fitted_runs(test, runs)
        for key in cells:
            if prediction := predict_from(fitted, test.held_out[key], self._study.replicates, test.of):
                yield RecordedPrediction(test.of, test.along, key, prediction, fitted)
