"""The cancellation of one prompt."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio
from pydantic_ai import CancellationToken, RunCancelled


class Cancellation:
    """Stops one prompt: its run by a token, and anything else that it awaits by a scope."""

    def __init__(self) -> None:
        self.token = CancellationToken()
        self._scopes: set[anyio.CancelScope] = set()

    def cancel(self) -> None:
        self.token.cancel()
        for scope in self._scopes:
            scope.cancel()

    @contextmanager
    def stops(self) -> Generator[None]:
        """Stop the body on cancellation.

        Raises:
            RunCancelled: The body was stopped.
        """
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.token.cancelled:
                scope.cancel()
            try:
                yield
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            raise RunCancelled('The editor cancelled the turn.')
