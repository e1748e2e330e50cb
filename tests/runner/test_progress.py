"""What a person sees of a study at work."""

import io

from rich.console import Console

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.progress import Display, Standing
from tests.runner.simulation import Store, Workers, study


def shown(display: Display) -> str:
    file = io.StringIO()
    Console(file=file, width=140).print(display)
    return file.getvalue()


def test_nothing_is_done_at_first_and_everything_at_the_end():
    conductor = Conductor(study(), [], Store())
    assert Standing.of(conductor) == Standing(0, 14 * len(study().cells()) + 2, 0.0)
    assert Workers(2).drive(conductor)
    end = Standing.of(conductor)
    assert (end.over, end.work) == (end.planned, 1.0)


def test_the_work_done_only_grows_where_nothing_is_pruned():
    workers, store, seen = Workers(1, fate=lambda job: ""), Store(), [0.0]
    one = study(scheduler={"kind": "none"})
    while not workers.drive(conductor := Conductor(one, store.records(), store), dies_after=60):
        seen.append(Standing.of(conductor).work)
    assert len(seen) > 5
    assert seen == sorted(seen)


def test_cells_trials_and_the_best_so_far_are_shown():
    conductor = Conductor(study(), [], Store())
    assert not Workers(2).drive(conductor, dies_after=250)
    text = shown(Display(conductor))
    assert "Does a conductor keep its promises?" in text
    assert all(cell.label in text for cell in study().cells())
    assert "pruned" in text
    assert "tuning" in text
