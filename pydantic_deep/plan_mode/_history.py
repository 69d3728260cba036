"""The plan mode of a conversation and its accepted plan, read from the messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, TextContent, UserContent

from pydantic_deep._checks import check_flags
from pydantic_deep._messages.headings import PLAN_MODE_HEADING
from pydantic_deep._messages.notice import noticed
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state

TOOL_NAME: Final = 'propose_plan'

PLAN_KEY: Final = 'pydantic_deep_plan'
"""The key in the metadata of a result that contains the accepted plan."""

MODE_KEY: Final = 'pydantic_deep_plan_mode'
"""The key in the metadata of a prompt that switches the mode."""

ID: Final = 'plan_mode'
"""The `id` of the capability, under which a summary stores its state."""

Mode: TypeAlias = Literal['on', 'off']

ON: Final = 'on. Change nothing. Find out what the task needs, then call propose_plan.'
"""The notice that switches the mode on."""

OFF: Final = 'off.'
"""The notice that switches the mode off."""


def with_plan_mode(prompt: str | Sequence[UserContent], *, is_on: bool = True) -> list[UserContent]:
    """Return a prompt that switches plan mode on, or off, for an agent with `PlanMode`.

    Args:
        prompt: The prompt. It needs a text.
        is_on: Whether the agent must propose a plan. `False` ends the mode without a plan.

    Raises:
        ValueError: The prompt has no text, or `is_on` is not a bool.
    """
    check_flags(is_on=is_on)
    items = [prompt] if isinstance(prompt, str) else list(prompt)
    for index, item in enumerate(items):
        text = item.content if isinstance(item, TextContent) else item
        if isinstance(text, str):
            before = item.metadata if isinstance(item, TextContent) else None
            metadata = {**_mapping(before), MODE_KEY: is_on}
            return [*items[:index], TextContent(text, metadata=metadata), *items[index + 1 :]]
    raise ValueError(f'The prompt {prompt!r} has no text. Add one to plan for.')


def requested_mode(prompt: str | Sequence[UserContent] | None) -> Mode | None:
    """Return the mode to which a prompt switches; `None` if it does not switch."""
    for item in prompt if prompt is not None and not isinstance(prompt, str) else ():
        is_on = _mapping(item.metadata).get(MODE_KEY) if isinstance(item, TextContent) else None
        if is_on is not None:
            return 'on' if is_on else 'off'
    return None


def is_planning(messages: Sequence[ModelMessage]) -> bool:
    """Return whether plan mode is on at the end of a history."""
    return last_mode(messages) == 'on'


def last_mode(messages: Sequence[ModelMessage]) -> Mode | None:
    """Return the mode at the end of a history; `None` if nothing has switched it."""
    # A summary retains the system prompts of the first message, although the mode may have been switched since.
    carried = cast('Mode | None', _mapping(carried_state(messages, ID)).get('mode'))
    return last_switch(messages[1:]) or carried or last_switch(messages[:1])


def last_switch(messages: Sequence[ModelMessage]) -> Mode | None:
    """Return the mode to which the last switch in these messages leads; `None` if there is none."""
    return next((mode for mode, _ in _switches(messages)), None)


def messages_after(messages: Sequence[ModelMessage], last: ModelMessage | None) -> Sequence[ModelMessage]:
    """Return the messages after one of them; all messages if it is not among them."""
    for index in range(len(messages) - 1, -1, -1):
        if messages[index] is last:
            return messages[index + 1 :]
    return messages


def accepted_plan(messages: Sequence[ModelMessage]) -> str | None:
    """Return the last plan that a person accepted in a history, with their edits; `None` if there is none.

    The plan of a version is `accepted_plan(await version.messages())`.
    """
    plan = next((plan for _, plan in _switches(messages) if plan is not None), None)
    if plan is None:
        plan = cast('str | None', _mapping(carried_state(messages, ID)).get('plan'))
    return plan


def carried_over(replaced: Sequence[ModelMessage]) -> CarriedOver:
    """Return the mode and the plan of messages that a summary replaces."""
    mode, plan = last_mode(replaced), accepted_plan(replaced)
    if mode is None:
        return CarriedOver(text='')
    text = f'{PLAN_MODE_HEADING}\n{ON if mode == "on" else OFF}'
    state: dict[str, JsonValue] = {'mode': mode, 'plan': plan}
    return CarriedOver(text=text if plan is None else f'{text}\nAccepted plan:\n{plan}', state=state)


def _switches(messages: Sequence[ModelMessage]) -> Iterator[tuple[Mode, str | None]]:
    """Yield each switch of the mode, newest first, with the plan if the switch accepted one."""
    for message in reversed(messages):
        for part in reversed(message.parts):
            match part.part_kind:  # comparing kinds is fast, and this runs for every part of a long history
                case 'tool-return':
                    if part.tool_name == TOOL_NAME and PLAN_KEY in (metadata := _mapping(part.metadata)):
                        yield 'off', cast('str', metadata[PLAN_KEY])
                case 'system-prompt':
                    text = noticed(part, PLAN_MODE_HEADING)
                    if text is not None:
                        yield 'on' if text == ON else 'off', None
                case _:
                    pass


def _mapping(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}
