"""JSON Schemas of the classes that read a study, with the kinds of families and the texts below settings."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import override

from loopscale.cli.describe import setting_notes
from loopscale.core.config import Config, Family
from loopscale.solvers.construction import Constructed
from loopscale.theory.constructions.base import Construction


class SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator, which knows neither families nor the texts below settings.

    The settings of a baseline `construction` depend on its name, so the schema accepts all settings there.
    """

    @override
    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        component: type[Any] = schema["cls"]
        if issubclass(component, Family) and not component.kind:
            members = component.choices().values()
            return {"anyOf": [self.generate_inner(member.__pydantic_core_schema__) for member in members]}
        if component is Constructed:
            names = [kind for kind, choice in Construction.choices().items() if choice.solves]
            named = {"kind": {"const": component.kind}, "name": {"enum": names}}
            return {"type": "object", "properties": named, "required": ["kind", "name"]}
        described = super().model_schema(schema)
        described.pop("title", None)
        if not issubclass(component, Config):
            return described
        properties = described.get("properties", {})
        notes = setting_notes(component)
        for name, setting in properties.items():
            setting.pop("title", None)
            if name in notes:
                setting.setdefault("description", notes[name])
        if issubclass(component, Family):
            described["properties"] = {"kind": {"const": component.kind}} | properties
            if component.kind != component.default_kind:
                described["required"] = ["kind", *described.get("required", [])]
        return described
