"""The additions of a builder to a conversation: messages and configuration, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Generic

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    TextPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings, merge_model_settings
from pydantic_ai.toolsets import AbstractToolset
from typing_extensions import TypeVar

from pydantic_deep._checks import check_prompt, check_text
from pydantic_deep._text.escapes import is_blank

from .errors import EmptyMessageError

DepsT = TypeVar('DepsT', default=object)
OutputT = TypeVar('OutputT', default=str)

Prompt = str | Sequence[UserContent]
"""The content of a user message: text, or text with media."""


@dataclass(frozen=True, kw_only=True)
class Config(Generic[DepsT]):
    """The configuration of a conversation, in addition to that of the agent. It is never serialized."""

    instructions: tuple[str, ...] = ()
    """Additional instructions, in this order."""
    toolsets: tuple[AbstractToolset[DepsT], ...] = ()
    """Toolsets with additional tools, in this order."""
    model: Model | str | None = None
    """The model, instead of the agent's."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings, which override those of the agent."""

    def plus(self, delta: Config[DepsT]) -> Config[DepsT]:
        """Return this configuration with a delta applied: instructions and tools are added, models and settings
        replaced.

        Settings are copied, so that no dictionary is shared between builders or conversations.
        """
        return Config(
            instructions=self.instructions + delta.instructions,
            toolsets=self.toolsets + delta.toolsets,
            model=self.model if delta.model is None else delta.model,
            settings=merge_model_settings(self.settings, deepcopy(delta.settings)) or ModelSettings(),
        )


@dataclass(frozen=True, kw_only=True)
class Delta(Generic[DepsT]):
    """The additions of a builder."""

    messages: tuple[ModelMessage, ...] = ()
    """The added messages, in order."""
    config: Config[DepsT] = field(default_factory=Config[DepsT])
    """Configuration to add to that of the conversation."""

    def with_message(self, message: ModelMessage) -> Delta[DepsT]:
        """Return this delta with another message."""
        return replace(self, messages=(*self.messages, message))

    def with_config(self, config: Config[DepsT]) -> Delta[DepsT]:
        """Return this delta with further configuration."""
        return replace(self, config=self.config.plus(config))


def user_message(content: Prompt) -> ModelRequest:
    """Return a user message.

    Raises:
        EmptyMessageError: The content is empty.
    """
    _check('user', content)
    return ModelRequest([UserPromptPart(content if isinstance(content, str) else deepcopy(list(content)))])


def assistant_message(text: str) -> ModelResponse:
    """Return an assistant message, stripped of whitespace.

    Raises:
        EmptyMessageError: The text is blank.
    """
    _check('assistant', text)
    return ModelResponse([TextPart(text.strip())])


def check_instructions(text: str) -> None:
    """Validate instructions.

    Raises:
        EmptyMessageError: The text is blank.
        ValidationError: The text is not a string, or not valid Unicode.
    """
    _check('instructions', text)


def _check(role: str, content: Prompt) -> None:
    if is_blank(content) if isinstance(content, str) else content in ([], ()):
        raise EmptyMessageError(role)
    if role == 'user':
        check_prompt('prompt', content)
    else:
        check_text(role, content)


def merge_messages(before: ModelMessage, message: ModelMessage) -> ModelMessage | None:
    """Return two messages of builders as one, if both are of the same role: models take turns. Else `None`."""
    if isinstance(before, ModelRequest) and isinstance(message, ModelRequest):
        return replace(before, parts=[*before.parts, *message.parts])
    if isinstance(before, ModelResponse) and isinstance(message, ModelResponse) and before.model_name is None:
        return replace(before, parts=[*before.parts, *message.parts])
    return None


def split_prompt(messages: Sequence[ModelMessage]) -> tuple[list[ModelMessage], Prompt | None]:
    """Return the history and the user prompt at its end; `None` as the prompt if there is nothing to respond to."""
    end = len(messages)
    content: list[UserContent] = []
    while end and isinstance(last := messages[end - 1], ModelRequest):
        others, words = _split_request(last)
        if not words:
            break
        content[:0] = words
        end -= 1
        if others:  # tool results come first, and are history
            return [*messages[:end], replace(last, parts=others)], _prompt(content)
    return list(messages[:end]), _prompt(content) if content else None


def _split_request(request: ModelRequest) -> tuple[list[ModelRequestPart], list[UserContent]]:
    others: list[ModelRequestPart] = []
    words: list[UserContent] = []
    for part in request.parts:
        if not isinstance(part, UserPromptPart):
            others.append(part)
        elif isinstance(part.content, str):
            words.append(part.content)
        else:
            words += part.content
    return others, words


def _prompt(content: list[UserContent]) -> Prompt:
    return content[0] if len(content) == 1 and isinstance(content[0], str) else content
