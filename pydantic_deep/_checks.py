"""Validation of arguments: texts, prompts, names of models, settings and pages. Pure.

Each check raises a `ValidationError` with the name of the argument. Callers check before they read, send or write
anything.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from ._text.escapes import is_blank
from .errors import ValidationError

if TYPE_CHECKING:
    import pydantic

MAX_INTEGER: Final = 2**63 - 1
"""The largest integer that every database accepts."""

MAX_SECONDS: Final = 10**9
"""The longest time to wait, about 31 years. Every database accepts it as a number of microseconds."""

_LEAST: Final[Mapping[str, float]] = {
    'temperature': 0, 'top_p': 0, 'top_k': 1, 'max_tokens': 1, 'presence_penalty': -math.inf,
    'frequency_penalty': -math.inf, 'seed': -math.inf, 'timeout': 0,
}  # fmt: skip
"""Numeric settings, with their minimum values."""

_WHOLE: Final = frozenset({'top_k', 'max_tokens', 'seed'})
"""Settings that are integers."""

CREATE_AGENT: Final = 'Pass an agent, such as that of `create_deep_agent()`.'
"""What to do if an argument should be an agent."""

LIMIT_USAGE: Final = 'For example, `UsageLimits(request_limit=10)`.'
"""What to do if an argument should be usage limits."""

LOAD_VERSION: Final = 'Load a version by its id: `await versioned_agent.load(id)`.'
"""What to do if an argument should be a version."""

_SHOWN_CHARS: Final = 80
"""Maximum length of an invalid value in an error, in characters."""


def check_text(field: str, value: object) -> None:
    """Check a text.

    Raises:
        ValidationError: The value is not a string, blank, or not valid Unicode.
    """
    if not isinstance(value, str):
        raise ValidationError(field, f'it is {_shown(value)}, and must be a string.')
    if is_blank(value):
        raise ValidationError(field, 'it is empty. Omit it, or pass a text.')
    check_unicode(field, value)


def check_name(field: str, value: object) -> None:
    """Check a new name or id.

    Raises:
        ValidationError: The value is not a string, blank, not valid Unicode, or has a NUL, which not every database
            accepts.
    """
    check_text(field, value)
    check_key(field, value)


def check_key(field: str, value: object) -> None:
    """Check a name or id to look up. A blank one is valid: it is just not found.

    Raises:
        ValidationError: The value is not a string, not valid Unicode, or has a NUL.
    """
    if not isinstance(value, str):
        raise ValidationError(field, f'it is {_shown(value)}, and must be a string.')
    check_unicode(field, value)
    if '\0' in value:
        raise ValidationError(field, 'it has the character NUL. Remove it.')


def check_keys(**values: object) -> None:
    """Call `check_key` for each argument that is not `None`, with its name as the field.

    Raises:
        ValidationError: A value is invalid.
    """
    for field, value in values.items():
        if value is not None:
            check_key(field, value)


def check_names(**values: object) -> None:
    """Call `check_name` for each argument that is not `None`, with its name as the field.

    Raises:
        ValidationError: A value is invalid.
    """
    for field, value in values.items():
        if value is not None:
            check_name(field, value)


def check_name_list(
    field: str, values: Sequence[str] | None, check: Callable[[str, object], None] = check_name
) -> None:
    """Check a list of names; `None` is valid.

    Args:
        field: The name of the argument.
        values: The list.
        check: Checks a name: `check_key` for names to look up.

    Raises:
        ValidationError: It is a text, whose characters would be the names, or a name is invalid.
    """
    if values is not None and (isinstance(values, str) or not isinstance(cast('object', values), Collection)):
        raise ValidationError(field, f'it is {_shown(values)}. Pass a list of names.')
    for value in values or ():
        check(field, value)


def check_strings(option: str, values: object) -> None:
    """Check an option of a capability that is a list of strings.

    Raises:
        TypeError: It is one string, whose characters would be the items, or is not a list, or an item is no string.
    """
    if isinstance(values, str):
        raise TypeError(f'`{option}` is {values!r}. Pass a list: `[{values!r}]`.')
    items = cast('Collection[object]', values) if isinstance(values, Collection) else [values]
    if not all(isinstance(item, str) for item in items):
        raise TypeError(f'`{option}` is {_shown(cast("object", values))}. Pass a list of strings.')


def check_list(field: str, values: object, kinds: type | tuple[type, ...], advice: str) -> None:
    """Check a list of objects, or of functions of a run that create such objects.

    Raises:
        ValidationError: It is not a list, or an item is neither such an object nor a function.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
        raise ValidationError(field, f'it is of type `{type(cast("object", values)).__name__}`. {advice}')
    for item in cast('Collection[object]', values):
        if not isinstance(item, kinds) and (isinstance(item, type) or not callable(item)):
            given = f'the class `{item.__name__}`' if isinstance(item, type) else f'a `{type(item).__name__}`'
            raise ValidationError(field, f'it has {given}. {advice}')


