"""`loopscale schema`: the JSON Schema of a study's file, for editors."""

import copy
import json
from collections.abc import Mapping
from typing import Annotated, Any, cast

import typer

from loopscale.cli.output import show_verbatim

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "A study of loopscale"
INTEGER, NUMBER = r"^[-+]?[0-9][0-9_]*$", r"^[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$"
"""Numbers with underscores, such as 500_000, which other readers of YAML take for text."""


def command(
    members: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE|MODULE]...", help="Files and modules with further members."),
    ] = None,
) -> None:
    """Print the JSON Schema of a study's file. Editors complete and check a study with the schema.

    The first line of a study names the schema: `# yaml-language-server: $schema=schema.json`.

    [bold]Example[/bold]  loopscale schema my_model.py my_task.py > studies/schema.json
    """
    from loopscale.core.plugins import find_plugin, load

    for member in members or ():
        load(find_plugin(member))
    show_verbatim(json.dumps(study_schema(), indent=1, ensure_ascii=False))


def study_schema() -> dict[str, Any]:
    """The JSON Schema, built from the classes that read a study.

    Names, types, choices and limits of settings are in the schema. What the settings require of each other is not.
    """
    from pydantic.json_schema import models_json_schema

    from loopscale.cli.schema_generator import SchemaGenerator
    from loopscale.notation.files import PARTS
    from loopscale.studies.schema import StudySchema
    from loopscale.training.trial import Trial

    _, whole = models_json_schema(
        [(StudySchema, "validation"), (Trial, "validation")], schema_generator=SchemaGenerator
    )
    definitions = cast(dict[str, dict[str, Any]], whole["$defs"])
    study, trial = definitions.pop("StudySchema"), definitions.pop("Trial")
    parts = {part: _partial(trial["properties"][part], definitions) for part in PARTS}
    path = {"pattern": f"^({'|'.join(PARTS)})(\\.|$)"}
    properties = study["properties"]
    properties["fixed"] |= {"properties": parts, "additionalProperties": False}
    properties["scientific"]["propertyNames"] = properties["nuisance"]["propertyNames"] = path
    evaluated = definitions["Evaluation"]["properties"]["task"]
    evaluated["anyOf"] = [parts["task"], {"type": "null"}]
    schema = {"$schema": DRAFT, "title": TITLE} | study | {"$defs": _used(study, definitions)}
    properties["scientific"]["properties"] = {
        part: {"type": "array", "items": _whole(part)} for part in PARTS
    }
    return _readable_numbers(schema)


def _partial(component: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """A component whose other settings are varied or have their defaults: the settings of all kinds, none required."""
    settings: dict[str, list[Any]] = {}
    for member in _members(component, definitions):
        for name, setting in member["properties"].items():
            if setting not in settings.setdefault(name, []):
                settings[name].append(setting)
    properties = {name: each[0] if len(each) == 1 else {"anyOf": each} for name, each in settings.items()}
    if "kind" in settings:
        properties["kind"] = {"enum": [kind["const"] for kind in settings["kind"]]}
    return {"type": "object", "properties": copy.deepcopy(properties), "additionalProperties": False}


def _whole(part: str) -> dict[str, Any]:
    """A part of a trial as one value of an axis: its settings, or the kind of a task or a model alone."""
    settings = f"#/properties/fixed/properties/{part}"
    kinds = [] if part == "training" else [{"$ref": f"{settings}/properties/kind"}]
    return {"anyOf": [{"$ref": settings}, *kinds]}


def _members(component: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The schemas of all kinds of a component."""
    if "$ref" in component:
        return _members(definitions[component["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in component:
        return [member for each in component["anyOf"] for member in _members(each, definitions)]
    return [dict(component)]


def _used(schema: Any, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The definitions that the schema needs, also through other definitions."""
    used, waiting = set[str](), [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            name = str(cast(dict[str, Any], node).get("$ref", "")).rpartition("/")[2]
            if name and name not in used:
                used.add(name)
                waiting.append(definitions[name])
            waiting.extend(cast(dict[str, Any], node).values())
        elif isinstance(node, list):
            waiting.extend(cast(list[Any], node))
    return {name: definitions[name] for name in sorted(used)}


def _readable_numbers(node: Any) -> Any:
    """The schema, which also accepts numbers with underscores."""
    if isinstance(node, list):
        return [_readable_numbers(each) for each in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    readable = {name: _readable_numbers(each) for name, each in cast(dict[str, Any], node).items()}
    pattern = {"integer": INTEGER, "number": NUMBER}.get(str(readable.get("type")))
    return readable | {"type": [readable["type"], "string"], "pattern": pattern} if pattern else readable
