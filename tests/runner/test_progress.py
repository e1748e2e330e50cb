"""The progress display of a running study."""

import io

from rich.console import Console

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.progress import ProgressDisplay, StudyProgress
from tests.runner.simulated_study import Store, Workers, study


def printed(display: ProgressDisplay) -> str:
    file = io.StringIO()
    Console(file=file, width=140).print(display)
    return file.getvalue()


def test_no_work_is_done_at_the_start_and_all_work_at_the_end():
    conductor = Conductor(study(), [], Store())
    assert StudyProgress.of(conductor) == StudyProgress(0, 14 * len(study().cells()) + 2, 0.0)
    assert Workers(2).drive(conductor)
    progress = StudyProgress.of(conductor)
    assert (progress.over, progress.work) == (progress.planned, 1.0)


def test_the_share_of_work_never_falls_without_pruning():
    workers, store, shares = Workers(1, fate=lambda job: ""), Store(), [0.0]
    unpruned = study(scheduler={"kind": "none"})
    while not workers.drive(conductor := Conductor(unpruned, store.records(), store), dies_after=60):
        shares.append(StudyProgress.of(conductor).work)
    assert len(shares) > 5
    assert shares == sorted(shares)


def test_the_display_shows_question_cells_and_trials():
    conductor = Conductor(study(), [], Store())
    assert not Workers(2).drive(conductor, dies_after=250)
    text = printed(ProgressDisplay(conductor))
    assert "Does a conductor keep its promises?" in text
    assert all(cell.label in text for cell in study().cells())
    assert "pruned" in text
    assert "tuning" in text