def check_messages(field: str, messages: object) -> None:
    """Check a message history.

    Raises:
        ValidationError: It is not a list of messages.
    """
    from pydantic_ai.messages import ModelRequest, ModelResponse

    is_list = isinstance(messages, Sequence) and not isinstance(messages, str)
    for message in cast('Sequence[object]', messages if is_list else [messages]):
        if not isinstance(message, ModelRequest | ModelResponse):
            given = f'it holds an object {_described(message)}' if is_list else f'it is {_described(message)}'
            raise ValidationError(field, f'{given}. Pass a list of messages, such as `result.all_messages()`.')


def check_tools(tools: object, toolsets: object, capabilities: object) -> None:
    """Check the lists of tools, toolsets and capabilities of an agent.

    Raises:
        ValidationError: One of them is not a list of such objects.
    """
    from pydantic_ai import AbstractToolset, Tool
    from pydantic_ai.capabilities import AbstractCapability

    check_list('tools', tools, Tool, 'Pass a list of functions or `Tool` objects.')
    check_list('toolsets', toolsets, AbstractToolset, 'Pass a list of toolsets, as objects.')
    check_list('capabilities', capabilities, AbstractCapability, 'Pass a list of capabilities, as objects.')


def check_instructions(instructions: object) -> None:
    """Check the instructions of an agent: a text, a list of texts, or `None`.

    Raises:
        TypeError: They are something else.
    """
    if instructions is None or isinstance(instructions, str):
        return
    texts = cast('Sequence[object]', instructions) if isinstance(instructions, Sequence) else [instructions]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(
            f'`instructions` is {_shown(cast("object", instructions))}. Pass a text or a list of texts; decorate a function with '
            '`@agent.instructions`.'
        )


def check_unicode(field: str, value: str) -> None:
    """Check that a text is valid Unicode, as providers and databases require.

    Raises:
        ValidationError: The text has a lone surrogate.
    """
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValidationError(field, f'the character {error.start} is half of a surrogate pair. Remove it.') from None


def check_prompt(field: str, prompt: object) -> None:
    """Check a prompt: a text, or a list of texts and media.

    Raises:
        ValidationError: The prompt has neither media nor a text that is not blank, a text is not valid Unicode, or an
            item is neither a text nor media.
    """
    if isinstance(prompt, str | bytes | bytearray) or not isinstance(prompt, Sequence):
        check_text(field, prompt)
        return
    has_content = False
    for item in cast('Sequence[object]', prompt):
        text = item if isinstance(item, str) else getattr(item, 'content', None)
        if isinstance(text, str):
            check_unicode(field, text)
            has_content = has_content or not is_blank(text)
        elif not isinstance(kind := getattr(item, 'kind', None), str):
            raise ValidationError(field, f'it holds {_shown(item)}, which is neither a text nor media.')
        else:
            has_content = has_content or kind != 'cache-point'
    if not has_content:
        raise ValidationError(field, 'it is empty. Omit it, or pass a text.')


def check_model(field: str, model: object) -> None:
    """Check a model or its name. `None` is valid.

    Raises:
        ValidationError: The name is blank or not valid Unicode, or it is neither a model nor a name.
    """
    if isinstance(model, type) or not (model is None or isinstance(model, str) or hasattr(model, 'request_stream')):
        raise ValidationError(field, f'it is {_described(model)}. Pass a model, or its name as a string.')
    if isinstance(model, str):
        check_text(field, model)


