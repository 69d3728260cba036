"""Server-sent events, read and written as WHATWG HTML section 9.2 says: bytes to frames, frames to text.

Nothing here knows what frames say: decoders and encoders do.
"""

from __future__ import annotations

from typing import Final

from pydantic_deep.errors import DeepAgentError

from ._protocol import Frame

MAX_FRAME_BYTES: Final = 8 * 1024 * 1024
"""How large a frame may be unless told otherwise: an image of a few megabytes in base64 fits, and what no peer of good
will sends does not."""

_BYTE_ORDER_MARK: Final = b'\xef\xbb\xbf'

_LINE_ENDS: Final = frozenset('\r\n')
_NO_ID: Final = _LINE_ENDS | {'\0'}

_MAX_RETRY_DIGITS: Final = 15
"""A longer `retry` would be more than 30,000 years, and its conversion to a number costs the square of its length."""


class FrameTooLargeError(DeepAgentError, ValueError):
    """A frame, or a line, has more bytes than the reader keeps. Nothing after it can be read.

    Attributes:
        frames: The frames of the same chunk that were whole before it.
        max_frame_bytes: How many bytes were allowed.
    """

    def __init__(self, frames: list[Frame], max_frame_bytes: int) -> None:
        self.frames = frames
        self.max_frame_bytes = max_frame_bytes
        super().__init__(
            f'A frame has more than {max_frame_bytes} bytes. Close the stream, or read it with more `max_frame_bytes`.'
        )


class FrameReader:
    """Makes frames of one stream's bytes, however they were cut into chunks, in time that grows with their number.

    Lines end with CR, LF or CRLF. Comments, fields that the standard does not know, and blocks without `data` are no
    frames; what such a block says of `id` and `retry` is in `last_event_id` and `retry_milliseconds`. Bytes that are no
    UTF-8 become U+FFFD.
    """

    def __init__(self, *, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        """Begin a stream.

        Args:
            max_frame_bytes: How many bytes a frame and the line that is being read may have together.
        """
        self._max_frame_bytes = max_frame_bytes
        self._is_at_start = True
        self._is_after_return = False
        self._line = bytearray()
        self._clear()
        self.last_event_id = ''
        """What a client sends as `Last-Event-ID`: the `id` that came last, whether or not a frame came with it."""
        self.retry_milliseconds: int | None = None
        """How long a client waits before it connects again: the `retry` that came last."""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that `chunk` completes.

        Raises:
            FrameTooLargeError: A frame is larger than allowed. What was whole before it is in the error's `frames`.
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
            if len(text) < len(piece) and (frame := self._take_line()):
                frames.append(frame)
        return frames

    def finish(self) -> Frame | None:
        """Return what is there of a frame that the stream has not finished; `None` if it ended between frames.

        The standard drops it without a word. Whoever relays the stream should say that it was cut.
        """
        if self._line:
            self._take_line()
        unfinished = self._frame() if self._has_field else None
        self._clear()
        return unfinished

    def _take_line(self) -> Frame | None:
        raw = bytes(self._line)
        self._line.clear()
        if self._is_at_start:
            self._is_at_start = False
            raw = raw.removeprefix(_BYTE_ORDER_MARK)
        if raw:
            self._take_field(raw)
            return None
        frame = self._frame() if self._lines else None
        self._clear()
        return frame

    def _take_field(self, raw: bytes) -> None:
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
    """Return the text of a frame, the blank line that ends it included: a reader makes the same frame of it.

    Line ends within `data` are read as LF whatever they were. An empty `event` is the default one.

    Raises:
        ValueError: `event` or `id` has a line end, which would begin another field, or `id` a NUL, which readers drop.
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


def _checked(field: str, value: str, refused: frozenset[str]) -> str:
    if not refused.isdisjoint(value):
        raise ValueError(f'The {field} of a frame cannot be {value[:200]!r}. Leave line ends and NUL out of it.')
    return value
