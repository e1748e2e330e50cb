"""From the text of a study to a valid study: read the file, apply `--set`, validate, lay out, check.

Every step collects its faults. All of them are reported together, before anything runs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from loopscale.studies.cells import MOST_CELLS, crossed_size
from loopscale.studies.checks import faults_after_crossing, faults_before_crossing
from loopscale.studies.files import find_study
from loopscale.studies.layout import Layout, lay_out
from loopscale.studies.mistakes import Fault, Mistakes
from loopscale.studies.overrides import with_overrides
from loopscale.studies.schema import StudySchema
from loopscale.studies.validation import coercions, validation_faults
from loopscale.studies.yaml_tree import YamlTree, read_yaml

S = TypeVar("S", bound=StudySchema)

CELL_KEYS = {"fixed", "scientific", "where", "nuisance"}
"""The keys that cells are made of. If one of them is invalid, the cells are not checked."""
RAW_KEYS = {"fixed", "scientific"}
"""The keys whose values are validated as trials, once the cells are known."""


def read_study(path_or_name: str | Path, overrides: Mapping[str, str]) -> tuple[Path, YamlTree]:
    """The file of a study, and its content with the `--set` options applied. Raises Mistakes."""
    path = find_study(path_or_name)
    return path, with_overrides(read_yaml(path, _display_name(path)), overrides)


def parse_study(cls: type[S], source: YamlTree) -> tuple[S, Layout]:
    """Validate a study of class `cls`, and lay it out. Raises Mistakes, with everything that is wrong."""
    study, faults = _validate(cls, source.tree)
    if study is None:
        raise Mistakes(map(source.mistake, faults))
    layout = lay_out_study(study)
    if faults := [*faults, *layout.faults]:
        raise Mistakes(map(source.mistake, faults))
    return study, layout


def lay_out_study(study: StudySchema) -> Layout:
    """The layout of a study, with all faults that its parts have together."""
    before = list(faults_before_crossing(study))
    wrong_axes = {
        fault.place[1]
        for fault in before
        if fault.place[0] in ("scientific", "nuisance") and len(fault.place) > 1
    }
    uncrossable = any(fault.place[0] in ("fixed", "where") for fault in before)
    if uncrossable or crossed_size(study.scientific) > MOST_CELLS:
        return Layout(faults=before)
    axes = {path: values for path, values in study.scientific.items() if path not in wrong_axes}
    space = {path: axis for path, axis in study.nuisance.items() if path not in wrong_axes}
    layout = lay_out(study, axes, space)
    if not layout.faults and not wrong_axes:
        layout.faults.extend(faults_after_crossing(study, layout))
    layout.faults[:0] = before
    return layout


def _validate(cls: type[S], tree: dict[str, Any]) -> tuple[S | None, list[Fault]]:
    """The study with its valid keys, and the faults of the others, which keep their defaults.

    The study is `None` if a key that cells are made of is invalid.
    """
    try:
        study = cls.model_validate(tree)
        return study, list(coercions({k: v for k, v in tree.items() if k not in RAW_KEYS}, study))
    except ValidationError as problem:
        faults = validation_faults(problem, cls, tree)
        invalid = {str(error["loc"][0]) for error in problem.errors()}
    if invalid & CELL_KEYS:
        return None, faults
    rest = {name: value for name, value in tree.items() if name not in invalid}
    return cls.model_validate({"question": "?"} | rest), faults


def _display_name(path: Path) -> str:
    """The path for mistakes, relative to the current folder if it lies below."""
    current = Path.cwd()
    return (
        str(path.relative_to(current)) if path.is_absolute() and path.is_relative_to(current) else str(path)
    )
