"""The committed records: what nets that were trained for real have come to, against what nobody can."""

from pathlib import Path

import pandas as pd
import pytest

from loopscale.analysis.answers.impossible import impossible
from loopscale.analysis.results import Reading, reading

FOLDER = Path(__file__).parents[2] / "notebooks"
RECORDS = sorted(path.parent for path in (FOLDER / "data").glob("*/export.json"))
of_each = pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)


def recorded(folder: Path) -> Reading:
    (study,) = pd.read_parquet(folder / "studies.parquet")["study"]
    return reading(study, folder)


@of_each
def test_no_trained_net_is_below_the_best_predictor_there_is(folder: Path):
    found = recorded(folder)
    assert found.missing == ""
    assert impossible(found.trials, found.curves) == []


@of_each
def test_some_net_of_every_study_is_far_below_predicting_nothing(folder: Path):
    """By an interval over replicates, where there are any."""
    best = recorded(folder).best()
    assert (best["high"].fillna(best["error"]) < 0.9).any()


def test_they_are_small():
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*")) < 20e6
