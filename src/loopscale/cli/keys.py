"""The keys of a study's file that have settings of their own, read off its classes: no list of them is kept."""

from collections.abc import Sequence
from typing import Any

from loopscale.cli.describe import described
from loopscale.cli.show import STUDY
from loopscale.core.config import Config, Family
from loopscale.studies.settings import PARTS, components
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial


def parts() -> dict[str, list[type[Config]]]:
    """What may stand under each key, from the top of the file down: components of one class, or members of a family."""
    found: dict[str, list[type[Config]]] = {STUDY: [Study]}
    for name, field in Study.model_fields.items():
        _add(
            found, name, [Trial] if name == "fixed" else components(field.annotation)
        )  # a tree, kept as written
    return found


def explained(name: str, inner: Sequence[type[Config]]) -> list[dict[str, Any]]:
    """Every component that may stand under the key, with its settings."""
    found = [described(each, name) for each in inner]
    for each, component in zip(found, inner, strict=True):
        if component is Trial:
            each["settings"] = [setting for setting in each["settings"] if setting["name"] in PARTS]
    return found


def _add(found: dict[str, list[type[Config]]], name: str, inner: Sequence[type[Config]]) -> None:
    if not inner or name in found:
        return
    found[name] = list(inner)
    for component in inner:
        for below, field in () if issubclass(component, Family) else component.model_fields.items():
            _add(found, below, components(field.annotation))
