"""Every shipped study loads, asks a question, names its source, and can be planned."""

from functools import cache
from pathlib import Path

import pytest

from loopscale.foresight.plan import plan_study
from loopscale.notation.files import study_name
from loopscale.studies.spec import Study

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = sorted(FOLDER.rglob("*.yaml"))
pytestmark = pytest.mark.parametrize(
    "path", STUDIES, ids=lambda path: path.relative_to(FOLDER).with_suffix("").as_posix()
)

RATE = 4.1e10
"""FLOP/s of one idle thread at these sizes: 0.0675 s per step of a looped net, 0.128 s of an AlgoFormer."""
HOURS = {"translation/reduced/german_english": 2}
"""Limits of reduced studies that need more than an hour on two cores. Four core-hours are agreed for translation."""


@cache
def loaded(path: Path) -> Study:
    return Study.load(path)


def test_a_study_loads_and_asks_a_question(path: Path):
    study = loaded(path)
    assert study.question.endswith("?")
    assert study.source
    assert study.name == path.relative_to(FOLDER).with_suffix("").as_posix() == study_name(path)
    assert len({cell.label for cell in study.cells()}) == len(study.cells())


def test_a_study_file_starts_with_a_comment_on_the_fixed_settings(path: Path):
    comment = path.read_text().split("question:")[0]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert "Held fixed" in comment


@pytest.mark.quick_cases(9)
def test_a_study_survives_a_round_trip_through_plain_data(path: Path):
    study = loaded(path)
    again = Study.parse(study.model_dump(mode="json", exclude_unset=True), study.name)
    assert again.document() == study.document()


@pytest.mark.slow
def test_a_study_can_be_planned_and_a_reduced_study_takes_under_an_hour_or_its_own_limit(path: Path):
    planned = plan_study(Study.load(path), rate=RATE, workers=2)
    assert planned.trials == Study.load(path).planned > 0
    if "reduced" in path.parts:
        assert planned.hours[1] < HOURS.get(planned.study, 1)
    if path.stem == "quickstart":
        assert planned.hours[1] * 3600 < 150