def check_numbers(settings: Mapping[str, object]) -> None:
    """Check the types and bounds of model settings.

    Raises:
        ValidationError: A setting is invalid. `field` is the name of the setting.
    """
    check_object('model_settings', settings, Mapping, "For example, `{'temperature': 0}`.")
    for name, value in settings.items():
        if name == 'parallel_tool_calls' and not isinstance(value, bool | None):
            raise ValidationError(name, f'it is {_shown(value)}, and must be true or false.')
        if name == 'stop_sequences' and value is not None:
            _check_stops(name, value)
        least = _LEAST.get(name)
        if least is None or value is None or (name == 'timeout' and not isinstance(value, str | int | float)):
            continue  # a timeout may be an httpx object
        kind = int if name in _WHOLE else int | float
        if isinstance(value, bool) or not isinstance(value, kind):
            wanted = 'a whole number' if name in _WHOLE else 'a number'
            raise ValidationError(name, f'it is {_shown(value)}, and must be {wanted}.')
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > MAX_INTEGER:
            raise ValidationError(name, f'JSON cannot hold this: {_shown(value)}.')
        if value < least or (name == 'timeout' and value == 0):
            raise ValidationError(
                name, f'it is {value}, and must be {"more than 0" if not least else f"{least} or more"}.'
            )
        if name == 'top_p' and value > 1:
            raise ValidationError(name, f'it is {value}, and must be 1 or less.')


def check_page(*, limit: object = 0, offset: object = 0) -> None:
    """Check the limit and the offset of a page.

    Raises:
        ValidationError: One of them is not an integer from 0 to `MAX_INTEGER`.
    """
    check_index('limit', limit)
    check_index('offset', offset)


