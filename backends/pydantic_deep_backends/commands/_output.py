"""The output of a command in bounded memory: its first and last part, and the number of omitted bytes in between."""

from __future__ import annotations

import codecs


class CappedOutput:
    """One output stream of a command.

    Args:
        limit_bytes: Maximum number of bytes to store.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = limit_bytes - limit_bytes // 2
        self._tail_bytes = limit_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped_bytes = 0

    def add(self, data: bytes) -> None:
        """Append output."""
        room = self._head_bytes - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        excess = len(self._tail) - self._tail_bytes
        if excess > 0:
            del self._tail[:excess]
            self._dropped_bytes += excess

    def text(self) -> str:
        """Return the stored text. Undecodable bytes are U+FFFD, and a line replaces the omitted part."""
        if not self._dropped_bytes:
            return (self._head + self._tail).decode(errors='replace')
        head, tail = bytes(self._head), bytes(self._tail)
        # A character that was cut in two is omitted, as U+FFFD would be wrong where the command printed none.
        decoder = codecs.getincrementaldecoder('utf-8')(errors='replace')
        first = decoder.decode(head)
        pending = len(decoder.getstate()[0])
        rest = tail[:3].lstrip(_CONTINUATION) + tail[3:]
        dropped = self._dropped_bytes + pending + len(tail) - len(rest)
        return f'{first}\n[… {dropped:,} bytes left out …]\n{rest.decode(errors="replace")}'


_CONTINUATION = bytes(range(0x80, 0xC0))
"""Bytes that continue a UTF-8 character and never begin one."""
