"""Lossless JSON of messages: pydantic-ai's own adapter writes NaN and infinities as null. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import cast

from pydantic import ConfigDict, JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from .half_characters import repair


@cache
def message_adapter() -> TypeAdapter[list[ModelMessage]]:
    """Return an adapter that writes messages as pydantic-ai does, but preserves NaN and infinities."""
    config = ConfigDict(ser_json_bytes='base64', val_json_bytes='base64', ser_json_inf_nan='constants')
    return TypeAdapter(list[ModelMessage], config=config)


def dump_message(message: ModelMessage) -> bytes:
    """Return a list of one message as JSON. A message with half of a surrogate pair is repaired, in place."""
    try:
        return message_adapter().dump_json([message])
    except PydanticSerializationError:
        repair([message])
        return message_adapter().dump_json([message])


def dump_history(messages: Sequence[ModelMessage]) -> JsonValue:
    """Return messages as a value for any JSON encoder: a string if they contain NaN or infinities."""
    dumped = cast('JsonValue', message_adapter().dump_python(list(messages), mode='json'))
    try:
        json.dumps(dumped, allow_nan=False)
    except ValueError:
        return json.dumps(dumped)
    return dumped


def parse_history(dumped: JsonValue) -> list[ModelMessage]:
    """Return the messages that `dump_history` serialized.

    Raises:
        ValidationError: The value is not a history. (This is pydantic's error.)
    """
    if isinstance(dumped, str):
        return ModelMessagesTypeAdapter.validate_json(dumped)
    return ModelMessagesTypeAdapter.validate_python(dumped)