def check_index(field: str, value: object, *, least: int = 0) -> None:
    """Check a count or position.

    Raises:
        ValidationError: The value is not an integer from `least` to `MAX_INTEGER`.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_INTEGER:
        raise ValidationError(field, f'it is {_shown(value)}, and must be a whole number from {least} to 2**63 - 1.')


def check_object(field: str, value: object, kinds: type | tuple[type, ...], advice: str) -> None:
    """Check that an argument is an object of one of some classes.

    Args:
        field: The name of the argument.
        value: The argument.
        kinds: The class, or the classes.
        advice: What to pass instead, as a sentence.

    Raises:
        ValidationError: It is not.
    """
    if not isinstance(value, kinds):
        wanted = ' or '.join(f'`{kind.__name__}`' for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
        given = type(value).__name__  # not the value, which may be a URL with a password
        raise ValidationError(field, f'it is of type `{given}`, and must be of type {wanted}. {advice}')


def check_flags(**values: object) -> None:
    """Check that each argument, with its name as the field, is a bool: the text `'no'` would be true.

    Raises:
        ValidationError: One is not.
    """
    for field, value in values.items():
        if not isinstance(value, bool):
            raise ValidationError(field, f'it is {_shown(value)}. Pass True or False.')


def check_choices(field: str, values: object, choices: Sequence[str]) -> None:
    """Check a list of some texts; `None` is valid.

    Raises:
        ValidationError: It is one text or no list, or an item is not one of the texts.
    """
    if values is not None and (isinstance(values, str) or not isinstance(values, Collection)):
        raise ValidationError(field, f'it is {_shown(values)}. Pass a list of {" or ".join(map(repr, choices))}.')
    for value in cast('Collection[object]', values or ()):
        check_choice(field, value, choices)


def check_choice(field: str, value: object, choices: Sequence[str]) -> None:
    """Check that an argument is one of some texts.

    Raises:
        ValidationError: It is not.
    """
    if value not in choices:
        raise ValidationError(field, f'it is {_shown(value)}. Use {" or ".join(map(repr, choices))}.')


def check_class(field: str, value: object, base: type) -> None:
    """Check that an argument is a class, the given one or a subclass of it.

    Raises:
        ValidationError: It is not.
    """
    if not isinstance(value, type) or not issubclass(value, base):
        raise ValidationError(field, f'it is {_described(value)}. Pass `{base.__name__}` or a subclass of it.')


def check_output_type(field: str, value: object) -> None:
    """Check the form of an output type: pydantic-ai would iterate over a text without end.

    Raises:
        ValidationError: It is, or contains, a text or a mapping instead of a type.
    """
    value = getattr(value, 'outputs', value)  # of `NativeOutput` and `PromptedOutput`
    if isinstance(value, str | bytes | Mapping):
        raise ValidationError(
            field, f'it is, or has, {_shown(cast("object", value))}. Pass a type, such as `str`, or a list of types.'
        )
    if isinstance(value, Sequence):
        for item in cast('Sequence[object]', value):
            check_output_type(field, item)


def check_member(field: str, value: object, member: str, kind: str, advice: str) -> None:
    """Check that an argument is an object of a protocol, by one of its members.

    Args:
        field: The name of the argument.
        value: The argument.
        member: A member of the protocol.
        kind: The name of the protocol.
        advice: What to pass instead, as a sentence.

    Raises:
        ValidationError: It is a class, or has no such member.
    """
    if isinstance(value, type) or not hasattr(value, member):
        raise ValidationError(field, f'it is {_described(value)}, and must be of type `{kind}`. {advice}')


def check_backend(field: str, backend: object) -> None:
    """Check that an argument is a backend or a workspace of pydantic-ai.

    Raises:
        ValidationError: It is neither.
    """
    check_member(field, backend, 'working_dir', 'BackendProtocol', 'For example, `LocalBackend(directory)`.')


def check_functions(**values: object) -> None:
    """Check each argument that is not `None`, with its name as the field, for being a function.

    Raises:
        ValidationError: One is not.
    """
    for field, value in values.items():
        if value is not None and not callable(value):
            raise ValidationError(field, f'it is of type `{type(value).__name__}`. Pass a function.')


def check_store(store: object) -> None:
    """Check that an argument is a store, or an object that forwards to one.

    Raises:
        ValidationError: It is neither.
    """
    check_member('store', store, 'commit', 'Store', 'Open one: `async with open_store(url) as store:`.')


def check_least(option: str, value: object, least: int, *, or_none: bool = False, is_whole: bool = True) -> None:
    """Check a numeric option of a capability.

    Raises:
        ValueError: It is not a number, a fraction where only whole numbers are valid, or too small.
    """
    if isinstance(value, bool) or not isinstance(value, int if is_whole else int | float) or not value >= least:
        wanted = f'{"a whole number, " if is_whole else ""}at least {least}{", or `None`" if or_none else ""}'
        raise ValueError(f'`{option}` is {_shown(value)}. Use {wanted}.')


def check_positive(option: str, value: object) -> None:
    """Check a numeric option of a capability that is more than 0.

    Raises:
        ValueError: It is not a number, or 0 or less.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ValueError(f'`{option}` is {_shown(value)}. Use a positive number.')


def check_seconds(field: str, value: object) -> None:
    """Check a duration.

    Raises:
        ValidationError: The value is not a number from 0 to `MAX_SECONDS`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ValidationError(field, f'it is {_shown(value)}, and must be a number from 0 to {MAX_SECONDS:,}.')


def _check_stops(name: str, value: object) -> None:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValidationError(name, f'it is {_shown(value)}, and must be a list of strings.')
    for stop in cast('Sequence[object]', value):
        if not isinstance(stop, str) or not stop:
            raise ValidationError(name, f'it holds {_shown(stop)}, and each item must be a non-empty string.')
        check_unicode(name, stop)


def _described(value: object) -> str:
    return f'the class `{value.__name__}`' if isinstance(value, type) else f'of type `{type(value).__name__}`'


def _shown(value: object) -> str:
    try:
        text = json.dumps(value) if isinstance(value, str) else repr(value)
    except ValueError:  # an integer with more digits than Python converts to a string
        return 'a number that is too large'
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'


def describe_problem(error: pydantic.ValidationError) -> str:
    """Return the first problem that pydantic found, with its place, without values, which may be secrets."""
    problem = error.errors(include_url=False, include_input=False)[0]
    place = '.'.join(map(str, problem['loc']))
    message = problem['msg'].removeprefix('Value error, ')
    return f'`{place}`: {message}' if place else message
