"""`MessageList`: the messages of a conversation, and the only thing of it that is serialized.

Not here: the format (`_format`), and media in it (`_media`).
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Self, SupportsIndex, cast, overload

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
    """The messages of a conversation, in their order; those of pydantic-ai.

    It is a list that can be written to a file and read again, at any moment, also while a turn runs. A transcript holds
    what was said and done. Nothing that an agent or a builder was configured with is in it, neither instructions, system
    prompts, tools and settings nor names and ids of models, runs and conversations: load it under any configuration.

    ```python
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart

    from pydantic_deep.fluent import MessageList

    messages = MessageList([ModelRequest.user_text_prompt('Hello'), ModelResponse([TextPart('Hi.')])])
    print(MessageList.from_dict(messages.to_dict()) == messages)
    #> True
    ```
    """

    def __init__(self, messages: Iterable[ModelMessage] = ()) -> None:
        self._messages = [_checked(message) for message in messages]

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
        """Put a message before that of an index."""
        self._messages.insert(index, _checked(value))

    def __eq__(self, other: object) -> bool:
        return self._messages == other._messages if isinstance(other, MessageList) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # it is mutable, as a list is

    def __repr__(self) -> str:
        return f'<MessageList of {len(self)} messages>'

    def exchanges(self) -> list[ToolExchange]:
        """Return the calls of tools with their results, in the order of the calls."""
        return pair_exchanges(self._messages)

    def to_dict(self, *, inline_media: bool = True) -> Document:
        """Return the transcript: `format_version` and `messages`, all of it JSON.

        Args:
            inline_media: Whether images and other media are in it as base64. Without, it has their digests, and
                `media()` has their bytes.

        Raises:
            TranscriptError: JSON cannot hold a message, such as one with `NaN` in it. It says which.
        """
        dumped = dump_messages(self._messages)
        messages = [escape_media(message) if inline_media else externalize_media(message)[0] for message in dumped]
        return {'format_version': FORMAT_VERSION, 'messages': messages}

    @classmethod
    def from_dict(cls, document: Mapping[str, object], *, media: Mapping[str, bytes] | None = None) -> Self:
        """Return the messages of a transcript; those of older formats too.

        Nothing in it is run, fetched or trusted. A transcript of somebody else may name URLs that a provider or
        pydantic-ai would fetch: pass its messages through `pydantic_ai.messages.sanitize_messages` first.

        Args:
            document: What `to_dict` returned.
            media: Bytes by digest, where it was written without media.

        Raises:
            TranscriptError: It is no transcript, or of a newer format. It says which message is wrong, and where.
        """
        loaded = cls()
        loaded._messages = parse_document(document, media or {})
        return loaded

    def media(self) -> dict[str, bytes]:
        """Return the bytes of all media by their digests (SHA-256)."""
        dumped = dump_messages(self._messages)
        return {media.digest: media.data for message in dumped for media in externalize_media(message)[1]}

    def save(self, target: str | Path | IO[str] | IO[bytes]) -> None:
        """Write the transcript as JSON.

        Args:
            target: A path, or an open stream, which stays open. Missing directories are created. A file is replaced as a
                whole or not at all; of a link, that to which it leads; a device or a pipe is written to.

        Raises:
            TranscriptError: It could not be loaded again. It says which message is wrong. Nothing was written.
            ValueError: A path that is a `str` begins with `{`, as JSON does: `load` could not tell. Pass a `Path`.
        """
        data = render_document(self.to_dict())
        if isinstance(target, str):
            if _is_json(target):
                raise ValueError(f'{short_repr(target)} looks like JSON and not like a path. Pass a `Path`.')
            target = Path(target)
        if isinstance(target, Path):
            _replace_file(target, data)
        else:
            _write(target, data)

    @classmethod
    def load(
        cls,
        source: str | Path | IO[str] | IO[bytes] | Mapping[str, object],
        *,
        media: Mapping[str, bytes] | None = None,
    ) -> Self:
        """Return the messages of a transcript, wherever it is.

        Args:
            source: A `Path` of a file; an open stream; what `to_dict` returned; or a `str`, which is JSON if it begins
                with `{` (spaces and a byte order mark aside), and else a path.
            media: Bytes by digest, where it was written without media.

        Raises:
            TranscriptError: It is no transcript, or of a newer format. It says which message is wrong, and where.
            OSError: The file cannot be read, or is none, such as a device, which may have no end. Open it, and pass the
                stream.
        """
        if isinstance(source, Mapping):
            return cls.from_dict(source, media=media)
        if isinstance(source, str):
            text: str | bytes = source if _is_json(source) else _read_file(Path(source))
        elif isinstance(source, Path):
            text = _read_file(source)
        else:
            text = source.read()
        return cls.from_dict(cast('Mapping[str, object]', parse_text(text)), media=media)


def _checked(message: object) -> ModelMessage:
    if isinstance(message, (ModelRequest, ModelResponse)):
        return message
    raise TypeError(
        f'{short_repr(message)} is no message. Messages are `ModelRequest`s and `ModelResponse`s; read a transcript with '
        '`MessageList.load`.'
    )


def _is_json(text: str) -> bool:
    return text.removeprefix(BYTE_ORDER_MARK).lstrip().startswith('{')


def _read_file(path: Path) -> bytes:
    """Return what is in a file; what is no file is not opened, since a pipe may never have anything in it."""
    if stat.S_ISREG(path.stat().st_mode):
        return path.read_bytes()
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, 'It is no file. Open it, and pass the stream', str(path))


def _write(stream: IO[str] | IO[bytes], data: bytes) -> None:
    """Write to a stream of text or of bytes: which one it is, only writing tells for every kind of stream."""
    try:
        cast('IO[bytes]', stream).write(data)
    except TypeError:
        cast('IO[str]', stream).write(data.decode())


def _replace_file(path: Path, data: bytes) -> None:
    """Replace a file: whoever reads it, also after a crash, finds all of the old contents or all of the new."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():  # a device would be gone
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f'.{path.name}.{secrets.token_hex(8)}')
    try:
        with beside.open('xb') as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise
