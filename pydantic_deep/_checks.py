"""Checks of what callers pass: texts, prompts, names of models, settings and pages. Pure.

Each raises a `ValidationError` that names the argument, before anything is read, sent or written.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

from ._text.escapes import is_blank
from .errors import ValidationError

MAX_INTEGER: Final = 2**63 - 1
"""The largest number that every database takes."""

MAX_SECONDS: Final = 10**9
"""The longest time that is waited for, some 31 years: in microseconds it is a number that every database takes."""

_LEAST: Final[Mapping[str, float]] = {
    'temperature': 0, 'top_p': 0, 'top_k': 1, 'max_tokens': 1, 'presence_penalty': -math.inf,
    'frequency_penalty': -math.inf, 'seed': -math.inf, 'timeout': 0,
}  # fmt: skip
"""Settings that are numbers, with the least of each."""

_WHOLE: Final = frozenset({'top_k', 'max_tokens', 'seed'})
"""Those that are whole numbers."""

_SHOWN_CHARS: Final = 80
"""How much of a wrong value an error shows."""


def check_text(field: str, value: object) -> None:
    """Refuse what is no text, blank, or no Unicode.

    Raises:
        ValidationError: It is.
    """
    if not isinstance(value, str):
        raise ValidationError(field, f'it is {_shown(value)}, and it must be a text.')
    if is_blank(value):
        raise ValidationError(field, 'it is empty. Leave it out, or give it a text.')
    check_unicode(field, value)


def check_name(field: str, value: object) -> None:
    """Refuse a name or an id that is no text, blank, no Unicode, or has a NUL, which not every database takes.

    Raises:
        ValidationError: It is.
    """
    check_text(field, value)
    check_key(field, value)


def check_key(field: str, value: object) -> None:
    """Refuse what nothing in a store can be called: no text, no Unicode, or with a NUL. What is blank is only not found.

    Raises:
        ValidationError: It is.
    """
    if not isinstance(value, str):
        raise ValidationError(field, f'it is {_shown(value)}, and it must be a text.')
    check_unicode(field, value)
    if '\0' in value:
        raise ValidationError(field, 'it has the character NUL. Remove it.')


def check_keys(**values: object) -> None:
    """Refuse what nothing can be called as `check_key` does; `None` stands for one left out.

    Raises:
        ValidationError: One is.
    """
    for field, value in values.items():
        if value is not None:
            check_key(field, value)


def check_names(**values: object) -> None:
    """Refuse names and ids as `check_name` does, by the names of their arguments; `None` stands for one left out.

    Raises:
        ValidationError: One is no name.
    """
    for field, value in values.items():
        if value is not None:
            check_name(field, value)


def check_unicode(field: str, value: str) -> None:
    """Refuse a text with half of a surrogate pair in it, which no provider and no database takes.

    Raises:
        ValidationError: It has one.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(
            field, f'the character {error.start} is half of a surrogate pair, and no Unicode. Remove it.'
        ) from None


def check_prompt(field: str, prompt: object) -> None:
    """Refuse a prompt that says nothing: no text, or a list without media in which all texts are blank.

    Raises:
        ValidationError: It says nothing, has a text in it that is no Unicode, or something that is neither text nor media.
    """
    if isinstance(prompt, str | bytes | bytearray) or not isinstance(prompt, Sequence):
        check_text(field, prompt)
        return
    is_said = False
    for item in cast('Sequence[object]', prompt):
        text = item if isinstance(item, str) else getattr(item, 'content', None)
        if isinstance(text, str):
            check_unicode(field, text)
            is_said = is_said or not is_blank(text)
        elif not isinstance(kind := getattr(item, 'kind', None), str):
            raise ValidationError(field, f'it holds {_shown(item)}, which is neither a text nor media.')
        else:
            is_said = is_said or kind != 'cache-point'
    if not is_said:
        raise ValidationError(field, 'it is empty. Leave it out, or give it a text.')


def check_model(field: str, model: object) -> None:
    """Refuse the name of a model that is no text, blank or no Unicode; `None` and models are taken.

    Raises:
        ValidationError: It is one.
    """
    if isinstance(model, str | bytes | int | float):
        check_text(field, model)


def check_numbers(settings: Mapping[str, object]) -> None:
    """Refuse settings of a model that are no numbers where they must be, out of bounds, or of another wrong type.

    Raises:
        ValidationError: One is. Its `field` is the name of the setting.
    """
    for name, value in settings.items():
        if name == 'parallel_tool_calls' and not isinstance(value, bool | None):
            raise ValidationError(name, f'it is {_shown(value)}, and it must be true or false.')
        if name == 'stop_sequences' and value is not None:
            _check_stops(name, value)
        least = _LEAST.get(name)
        if least is None or value is None or (name == 'timeout' and not isinstance(value, str | int | float)):
            continue  # a timeout may be an object of httpx
        kind = int if name in _WHOLE else int | float
        if isinstance(value, bool) or not isinstance(value, kind):
            wanted = 'a whole number' if name in _WHOLE else 'a number'
            raise ValidationError(name, f'it is {_shown(value)}, and it must be {wanted}.')
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > MAX_INTEGER:
            raise ValidationError(name, f'JSON cannot hold this: {_shown(value)}.')
        if value < least or (name == 'timeout' and value == 0):
            raise ValidationError(
                name, f'it is {value}, and it must be {"more than 0" if not least else f"{least} or more"}.'
            )
        if name == 'top_p' and value > 1:
            raise ValidationError(name, f'it is {value}, and it must be 1 or less.')


def check_page(*, limit: object = 0, offset: object = 0) -> None:
    """Refuse a page that no database can be asked for.

    Raises:
        ValidationError: The limit or the offset is no whole number from 0 to `MAX_INTEGER`.
    """
    check_index('limit', limit)
    check_index('offset', offset)


def check_index(field: str, value: object) -> None:
    """Refuse what no database counts by.

    Raises:
        ValidationError: It is no whole number from 0 to `MAX_INTEGER`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_INTEGER:
        raise ValidationError(field, f'it is {_shown(value)}, and it must be a whole number from 0 to 2**63 - 1.')


def check_seconds(field: str, value: object) -> None:
    """Refuse what is no time to wait.

    Raises:
        ValidationError: It is no number from 0 to `MAX_SECONDS`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ValidationError(field, f'it is {_shown(value)}, and it must be a number from 0 to {MAX_SECONDS:,}.')


def _check_stops(name: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValidationError(name, f'it is {_shown(value)}, and it must be a list of texts.')
    for stop in cast('Sequence[object]', value):
        if not isinstance(stop, str) or not stop:
            raise ValidationError(name, f'it holds {_shown(stop)}, and each must be a text that is not empty.')
        check_unicode(name, stop)


def _shown(value: object) -> str:
    try:
        text = json.dumps(value) if isinstance(value, str) else repr(value)
    except ValueError:  # a number with more digits than Python writes
        return 'a number that is too large'
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'
