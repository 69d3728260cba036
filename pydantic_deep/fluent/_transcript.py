"""`MessageList`: the messages of a conversation, and its only serialized part.

`_format` defines the format.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, Self, SupportsIndex, cast, overload

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse

from pydantic_deep._messages.media import escape_media, externalize_media

from ._exchanges import ToolExchange, pair_exchanges
from ._format import (
    BYTE_ORDER_MARK,
    FORMAT_VERSION,
    Document,
    dump_messages,
    parse_document,
    parse_text,
    render_document,
)
from ._short_repr import short_repr


class MessageList(MutableSequence[ModelMessage]):
    """The messages of a conversation in order, as pydantic-ai messages.

    This is a list that can be saved and loaded at any time, even during a turn. A transcript contains the content of
    the conversation and no configuration: no instructions, system prompts, tools or settings, and no names or ids of
    models, runs and conversations. It can be loaded with any configuration.

    ```python
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart

    from pydantic_deep.fluent import MessageList

    messages = MessageList([ModelRequest.user_text_prompt('Hello'), ModelResponse([TextPart('Hi.')])])
    print(MessageList.from_dict(messages.to_dict()) == messages)
    #> True
    ```
    """

    def __init__(self, messages: Iterable[ModelMessage] = ()) -> None:
        given = messages if isinstance(cast('object', messages), Iterable) else [messages]
        self._messages = [_checked(message) for message in given]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[ModelMessage]:
        return iter(self._messages)

    @overload
    def __getitem__(self, index: SupportsIndex) -> ModelMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[ModelMessage]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> ModelMessage | list[ModelMessage]:
        return self._messages[index]

    @overload
    def __setitem__(self, index: SupportsIndex, value: ModelMessage) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[ModelMessage]) -> None: ...
    def __setitem__(self, index: SupportsIndex | slice, value: ModelMessage | Iterable[ModelMessage]) -> None:
        if isinstance(index, slice):
            self._messages[index] = [_checked(each) for each in cast('Iterable[ModelMessage]', value)]
        else:
            self._messages[index] = _checked(value)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        del self._messages[index]

    def insert(self, index: int, value: ModelMessage) -> None:
        """Insert a message before an index."""
        self._messages.insert(index, _checked(value))

    def __eq__(self, other: object) -> bool:
        return self._messages == other._messages if isinstance(other, MessageList) else NotImplemented

    # It is mutable, as a list is.
    __hash__: ClassVar[None] = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __repr__(self) -> str:
        return f'<MessageList of {len(self)} messages>'

    def exchanges(self) -> list[ToolExchange]:
        """Return tool calls with their results, in the order of the calls."""
        return pair_exchanges(self._messages)

    def to_dict(self, *, inline_media: bool = True) -> Document:
        """Return the transcript as JSON: `format_version` and `messages`.

        Args:
            inline_media: Whether to include images and other media as base64. Otherwise the transcript contains their
                digests, and `media()` returns their bytes.

        Raises:
            TranscriptError: JSON cannot represent a message, such as one with `NaN`. The error names it.
        """
        dumped = dump_messages(self._messages)
        messages = [escape_media(message) if inline_media else externalize_media(message)[0] for message in dumped]
        return {'format_version': FORMAT_VERSION, 'messages': messages}

    @classmethod
    def from_dict(cls, document: Mapping[str, object], *, media: Mapping[str, bytes] | None = None) -> Self:
        """Return the messages of a transcript, including older formats.

        Nothing in it is executed, fetched or trusted. A transcript from another source may contain URLs that a provider
        or pydantic-ai would fetch: pass its messages through `pydantic_ai.messages.sanitize_messages` first.

        Args:
            document: The result of `to_dict`.
            media: Bytes keyed by digest, if the transcript was written without media.

        Raises:
            TranscriptError: The document is not a transcript, or has a newer format. The error names the invalid
                message and field.
        """
        loaded = cls()
        loaded._messages = parse_document(document, media or {})
        return loaded

    def media(self) -> dict[str, bytes]:
        """Return the bytes of all media, keyed by their digest (SHA-256)."""
        dumped = dump_messages(self._messages)
        return {media.digest: media.data for message in dumped for media in externalize_media(message)[1]}

    def save(self, target: str | Path | IO[str] | IO[bytes]) -> None:
        """Write the transcript as JSON.

        Args:
            target: A path, or an open stream, which stays open. Missing directories are created. A file is replaced
                atomically, following links; a device or a pipe is written to.

        Raises:
            TranscriptError: The transcript could not be loaded again. The error names the invalid message. Nothing was
                written.
            ValueError: A `str` path starts with `{` like JSON, so `load` could not distinguish it. Pass a `Path`.
        """
        data = render_document(self.to_dict())
        if isinstance(target, str):
            if _is_json(target):
                raise ValueError(f'{short_repr(target)} looks like JSON instead of a path. Pass a `Path`.')
            target = Path(target)
        if isinstance(target, Path):
            _replace_file(target, data)
        else:
            _write(target, data)

    @classmethod
    def load(
        cls,
        source: str | bytes | Path | IO[str] | IO[bytes] | Mapping[str, object],
        *,
        media: Mapping[str, bytes] | None = None,
    ) -> Self:
        """Return the messages of a transcript from a file, stream or value.

        Args:
            source: A `Path`; an open stream; the result of `to_dict`; `bytes` of JSON; or a `str`, which is JSON if it
                starts with `{` or `[{` (after whitespace or a byte order mark), otherwise a path.
            media: Bytes keyed by digest, if the transcript was written without media.

        Raises:
            TranscriptError: The source is not a transcript, or has a newer format. The error names the invalid message
                and field.
            OSError: The file cannot be read, or is not a regular file, such as a device, which may be endless. Open it,
                and pass the stream.
        """
        if isinstance(source, str) and not _is_json(source):
            source = Path(source)
        if isinstance(source, Path):
            text: str | bytes = _read_file(source)
        elif isinstance(source, str | bytes):
            text = source
        elif isinstance(source, Mapping) or not hasattr(cast('object', source), 'read'):
            return cls.from_dict(cast('Mapping[str, object]', source), media=media)  # which refuses other types
        else:
            text = source.read()
        return cls.from_dict(cast('Mapping[str, object]', parse_text(text)), media=media)


def _checked(message: object) -> ModelMessage:
    if isinstance(message, (ModelRequest, ModelResponse)):
        return message
    raise TypeError(
        f'{short_repr(message)} is not a message. Messages are `ModelRequest`s and `ModelResponse`s; read a transcript with '
        '`MessageList.load`.'
    )


def _is_json(text: str) -> bool:
    return text.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(('{', '[{'))


def _read_file(path: Path) -> bytes:
    """Return the contents of a regular file. Other files are not opened, as reading a pipe may block forever."""
    if stat.S_ISREG(path.stat().st_mode):
        return path.read_bytes()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, 'It is not a regular file. Open it, and pass the stream', str(path))


def _write(stream: IO[str] | IO[bytes], data: bytes) -> None:
    """Write to a text or binary stream. For some kinds of stream, only writing reveals which one it is."""
    try:
        cast('IO[bytes]', stream).write(data)
    except TypeError:
        cast('IO[str]', stream).write(data.decode())


def _replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: readers see either the old or the new contents, even after a crash."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():  # replacing would remove a device
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f'.{path.name}.{secrets.token_hex(8)}')
    try:
        with temporary.open('xb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
