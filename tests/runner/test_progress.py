"""The progress display of a running study."""

import io

import pytest
from rich.console import Console

from loopscale.runner import progress
from loopscale.runner.callbacks import Callbacks
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.progress import NotebookProgress, ProgressDisplay, StudyProgress
from tests.runner.decide.test_until import CLEAR, Trained, deciding
from tests.runner.simulated_study import Store, Workers, study


def printed(display: ProgressDisplay) -> str:
    file = io.StringIO()
    Console(file=file, width=140).print(display)
    return file.getvalue()


def test_no_work_is_done_at_the_start_and_all_work_at_the_end():
    conductor = Conductor(study(), [], Store())
    assert StudyProgress.of(conductor) == StudyProgress(0, 14 * len(study().cells()), 0, 2, 0.0)
    assert Workers(2).drive(conductor)
    counted = StudyProgress.of(conductor)
    assert (counted.over, counted.work) == (counted.planned, 1.0)
    assert counted.baselines_over == counted.baselines


def test_the_share_of_work_never_falls_without_pruning():
    workers, store, shares = Workers(1, fate=lambda job: ""), Store(), [0.0]
    unpruned = study(scheduler={"kind": "none"})
    while not workers.drive(conductor := Conductor(unpruned, store.records(), store), dies_after=60):
        shares.append(StudyProgress.of(conductor).work)
    assert len(shares) > 5
    assert shares == sorted(shares)


def test_cells_without_trials_count_as_work_that_is_left():
    cells = study(nuisance={}, scheduler={"kind": "none"}, replicates=1)
    conductor = Conductor(cells, [], Store())
    assert not Workers(1, fate=lambda job: "").drive(conductor, dies_after=20)
    costs = {key: cell_run.unpruned_flops for key, cell_run in conductor.cell_runs.items()}
    jobs = [job for cell_run in conductor.cell_runs.values() for job in cell_run.jobs.values()]
    assert 0 < len(jobs) < len(costs)
    assert all(job.flops == costs[job.cell] for job in jobs)
    done = sum(job.flops * job.step / job.steps for job in jobs)
    assert StudyProgress.of(conductor).work == pytest.approx(done / sum(costs.values()))


def test_the_display_shows_question_cells_and_trials():
    conductor = Conductor(study(), [], Store())
    assert not Workers(2).drive(conductor, dies_after=250)
    display = ProgressDisplay()
    display.on_start(conductor)
    text = printed(display)
    assert "Does a conductor keep its promises?" in text
    assert all(cell.label in text for cell in study().cells())
    assert "pruned" in text
    assert "tuning" in text


def test_the_display_says_what_the_run_waits_for_and_names_validation_errors():
    display = ProgressDisplay()
    display.on_stage("the records of mine in records")
    assert printed(display).startswith("waits for the records of mine in records, 0 s so far")
    conductor = Conductor(study(), [], Store())
    display.on_start(conductor)
    display.on_stage("the start of Ray")
    assert "waits for the start of Ray" in display.line()
    assert "0 of 2 baselines" in display.line()
    assert Workers(2).drive(conductor)
    display.on_stage("")
    assert "waits" not in display.line()
    assert "best validation error" in printed(display)


def test_a_display_of_an_interrupted_run_says_that_the_run_has_ended_early():
    conductor = Conductor(study(), [], Store())
    display = ProgressDisplay()
    display.on_start(conductor)
    assert not Workers(2).drive(conductor, dies_after=250)
    display.line()
    conductor.stopping = True
    assert display.line().endswith("stopping")
    display.on_end()
    assert display.line().endswith("ended early")
    assert "left" not in display.line()


def test_the_trials_of_a_large_study_are_counted_rarely_and_at_its_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "COUNTED_TRIALS", 10)
    monkeypatch.setattr(progress, "COUNTING_SHARE", 1e-9)
    conductor = Conductor(study(), [], Store())
    display = ProgressDisplay()
    display.on_start(conductor)
    assert display.line().startswith("0 of ")
    assert Workers(2).drive(conductor)
    assert display.line().startswith("0 of ")
    display.on_end()
    whole = StudyProgress.of(conductor)
    assert display.line().startswith(f"{whole.over} of {whole.planned} trials")


@pytest.mark.parametrize(("until", "words"), [("decided", "to the next look"), (None, "left")])
def test_the_time_of_a_study_with_an_open_question_ends_at_the_next_look(until: str | None, words: str):
    """A look may order as many trials again, and the time that is left would jump."""
    conductor = Conductor(deciding(CLEAR, until=until), [], Store())
    display = ProgressDisplay()
    display.on_start(conductor)
    workers = Trained(2, means={1: -2.0})
    assert not workers.drive(conductor, dies_after=30)
    display.line()  # the first progress
    assert not workers.drive(conductor, dies_after=30)
    assert display.line().endswith(words)


def test_a_notebook_gets_one_bar_that_changes(monkeypatch: pytest.MonkeyPatch):
    shown = []

    class Handle:
        def update(self, html) -> None:
            shown.append(html.data)

    def show(html, display_id: bool) -> Handle:
        shown.append(html.data)
        return Handle()

    monkeypatch.setattr("IPython.display.display", show)
    display, conductor = NotebookProgress(), Conductor(study(), [], Store())
    callbacks = Callbacks([display])
    conductor.services.observer = callbacks
    callbacks.stage("the start of <Ray>")
    callbacks.start(conductor)
    assert Workers(2).drive(conductor)
    callbacks.end()
    assert 'value="0.0000"' in shown[0]
    assert "the start of &lt;Ray&gt;" in shown[0]
    assert 'value="1.0000"' in shown[-1]
    assert "waits" not in shown[-1]
