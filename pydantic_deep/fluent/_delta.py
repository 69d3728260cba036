"""What builders add to a conversation: messages and configuration. Values only; nothing here runs. Pure."""

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
"""What a user says: text, or text with media."""


@dataclass(frozen=True, kw_only=True)
class Config(Generic[DepsT]):
    """How a conversation asks its agent, beside what the agent brings. It is never serialized."""

    instructions: tuple[str, ...] = ()
    """What the agent is told besides, in this order."""
    toolsets: tuple[AbstractToolset[DepsT], ...] = ()
    """What the model may call besides."""
    model: Model | str | None = None
    """The model, instead of the agent's."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    """Settings of the model, over those of the agent."""

    def plus(self, delta: Config[DepsT]) -> Config[DepsT]:
        """Return this with a delta on it: instructions and tools are added, models and settings replaced.

        Settings are copied: a dictionary among them is of one builder or one conversation only.
        """
        return Config(
            instructions=self.instructions + delta.instructions,
            toolsets=self.toolsets + delta.toolsets,
            model=self.model if delta.model is None else delta.model,
            settings=merge_model_settings(self.settings, deepcopy(delta.settings)) or ModelSettings(),
        )


@dataclass(frozen=True, kw_only=True)
class Delta(Generic[DepsT]):
    """What a builder has gathered."""

    messages: tuple[ModelMessage, ...] = ()
    """What is said, in this order."""
    config: Config[DepsT] = field(default_factory=Config[DepsT])
    """How it is asked."""

    def with_message(self, message: ModelMessage) -> Delta[DepsT]:
        """Return this with one more message."""
        return replace(self, messages=(*self.messages, message))

    def with_config(self, config: Config[DepsT]) -> Delta[DepsT]:
        """Return this with more configuration."""
        return replace(self, config=self.config.plus(config))


def user_message(content: Prompt) -> ModelRequest:
    """Return what a user says as a message.

    Raises:
        EmptyMessageError: It says nothing.
    """
    _check('user', content)
    return ModelRequest([UserPromptPart(content if isinstance(content, str) else deepcopy(list(content)))])


def assistant_message(text: str) -> ModelResponse:
    """Return what an assistant is to have said, without the spaces around it.

    Raises:
        EmptyMessageError: It says nothing.
    """
    _check('assistant', text)
    return ModelResponse([TextPart(text.strip())])


def check_instructions(text: str) -> None:
    """Refuse instructions that say nothing.

    Raises:
        EmptyMessageError: They are blank.
        ValidationError: They are no text or no Unicode.
    """
    _check('instructions', text)


def _check(role: str, content: Prompt) -> None:
    if is_blank(content) if isinstance(content, str) else content in ([], ()):
        raise EmptyMessageError(role)
    if role == 'user':
        check_prompt('prompt', content)
    else:
        check_text(role, content)


def joined(before: ModelMessage, message: ModelMessage) -> ModelMessage | None:
    """Return two messages of builders as one, if both are of the same role: models take turns. Else `None`."""
    if isinstance(before, ModelRequest) and isinstance(message, ModelRequest):
        return replace(before, parts=[*before.parts, *message.parts])
    if isinstance(before, ModelResponse) and isinstance(message, ModelResponse) and before.model_name is None:
        return replace(before, parts=[*before.parts, *message.parts])
    return None


def split_prompt(messages: Sequence[ModelMessage]) -> tuple[list[ModelMessage], Prompt | None]:
    """Return the history, and what a user says at its end; `None` if its end is to be answered by nobody."""
    end = len(messages)
    said: list[UserContent] = []
    while end and isinstance(last := messages[end - 1], ModelRequest):
        others, words = _split_request(last)
        if not words:
            break
        said[:0] = words
        end -= 1
        if others:  # the results of tools, which come first, are history
            return [*messages[:end], replace(last, parts=others)], _prompt(said)
    return list(messages[:end]), _prompt(said) if said else None


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


def _prompt(said: list[UserContent]) -> Prompt:
    return said[0] if len(said) == 1 and isinstance(said[0], str) else said
