"""The output type of an agent, for parsing stored outputs."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation
from pydantic_ai import DeferredToolRequests, NativeOutput, PromptedOutput, TextOutput, ToolOutput


def output_adapter(spec: object) -> TypeAdapter[Any]:
    """Return the adapter that parses outputs of an agent with this `output_type`; plain JSON if the type is unknown."""
    union: Any = None
    for output_type in _types_of(spec):
        union = output_type if union is None else union | output_type
    try:
        return TypeAdapter[Any](Any if union is None else union)
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation):
        return TypeAdapter(Any)


def _types_of(spec: object) -> list[Any]:
    """Return the types of outputs that a run can end with, except pauses."""
    match spec:
        case ToolOutput():
            return _types_of(cast('ToolOutput[object]', spec).output)
        case NativeOutput() | PromptedOutput():
            return _types_of(cast('NativeOutput[object]', spec).outputs)
        case TextOutput():
            return _types_of(cast('TextOutput[object]', spec).output_function)
        case _ if isinstance(spec, Sequence) and not isinstance(spec, str):
            return [output_type for item in cast('Sequence[object]', spec) for output_type in _types_of(item)]
        case _ if get_origin(spec) in (Union, UnionType):
            return [output_type for item in get_args(spec) for output_type in _types_of(item)]
        case _ if spec is DeferredToolRequests:
            return []
        case _ if isinstance(spec, type) or get_origin(spec) is not None:
            return [spec]
        case _:
            return [_returned_by(spec)]


def _returned_by(function: object) -> Any:
    """Return the return annotation of a function; `Any` if it has none."""
    try:
        return get_type_hints(function).get('return', Any)
    except (NameError, TypeError):
        return Any
