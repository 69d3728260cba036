"""Which process an open store belongs to: threads and connections do not survive a fork."""

from __future__ import annotations

import os

from .errors import StoreProcessError


class HomeProcess:
    """The process that made this object."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_left(self) -> bool:
        """Whether this is a forked child of that process."""
        return os.getpid() != self._pid

    def check(self, url: str) -> None:
        """Raise `StoreProcessError` in a forked child of that process."""
        if self.is_left:
            raise StoreProcessError(
                f'The store {url!r} was opened by process {self._pid}, and this is its forked child {os.getpid()}. '
                'Open it again here with `open_store`.'
            )
