"""The output type of a turn whose caller gives a JSON schema. This module requires the extra `server`.

pydantic-ai sends a schema to the model and does not validate the output with it, so this module does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue, TypeAdapter
from pydantic_ai import StructuredDict, UserError
from pydantic_core import core_schema

from pydantic_deep.errors import TurnOptionError

try:
    import jsonschema_rs
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        '`output_schema` needs `jsonschema-rs`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[server]'`.",
        name=error.name,
    ) from error

_FIELD = 'output_schema'


def output_type_of(schema: Mapping[str, JsonValue]) -> type[Any]:
    """Return the type of outputs that are valid by a schema.

    Raises:
        TurnOptionError: It is not a valid schema, refers to other documents, or is recursive.
    """
    try:
        # Patterns come from callers, so they run in linear time.
        validator = jsonschema_rs.validator_for(
            dict(schema), pattern_options=jsonschema_rs.RegexOptions(), retriever=_refuse
        )
        inlined = _without_references(schema)
    except UserError:
        raise TurnOptionError(_FIELD, 'the schema is recursive, which is not supported. Limit its depth.') from None
    except ValueError as error:
        line = str(error).partition('\n')[0]
        raise TurnOptionError(_FIELD, f'this is not a JSON schema that can be used: {line}') from None

    def check(value: Any) -> Any:
        problem = next(validator.iter_errors(value), None)
        if problem is not None:
            place = ''.join(f'/{step}' for step in problem.instance_path)
            raise ValueError(f'{place}: {problem.message}' if place else problem.message)
        return value

    class Output:
        __is_model_like__ = inlined.get('type') == 'object'  # pydantic-ai wraps other outputs in an object

        @classmethod
        def __get_pydantic_core_schema__(
            cls, source_type: Any, handler: GetCoreSchemaHandler
        ) -> core_schema.CoreSchema:
            return core_schema.no_info_after_validator_function(check, core_schema.any_schema())

        @classmethod
        def __get_pydantic_json_schema__(
            cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
        ) -> dict[str, Any]:
            return inlined

    return Output


def _without_references(schema: Mapping[str, JsonValue]) -> dict[str, Any]:
    """Return a schema with its `$defs` inlined. pydantic rejects `$defs` in the schema of a type.

    Raises:
        UserError: The schema is recursive.
    """
    root = {name: value for name, value in schema.items() if name != '$defs'}
    wrapper = {'type': 'object', 'properties': {'output': root}, '$defs': schema.get('$defs', {})}
    return TypeAdapter(StructuredDict(wrapper)).json_schema()['properties']['output']


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f'the reference {uri!r} is not fetched. Put the definition into `$defs`.')
