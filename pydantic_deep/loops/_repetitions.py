"""Find results that repeat within a turn. Pure.

A result repeats if the same call had it before, and no call has had a new one since. Work that makes progress also
repeats calls: a test that fails after each edit, a file that is read again. Between two such calls, another one has a
result that the turn has not seen before.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from pydantic_deep._requests.canonical_request import canonical_message, digest

LIMIT: Final = 3
"""The count from which a notice replaces a result."""

ADVICE: Final = 'Try other arguments, another tool, or answer with what you know.'
"""The text about what else the model can do."""

NOTICE: Final = f'The same result for the third time. {ADVICE}'
"""The text that replaces a result."""

NEXT_NOTICE: Final = 'The same result again.'
"""The text that replaces a result after a notice."""

_OFFLOADED = re.compile(r'/offload/[\w-]+')
"""The path of the complete text in the preview of a large result. It differs with each call."""


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A result in a request."""

    part: ToolReturnPart
    arguments: str
    """The arguments of the call, as JSON with sorted keys."""
    key: str
    """A digest of the call and the result."""
    count: int
    """The number of responses with such a call and result since the last new result."""


class ResultCounter:
    """Counts results since the last new one.

    Calls of one response count once: the model makes them before it knows their results.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        """All results, with those before the last new one."""
        self.counts: Counter[str] = Counter()

    def add(self, keys: set[str]) -> None:
        """Count the results of one response. If one of them is new, all counts start again."""
        if not keys <= self.seen:
            self.seen |= keys
            self.counts.clear()
        self.counts.update(keys)


class TurnResults:
    """The results of a turn, read from the messages of its run as they are added.

    If a summary replaces messages, the rest of the turn is read again, and results before it count as new.
    """

    def __init__(self) -> None:
        self._start_turn()
        self._calls: dict[str, ToolCallPart] = {}
        """The calls of the last response, by id."""
        self._response: tuple[int, ModelResponse] | None = None
        """The last response that was read, and its index."""
        self._read = 0
        """The number of messages that were read."""
        self._latest: list[Repetition] = []
        """The results in the last message that was read."""

    def read(self, messages: Sequence[ModelMessage]) -> list[Repetition]:
        """Count the results in messages that were not read yet, and return those of the last message."""
        if not self._continues(messages):
            self._start_turn()
            self._read = next((i for i in range(len(messages) - 1, 0, -1) if starts_turn(messages[i])), 0)
        for index in range(self._read, len(messages)):
            message = messages[index]
            if isinstance(message, ModelResponse):
                self._response, self._latest = (index, message), []
                self._calls = {part.tool_call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
            else:
                self._latest = self._add(message)
        self._read = len(messages)
        return self._latest

    def next_count(self, call: ToolCallPart, part: ToolReturnPart, content: str | Sequence[UserContent] | None) -> int:
        """Return the count of a result that is in no message yet.

        Args:
            call: The call. If it is not of the last response, as a call by another tool, the count is 1.
            part: Its result.
            content: The content that follows the results in a prompt, if any.
        """
        if call.tool_call_id not in self._calls:
            return 1
        key = _key(digest([part.tool_name, _arguments_of(call)]), part)
        is_known = content is None or _prompt_key(UserPromptPart(content)) in self._counter.seen
        return self._counter.counts[key] + 1 if is_known and key in self._counter.seen else 1

    def restart(self, result: Repetition) -> None:
        """Count a result as the first."""
        self._counter.counts[result.key] = 1

    def _continues(self, messages: Sequence[ModelMessage]) -> bool:
        """Return whether messages begin with those that were read."""
        if self._response is None:
            return False
        index, response = self._response
        return index < len(messages) and messages[index] is response

    def _start_turn(self) -> None:
        self._counter = ResultCounter()
        self._last_keys: dict[str, str] = {}
        """The key of the last result of each call, for which a notice stands."""

    def _add(self, request: ModelRequest) -> list[Repetition]:
        if starts_turn(request):
            self._start_turn()
        results: list[tuple[ToolReturnPart, str, str]] = []
        for part in request.parts:
            if isinstance(part, ToolReturnPart) and (tool_call := self._calls.get(part.tool_call_id)) is not None:
                arguments = _arguments_of(tool_call)
                call = digest([part.tool_name, arguments])
                if not (is_notice(part) and call in self._last_keys):
                    self._last_keys[call] = _key(call, part)
                results.append((part, arguments, self._last_keys[call]))
        # Images of tools, and messages of the user during the turn, are new results too.
        prompts = {_prompt_key(part) for part in request.parts if isinstance(part, UserPromptPart)}
        self._counter.add({key for *_, key in results} | prompts)
        return [
            Repetition(part=part, arguments=arguments, key=key, count=self._counter.counts[key])
            for part, arguments, key in results
        ]


def starts_turn(message: ModelMessage) -> bool:
    """Return whether a message starts a turn. A prompt beside results was added later, by a tool or a person."""
    has_prompt = any(isinstance(part, UserPromptPart) for part in message.parts)
    return has_prompt and not any(isinstance(part, ToolReturnPart) for part in message.parts)


def is_notice(part: ToolReturnPart) -> bool:
    """Return whether a result was replaced by a notice."""
    return isinstance(part.content, str) and part.content in (NOTICE, NEXT_NOTICE)


def has_results(messages: Iterable[ModelMessage], part: ToolReturnPart) -> bool:
    """Return whether the model has a result as often as the limit assumes. Capabilities may have removed old results."""
    content, missing = _content(part), LIMIT - 1
    for message in messages:
        for other in message.parts:
            if isinstance(other, ToolReturnPart) and other.tool_name == part.tool_name and _content(other) == content:
                missing -= 1
    return missing <= 0


def _key(call: str, part: ToolReturnPart) -> str:
    return digest([call, *_content(part)])


def _prompt_key(part: UserPromptPart) -> str:
    return digest(canonical_message(ModelRequest(parts=[part])))


def _arguments_of(call: ToolCallPart) -> str:
    return json.dumps(call.args_as_dict(), sort_keys=True, default=repr)


def _content(part: ToolReturnPart) -> list[str]:
    """Return the content of a result that a model receives, without what differs with each call.

    A result that can be read only once, or that no model can receive, differs from all others.
    """
    if isinstance(part.content, Iterator):
        return [part.tool_call_id]
    try:
        text = part.model_response_str()
    except ValueError:
        return [part.tool_call_id]
    return [part.outcome, _OFFLOADED.sub('', text), *(file.identifier for file in part.files)]
