"""Parse and render server-sent events as defined in WHATWG HTML, section 9.2: bytes to frames, and frames to text.

The contents of frames are not interpreted here; decoders and encoders do that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pydantic_deep.errors import DeepAgentError

from ._protocol import Frame

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
"""Default size limit of a frame. A base64 image of a few megabytes fits; only a malicious or broken peer exceeds it."""

_BYTE_ORDER_MARK: Final = b'\xef\xbb\xbf'

_LINE_ENDS: Final = frozenset('\r\n')
_NO_ID: Final = _LINE_ENDS | {'\0'}

_MAX_RETRY_DIGITS: Final = 15
"""A longer `retry` would exceed 30,000 years, and converting it to an integer takes quadratic time."""


class FrameTooLargeError(DeepAgentError, ValueError):
    """A frame or a line exceeds the reader's limit. The stream cannot be read any further.

    Attributes:
        frames: The frames of the same chunk that were complete before it.
        max_frame_bytes: The limit in bytes.
    """

    def __init__(self, frames: list[Frame], max_frame_bytes: int) -> None:
        self.frames = frames
        self.max_frame_bytes = max_frame_bytes
        super().__init__(
            f'A frame has more than {max_frame_bytes} bytes. Close the stream, or read it with more `max_frame_bytes`.'
        )


class FrameReader:
    """Parses the bytes of one stream into frames, across arbitrary chunk boundaries and in linear time.

    Lines end with CR, LF or CRLF. Comments, unknown fields, and blocks without `data` produce no frame; `id` and
    `retry` of such a block still update `last_event_id` and `retry_milliseconds`. Invalid UTF-8 is replaced by U+FFFD.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Create a reader for one stream.

        Args:
            max_frame_bytes: Maximum size of a frame together with the line that is being read.
        """
        self._max_frame_bytes = max_frame_bytes
        self._is_at_start = True
        self._is_after_return = False
        self._line = bytearray()
        self._clear()
        self.last_event_id: str = ''
        """The most recent `id`, with or without a frame. Clients send it as `Last-Event-ID`."""
        self.retry_milliseconds: int | None = None
        """The most recent `retry`: how long a client waits before it reconnects."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that `chunk` completes.

        Raises:
            FrameTooLargeError: A frame exceeds the limit. The error's `frames` are those completed before it.
        """
        frames: list[Frame] = []
        for piece in chunk.splitlines(keepends=True):
            if self._is_after_return and piece == b'\n':
                self._is_after_return = False
                continue
            text = piece.rstrip(b'\r\n')
            if len(self._line) + len(text) + self._frame_bytes > self._max_frame_bytes:
                raise FrameTooLargeError(frames, self._max_frame_bytes)
            self._line += text
            self._is_after_return = piece.endswith(b'\r')
            if len(text) < len(piece) and (frame := self._end_line()):
                frames.append(frame)
        return frames

    def finish(self) -> Frame | None:
        """Return the unfinished frame at the end of the stream, or `None` if the stream ended between frames.

        The standard discards it silently. Applications that relay the stream should report that it was cut.
        """
        if self._line:
            self._end_line()
        unfinished = self._frame() if self._has_field else None
        self._clear()
        return unfinished

    def _end_line(self) -> Frame | None:
        raw = bytes(self._line)
        self._line.clear()
        if self._is_at_start:
            self._is_at_start = False
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if raw:
            self._parse_field(raw)
            return None
        frame = self._frame() if self._lines else None
        self._clear()
        return frame

    def _parse_field(self, raw: bytes) -> None:
        name, _, value = raw.decode(errors='replace').partition(':')
        value = value.removeprefix(' ')
        self._has_field = self._has_field or bool(name)
        if name == 'data':
            self._lines.append(value)
            self._frame_bytes += len(raw)
        elif name == 'event':
            self._event = value or None
        elif name == 'id' and '\0' not in value:
            self._id = self.last_event_id = value
        elif name == 'retry' and value.isascii() and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self._retry = self.retry_milliseconds = int(value)

    def _frame(self) -> Frame:
        return Frame(data='\n'.join(self._lines), event=self._event, id=self._id, retry_milliseconds=self._retry)

    def _clear(self) -> None:
        self._lines: list[str] = []
        self._frame_bytes = 0
        self._has_field = False
        self._event: str | None = None
        self._id: str | None = None
        self._retry: int | None = None


def render_frame(frame: Frame) -> str:
    """Return the text of a frame, including the blank line that ends it. Parsing it yields the same frame.

    Line ends within `data` become LF. An empty `event` stands for the default event type.

    Raises:
        ValueError: `event` or `id` contains a line end, which would start another field, or `id` contains a NUL, which
            readers discard.
    """
    fields: list[str] = []
    if frame.event:
        fields.append(f'event: {_checked("event", frame.event, _LINE_ENDS)}')
    if frame.id is not None:
        fields.append(f'id: {_checked("id", frame.id, _NO_ID)}')
    if frame.retry_milliseconds is not None:
        fields.append(f'retry: {frame.retry_milliseconds}')
    lines = frame.data.replace('\r\n', '\n').replace('\r', '\n').split('\n')
    return '\n'.join([*fields, *(f'data: {line}' for line in lines), '', ''])


def render_frames(frames: Iterable[Frame]) -> bytes:
    """Return frames as bytes of a stream. See `render_frame`."""
    return ''.join(map(render_frame, frames)).encode()


def _checked(field: str, value: str, refused: frozenset[str]) -> str:
    if not refused.isdisjoint(value):
        raise ValueError(f'The {field} of a frame cannot be {value[:200]!r}. Remove line ends and NUL from it.')
    return value
