"""The committed records of trained nets, compared with the least possible error and with predicting nothing."""

from pathlib import Path

import pandas as pd
import pytest

from loopscale.analysis.answers.impossible import impossible_results
from loopscale.analysis.notebook import StudyResults, results

FOLDER = Path(__file__).parents[2] / "notebooks"
RECORDS = sorted(path.parent for path in (FOLDER / "data").glob("*/export.json"))
every_study = pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)


def recorded(folder: Path) -> StudyResults:
    (study,) = pd.read_parquet(folder / "studies.parquet")["study"]
    return results(study, folder)


@every_study
def test_no_trained_net_is_better_than_the_best_possible_predictor(folder: Path):
    study = recorded(folder)
    assert study.missing == ""
    assert impossible_results(study) == []


@every_study
def test_some_net_of_every_study_is_far_better_than_predicting_nothing(folder: Path):
    """By the interval over replicates, if there is one."""
    best = recorded(folder).best()
    assert (best["error_high"].fillna(best["error"]) < 0.9).any()


def test_the_records_are_small():
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*")) < 20e6
