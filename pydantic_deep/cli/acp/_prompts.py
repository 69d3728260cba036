"""Blocks of a prompt as a text and images. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from pydantic_ai.messages import BinaryContent

from pydantic_deep.cli.chat._attachments import IMAGE_TYPES, MAX_IMAGE_BYTES
from pydantic_deep.errors import DeepAgentError

Block: TypeAlias = (
    TextContentBlock | ImageContentBlock | AudioContentBlock | ResourceContentBlock | EmbeddedResourceContentBlock
)
"""A part of a prompt."""


class InvalidPromptError(DeepAgentError, ValueError):
    """A prompt is empty, or has a part that the agent cannot receive."""


@dataclass(frozen=True, kw_only=True)
class EditorPrompt:
    """The content of a prompt."""

    text: str
    """The texts and links as they are, and each embedded text in a block with its address. Empty beside images alone."""
    images: Sequence[BinaryContent]
    """The images, in their order."""


def parse_prompt(blocks: Sequence[Block]) -> EditorPrompt:
    """Return the content of a prompt.

    Raises:
        InvalidPromptError: It is empty, or has a sound or an image that providers do not accept.
    """
    texts: list[str] = []
    images: list[BinaryContent] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                texts.append(block.text)
            case ResourceContentBlock():
                texts.append(f'[@{block.name}]({block.uri})')
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                texts.append(f'\n<file path="{resource.uri}">\n{resource.text}\n</file>\n')
            case EmbeddedResourceContentBlock(resource=BlobResourceContents() as resource):
                images.append(_image(resource.blob, resource.mime_type or 'of an unknown type', resource.uri))
            case ImageContentBlock():
                images.append(_image(block.data, block.mime_type, 'the image'))
            case _:
                raise InvalidPromptError('Audio cannot be sent to the agent. Send a text.')
    text = ''.join(texts).strip()
    if not text and not images:
        raise InvalidPromptError('The prompt is empty. Write what the agent shall do.')
    return EditorPrompt(text=text, images=images)


def _image(data: str, media_type: str, name: str) -> BinaryContent:
    """Return an image.

    Raises:
        InvalidPromptError: It is no image, invalid or too large.
    """
    if media_type not in IMAGE_TYPES:
        raise InvalidPromptError(f'{name} is {media_type}, and no image. Send one of: {", ".join(IMAGE_TYPES)}.')
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise InvalidPromptError(f'{name} is not valid base64. Encode its bytes.') from None
    if len(content) > MAX_IMAGE_BYTES:
        raise InvalidPromptError(
            f'{name} has {len(content):,} bytes; at most {MAX_IMAGE_BYTES:,} can be sent. Send a smaller image.'
        )
    return BinaryContent(content, media_type=media_type)
