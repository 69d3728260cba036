"""JSON schemas of tools without keywords that models do not need. Every request pays for each character."""

from __future__ import annotations

from pydantic.json_schema import JsonSchemaValue
from pydantic_ai.tools import GenerateToolJsonSchema
from pydantic_core import core_schema


class ToolSchema(GenerateToolJsonSchema):
    """Omits defaults, `null`, and that further arguments are not allowed.

    Validation does not depend on the schema: it adds defaults, accepts `null`, and refuses unknown arguments. Optional
    parameters are those that are not in `required`.
    """

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """Return the schema without the default."""
        return self.generate_inner(schema['schema'])

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        """Return the schema without `null`."""
        return self.generate_inner(schema['schema'])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        """Return the schema of the arguments without `additionalProperties`."""
        return {key: value for key, value in super().typed_dict_schema(schema).items() if key != 'additionalProperties'}
