"""`Repetitions`: the runs that repeated requests join instead of starting another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from pydantic_deep.server.http._errors import ServerError

from ._pool import RunPool
from ._server_run import ServerRun

SAME_BYTES_SECONDS = 60
"""How long a request with the same bytes joins the run of the first one, after which a person may ask again."""


@dataclass(frozen=True, kw_only=True)
class RequestIdentity:
    """The identity of a request among those of its owner."""

    digest: str
    """A digest of the key that the client chose, or of the bytes of the request."""
    content: str
    """A digest of the bytes of the request."""
    has_key: bool = False
    """Whether the client chose the key."""


@dataclass
class _Entry:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    run: ServerRun | None = None
    content: str = ''
    started_at: float = 0

    def is_joinable(self, identity: RequestIdentity) -> bool:
        is_running = self.run is not None and self.run.outcome is None
        return identity.has_key or (is_running and anyio.current_time() - self.started_at < SAME_BYTES_SECONDS)


class Repetitions:
    """The runs that the requests of this process have started."""

    def __init__(self, runs: RunPool) -> None:
        """Create it.

        Args:
            runs: The run pool, which keeps the logs of ended runs.
        """
        self._runs = runs
        self._entries: dict[tuple[str, str, str], _Entry] = {}

    async def start(
        self, owner: str, agent_name: str, identity: RequestIdentity, start_run: Callable[[], Awaitable[ServerRun]]
    ) -> ServerRun:
        """Return the run that an equal request of the owner to the agent has started, or start one.

        A request with a key joins the run while its log is kept, one with the same bytes while it is running.

        Raises:
            ServerError: The key was used for another request; or see `start_run`.
        """
        self._prune()
        entry = self._entries.setdefault((owner, agent_name, identity.digest), _Entry())
        async with entry.lock:
            if entry.run is None or not entry.is_joinable(identity):
                entry.run, entry.started_at = await start_run(), anyio.current_time()
                entry.content = identity.content
            elif entry.content != identity.content:
                raise ServerError(
                    'invalid',
                    'The `Idempotency-Key` belongs to an earlier request with another body. Choose a new key.',
                )
            return entry.run

    def _prune(self) -> None:
        """Remove the entries of runs that are not kept any more, except those that are being started."""
        for key, entry in [*self._entries.items()]:
            if not entry.lock.locked() and (entry.run is None or self._runs.get(entry.run.id) is None):
                del self._entries[key]
