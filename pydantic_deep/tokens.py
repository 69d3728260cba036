"""How many tokens messages take: approximately with any model, exactly with a tokenizer of yours.

A counter takes a text and returns a number. What is no text (images, documents) is counted by its kind, since no
tokenizer of text knows it. Not here: what was counted when, so that nothing is counted twice (`MessageTokens`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import is_
from typing import Final, TypeAlias

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    CachePoint,
    CompactionPart,
    DocumentUrl,
    FilePart,
    ImageUrl,
    InstructionBaselinePart,
    InstructionPart,
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelSettingsDeltaPart,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    TextContent,
    ToolAvailabilityDeltaPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_json

TokenCounter: TypeAlias = Callable[[str], int]
"""Returns how many tokens a text takes. It is called once for each new text of a conversation."""

CHARS_PER_TOKEN: Final = 4
"""Characters of English in a token, for the tokenizers of OpenAI and Anthropic alike: https://platform.openai.com/tokenizer"""

PART_TOKENS: Final = 4
"""What a part costs besides its text, for its role and its marks: between 3 and 7 with the providers known."""

IMAGE_TOKENS: Final = 1_600
"""What an image costs at most with Anthropic, 1568 pixels by side; Google takes 258 for each tile, OpenAI 85 to 1,445."""

DOCUMENT_TOKENS: Final = 10_000
"""What a document is taken for whose pages cannot be counted: four pages at 1,500 to 3,000 each with Anthropic."""

MEDIA_TOKENS: Final = 5_000
"""What audio or video is taken for: 2.5 minutes of audio, or 20 seconds of video, with Google (32 and 258 a second)."""


def count_tokens_approximately(text: str) -> int:
    """Return about how many tokens a text takes: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def count_message(message: ModelMessage, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return how many tokens a message takes, all its parts counted: calls, results, thinking, images and documents."""
    return sum(count_part(part, counter) for part in message.parts)


def count_part(part: ModelRequestPart | ModelResponsePart, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return how many tokens a part of a message takes."""
    match part:
        case UserPromptPart():
            content = [part.content] if isinstance(part.content, str) else part.content
            tokens = sum(_count_content(item, counter) for item in content)
        case ToolReturnPart() | NativeToolReturnPart():
            tokens = counter(part.model_response_str()) + sum(_count_content(item, counter) for item in part.files)
        case RetryFeedbackPart():
            tokens = counter(part.model_response())
        case FilePart():
            tokens = _count_content(part.content, counter)
        case ToolCallPart() | NativeToolCallPart():
            tokens = counter(part.tool_name) + counter(part.args_as_json_str())
        case InstructionBaselinePart() | ModelSettingsDeltaPart():
            return 0  # kept for the application, and sent to no model as a message
        case ToolAvailabilityDeltaPart():
            tokens = counter(' '.join(part.tools_added))
        case _:  # what has a text: prompts of the system, answers, thinking, speech, summaries, changed instructions
            text = part.content or ''  # a summary that only its provider can read has none
            tokens = counter(text if isinstance(text, str) else to_json(text, fallback=str).decode())
    return tokens + PART_TOKENS


def count_head(parameters: ModelRequestParameters, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return how many tokens a request takes besides its messages: instructions, and schemas of tools and of output."""
    instructions = InstructionPart.join(parameters.instruction_parts or []) or ''
    tools = [
        {'name': tool.name, 'description': tool.description, 'parameters': tool.parameters_json_schema}
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
    output = parameters.output_object
    schemas = to_json([*tools, *([output.json_schema] if output else [])]).decode() if tools or output else ''
    return counter(instructions) + counter(schemas)


@dataclass(kw_only=True)
class MessageTokens:
    """Counts a history that grows, each message once: a message is known by its identity."""

    counter: TokenCounter = count_tokens_approximately
    """What counts a text."""
    _messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False, repr=False)
    _sums: list[int] = field(default_factory=lambda: [0], init=False, repr=False)
    """What each beginning of the messages takes, the empty one first."""

    def sums(self, messages: Sequence[ModelMessage]) -> Sequence[int]:
        """Return what each beginning of a history takes, the empty one first: one number more than there are messages.

        What was counted last time is not counted again. The result holds until the next call.
        """
        same = sum(1 for _ in takewhile(bool, map(is_, self._messages, messages)))
        del self._messages[same:], self._sums[same + 1 :]
        for message in messages[same:]:
            self._messages.append(message)
            self._sums.append(self._sums[-1] + count_message(message, self.counter))
        return self._sums

    def context(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters | None = None) -> int:
        """Return what a history takes as context: by the usage of its last response, and what came after it counted.

        Where the last response has told none, or the history was cut since, all of it is counted. Costs what is new.

        Args:
            messages: The history.
            parameters: What a request says besides messages. It is part of what a response tells, and counted else.
        """
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, ModelResponse):
                told = message.usage
                if told.input_tokens:
                    after = sum(count_message(each, self.counter) for each in messages[index + 1 :])
                    return told.input_tokens + told.output_tokens + after
                break
            if any(isinstance(part, CompactionPart) for part in message.parts):
                break  # what a response before it has told was true of a longer history
        return self.sums(messages)[-1] + (0 if parameters is None else count_head(parameters, self.counter))


def _count_content(item: UserContent, counter: TokenCounter) -> int:
    match item:
        case str():
            return counter(item)
        case TextContent():  # structured content is one
            return counter(item.content)
        case CachePoint():
            return 0
        case ImageUrl():
            return IMAGE_TOKENS
        case DocumentUrl():
            return DOCUMENT_TOKENS
        case AudioUrl() | VideoUrl():
            return MEDIA_TOKENS
        case BinaryContent() if _is_text(item.media_type):
            return counter(item.data.decode(errors='replace'))
        case _:
            return _count_media(item.media_type)


def _count_media(media_type: str) -> int:
    """Return what a file takes that is no text, by its media type."""
    kind = media_type.partition('/')[0]
    return {'image': IMAGE_TOKENS, 'audio': MEDIA_TOKENS, 'video': MEDIA_TOKENS}.get(kind, DOCUMENT_TOKENS)


def _is_text(media_type: str) -> bool:
    """Return whether models are sent the text of such a file, however long it is."""
    return media_type.startswith('text/') or media_type in ('application/json', 'application/xml', 'application/yaml')
