"""Count the tokens of messages, approximately for any model, or exactly with a tokenizer.

A counter takes a text and returns the number of its tokens. Images, documents and other media are estimated by their
type. `MessageTokens` counts a growing history incrementally.
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
"""Returns the number of tokens of a text. It is called once for each new text of a conversation."""

CHARS_PER_TOKEN: Final = 4
"""Average characters per token of English text, for the tokenizers of OpenAI and Anthropic:
https://platform.openai.com/tokenizer
"""

PART_TOKENS: Final = 4
"""Tokens of a message part in addition to its text, for its role and delimiters: between 3 and 7 for known providers.
"""

IMAGE_TOKENS: Final = 1_600
"""Maximum tokens of an image with Anthropic, at 1568 pixels per side. Google counts 258 per tile, OpenAI 85 to 1,445.
"""

DOCUMENT_TOKENS: Final = 10_000
"""Estimate for a document with an unknown number of pages: four pages at 1,500 to 3,000 tokens each with Anthropic."""

MEDIA_TOKENS: Final = 5_000
"""Estimate for audio or video: 2.5 minutes of audio, or 20 seconds of video, with Google (32 and 258 tokens per
second).
"""


def count_tokens_approximately(text: str) -> int:
    """Return the approximate number of tokens of a text: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


def count_message(message: ModelMessage, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return the number of tokens of a message, including calls, results, thinking, images and documents."""
    return sum(count_part(part, counter) for part in message.parts)


def count_part(part: ModelRequestPart | ModelResponsePart, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return the number of tokens of a message part."""
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
            return 0  # for the application only, not sent to models as a message
        case ToolAvailabilityDeltaPart():
            tokens = counter(' '.join(part.tools_added))
        case _:  # parts with text: system prompts, responses, thinking, speech, summaries, changed instructions
            text = part.content or ''  # an encrypted summary of a provider has none
            tokens = counter(text if isinstance(text, str) else to_json(text, fallback=str).decode())
    return tokens + PART_TOKENS


def count_head(parameters: ModelRequestParameters, counter: TokenCounter = count_tokens_approximately) -> int:
    """Return the number of tokens of a request without its messages: instructions, and schemas of tools and output."""
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
    """Counts a growing history, each message once. Messages are compared by identity."""

    counter: TokenCounter = count_tokens_approximately
    """Counts the tokens of a text."""
    _messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False, repr=False)
    _sums: list[int] = field(default_factory=lambda: [0], init=False, repr=False)
    """The token counts of all prefixes of the messages, starting with the empty one."""

    def sums(self, messages: Sequence[ModelMessage]) -> Sequence[int]:
        """Return the token counts of all prefixes of a history, starting with the empty one.

        Messages that were counted in the previous call are not counted again. The result is valid until the next call.
        """
        common = sum(1 for _ in takewhile(bool, map(is_, self._messages, messages)))
        del self._messages[common:], self._sums[common + 1 :]
        for message in messages[common:]:
            self._messages.append(message)
            self._sums.append(self._sums[-1] + count_message(message, self.counter))
        return self._sums

    def context(self, messages: Sequence[ModelMessage], parameters: ModelRequestParameters | None = None) -> int:
        """Return the context size of a history: the usage of its last response, plus the messages after it.

        If the last response has no usage, or the history was shortened since, all messages are counted. The cost
        depends only on new messages.

        Args:
            messages: The history.
            parameters: The other parts of a request. The usage of a response includes them; otherwise they are counted.
        """
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            if isinstance(message, ModelResponse):
                usage = message.usage
                if usage.input_tokens:
                    after = sum(count_message(later, self.counter) for later in messages[index + 1 :])
                    return usage.input_tokens + usage.output_tokens + after
                break
            if any(isinstance(part, CompactionPart) for part in message.parts):
                break  # the usage of earlier responses refers to a longer history
        return self.sums(messages)[-1] + (0 if parameters is None else count_head(parameters, self.counter))


def _count_content(item: UserContent, counter: TokenCounter) -> int:
    match item:
        case str():
            return counter(item)
        case TextContent():  # including structured content
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
    """Return the estimate for a media file, by its media type."""
    kind = media_type.partition('/')[0]
    return {'image': IMAGE_TOKENS, 'audio': MEDIA_TOKENS, 'video': MEDIA_TOKENS}.get(kind, DOCUMENT_TOKENS)


def _is_text(media_type: str) -> bool:
    """Return whether models receive the complete text of such a file."""
    return media_type.startswith('text/') or media_type in ('application/json', 'application/xml', 'application/yaml')
