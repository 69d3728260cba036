"""`@PATH` in a prompt: files of the directory whose contents are sent with it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
from pydantic_ai.messages import BinaryContent

from pydantic_deep._text.encodings import guess_media_type, parse_text
from pydantic_deep.errors import DeepAgentError
from pydantic_deep_backends import BackendProtocol

MAX_TEXT_BYTES = 200_000
"""Maximum size of an attached text in bytes, about 50,000 tokens. The agent reads longer files in pieces."""

MAX_IMAGE_BYTES = 5_000_000
"""Maximum size of an attached image in bytes: the limit of Anthropic's API, the lowest of the common providers."""

MAX_ATTACHMENTS = 20
"""Maximum number of files of a prompt."""

IMAGE_TYPES = ('image/png', 'image/jpeg', 'image/gif', 'image/webp')
"""The images that the common providers accept."""

MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')
"""A path after `@` at the beginning of a word, in double quotes if it contains spaces."""


PUNCTUATION = '.,;:!?)]}'
"""Characters at the end of a mention that may belong to the sentence instead."""


class RefusedAttachmentError(DeepAgentError, ValueError):
    """A file cannot be attached. The prompt is not sent."""


@dataclass(frozen=True, kw_only=True)
class AttachedPrompt:
    """A prompt with the contents of the files that it mentions."""

    text: str
    """The prompt, and after it each text file in a block."""
    images: Sequence[BinaryContent]
    """The images, in the order of their mentions."""
    notices: Sequence[str]
    """Sentences about mentions that name no file, and stay text."""


async def attach(prompt: str, backend: BackendProtocol, directory: str) -> AttachedPrompt:
    """Read the files that a prompt mentions.

    Args:
        prompt: The prompt as typed.
        backend: The files of the agent. Nothing else is read.
        directory: The directory on this computer, which paths are relative to.

    Raises:
        RefusedAttachmentError: A file is outside of the directory, too large, unreadable, or neither text nor an image.
    """
    texts: list[str] = []
    images: list[BinaryContent] = []
    found, unknown = await anyio.to_thread.run_sync(_find_mentioned, prompt, directory)
    for path, name in found.items():
        content = await _read(name, path, backend)
        if isinstance(content, BinaryContent):
            images.append(content)
        else:
            texts.append(f'<file path="{path}">\n{content}\n</file>')
    notices = [f'@{name} names no file of the directory, and is sent as text.' for name in unknown]
    return AttachedPrompt(text='\n\n'.join([prompt, *texts]), images=images, notices=notices)


def _find_mentioned(prompt: str, directory: str) -> tuple[dict[str, str], list[str]]:
    """Return the names of mentioned files by their paths, and the names of which there is no file.

    Raises:
        RefusedAttachmentError: There are too many, or one is outside of the directory.
    """
    root = Path(directory).resolve()
    found: dict[str, str] = {}
    unknown: list[str] = []
    for quoted, plain in MENTION.findall(prompt):
        name = quoted or plain
        path = _find(name, root) or _find(name.rstrip(PUNCTUATION) or name, root)
        if path is None:
            unknown.append(name.rstrip(PUNCTUATION) or name)
        else:
            found[path] = name
    if len(found) > MAX_ATTACHMENTS:
        raise RefusedAttachmentError(f'The prompt mentions {len(found)} files. Attach at most {MAX_ATTACHMENTS}.')
    return found, unknown


def _find(name: str, directory: Path) -> str | None:
    """Return the path of a file relative to the directory; `None` if nothing has this name.

    Raises:
        RefusedAttachmentError: It is outside of the directory.
    """
    # The agent's own paths begin with a slash. Absolute paths of the computer are for the files beside its own.
    candidates = [str(directory / name.lstrip('/')), *([name] if name.startswith(('/', '~')) else ())]
    for candidate in candidates:
        try:
            resolved = Path(candidate).expanduser().resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # missing, a loop of links, or no valid name
            continue
        if not resolved.is_relative_to(directory):
            raise RefusedAttachmentError(
                f'@{name} is outside of {directory}. Only files of the working directory can be attached.'
            )
        return resolved.relative_to(directory).as_posix()
    return None


async def _read(name: str, path: str, backend: BackendProtocol) -> str | BinaryContent:
    """Return the contents of a file.

    Raises:
        RefusedAttachmentError: It cannot be read, is too large, or neither text nor an image.
    """
    virtual = f'{(await backend.working_dir()).rstrip("/")}/{path}'
    try:
        size_bytes = (await backend.stat(virtual)).size or 0
        limit = MAX_IMAGE_BYTES if guess_media_type(path, b'', None) in IMAGE_TYPES else MAX_TEXT_BYTES
        if size_bytes > limit:
            raise RefusedAttachmentError(
                f'@{name} has {size_bytes:,} bytes; at most {limit:,} can be attached. Ask the agent to read the file.'
            )
        data = await backend.read_bytes(virtual)
    except IsADirectoryError:
        raise RefusedAttachmentError(f'@{name} is a directory. Attach its files.') from None
    except OSError as error:
        raise RefusedAttachmentError(f'@{name} cannot be read: {error.strerror or error}.') from None
    text = parse_text(data)
    media_type = guess_media_type(path, data, None if text is None else text.encoding)
    if media_type in IMAGE_TYPES:
        return BinaryContent(data, media_type=media_type)
    if text is None:
        raise RefusedAttachmentError(f'@{name} is neither text nor a PNG, JPEG, GIF or WebP image.')
    return text.shown
