"""`ForkGuard`: refuses the use of a store in a forked child, which lacks its threads and shares its connections."""

from __future__ import annotations

import os

from .errors import StoreProcessError


class ForkGuard:
    """Remembers the process that created it."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_child(self) -> bool:
        """Whether this is a forked child of that process."""
        return os.getpid() != self._pid

    def check(self, url: str) -> None:
        """Raise `StoreProcessError` in a forked child of that process."""
        if self.is_child:
            raise StoreProcessError(
                f'The store {url!r} was opened by process {self._pid}, and this is its forked child {os.getpid()}. '
                'Open it again here with `open_store`.'
            )
