"""Text that grows by pieces, and the bytes around a piece in a rendered frame.

The log of a run has each text as JSON. An encoder inserts this JSON into its frame as it is, so that nothing is parsed or
encoded for a text that follows another one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from pydantic_deep.streaming._frames import render_frames
from pydantic_deep.streaming._protocol import Frame

MARK = '\0'
"""Stands for the text in a frame that is rendered once. Ids and names cannot contain it."""

_MARK_JSON = b'"\\u0000"'


class TextPieces:
    """The pieces of a text. Those that are given as JSON are parsed when the text is read."""

    def __init__(self, text: str = '') -> None:
        self._pieces = [text] if text else []
        self._unparsed: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._pieces or self._unparsed)

    @property
    def text(self) -> str:
        """The whole text."""
        if self._unparsed:
            self._pieces += json.loads(b'[%b]' % b','.join(self._unparsed))
            self._unparsed.clear()
        return ''.join(self._pieces)

    def append(self, text: str) -> None:
        """Append a piece."""
        if self._unparsed:
            self._pieces = [self.text]
        self._pieces.append(text)

    def append_json(self, text: bytes) -> None:
        """Append a piece that is a JSON string."""
        self._unparsed.append(text)


def split_at_mark(frames: Iterable[Frame]) -> tuple[bytes, bytes]:
    """Return the bytes before and after the text of rendered frames, which is `MARK`."""
    before, _, after = render_frames(frames).partition(_MARK_JSON)
    return before, after
