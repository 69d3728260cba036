"""`Repetitions`: the runs that repeated requests join instead of starting another one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TypeAlias

import anyio
from pydantic import BaseModel

from pydantic_deep.repository import Range, RowExistsError, RowNotFoundError, SqlRepository
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.store import SqlStore, new_id

from ._pool import RunPool
from ._server_run import ServerRun

SAME_BYTES_SECONDS = 60
"""How long a request with the same bytes joins the run of the first one, after which a person may ask again."""

START_SECONDS = 30
"""How long a repeated request waits for another server to start the run of the first one. Then it starts the run itself."""

MIN_POLL_SECONDS = 0.05
"""Interval after which it looks for the first time. Each interval is twice as long as the one before."""

MAX_POLL_SECONDS = 1.0
"""Maximum interval: if a server has crashed, many requests may wait, and each costs queries."""

KEY_SECONDS = 86_400
"""How long a claim with a key is kept. Others are kept as long as they can be joined."""

PRUNE_SECONDS = 60
"""Interval at which a server removes expired claims."""

CLAIM_FIELDS = ('expires_at',)
"""The indexed fields of the rows."""

StartRun: TypeAlias = Callable[[str | None], Awaitable[ServerRun]]
"""Starts the run of a request, with this id if workers execute it."""


@dataclass(frozen=True, kw_only=True)
class RequestIdentity:
    """The identity of a request among those of its owner."""

    digest: str
    """A digest of the key that the client chose, or of the bytes of the request."""
    content: str
    """A digest of the bytes of the request."""
    has_key: bool = False
    """Whether the client chose the key."""

    def check(self, content: str) -> None:
        """Check that the request is the earlier one with the same key.

        Raises:
            ServerError: It has another content.
        """
        if self.content != content:
            raise ServerError(
                'invalid', 'The `Idempotency-Key` belongs to an earlier request with another body. Choose a new key.'
            )

    def joins(self, run: ServerRun, age_seconds: float) -> bool:
        """Return whether the request joins the run of the same request, which started some time ago."""
        return self.has_key or (run.outcome is None and age_seconds < SAME_BYTES_SECONDS)


class RequestClaim(BaseModel):
    """A request that a server of the store has received. Others that receive the same one join its run."""

    id: str
    """A digest of the owner, the agent and the identity of the request."""
    content: str
    """A digest of the bytes of the request."""
    claimed_at: float
    """When the server received it, as a Unix timestamp in seconds of the store's clock."""
    expires_at: float
    """When the row may be removed."""
    run_id: str
    """The run, which starts after the row is stored."""


@dataclass
class _Entry:
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    run: ServerRun | None = None
    content: str = ''
    started_at: float = 0


class Repetitions:
    """The runs of requests: those of this process, and if workers execute them, those of all servers of the store."""

    def __init__(self, runs: RunPool, store: SqlStore, claims: SqlRepository[RequestClaim] | None = None) -> None:
        """Create it.

        Args:
            runs: The run pool, which keeps the logs of ended runs.
            store: The store with the runs.
            claims: The requests of all servers; `None` if each server executes the runs of its own requests.
        """
        self._runs = runs
        self._store = store
        self._claims = claims
        self._entries: dict[tuple[str, str, str], _Entry] = {}
        self._next_prune = 0.0

    async def start(self, owner: str, agent_name: str, identity: RequestIdentity, start_run: StartRun) -> ServerRun:
        """Return the run that an equal request of the owner to the agent has started, or start one.

        A request with a key joins the run while its log is kept, one with the same bytes while it is running.

        Raises:
            ServerError: The key was used for another request; or see `start_run`.
        """
        self._prune()
        key = (owner, agent_name, identity.digest)
        entry = self._entries.setdefault(key, _Entry())
        async with entry.lock:
            if entry.run is not None and identity.joins(entry.run, anyio.current_time() - entry.started_at):
                identity.check(entry.content)
                return entry.run
            if self._claims is None:
                entry.run = await start_run(None)
            else:
                id = claim_id(owner, agent_name, identity)
                entry.run = await self._start_claimed(self._claims, id, identity, start_run)
            entry.started_at, entry.content = anyio.current_time(), identity.content
            return entry.run

    async def _start_claimed(
        self, claims: SqlRepository[RequestClaim], id: str, identity: RequestIdentity, start_run: StartRun
    ) -> ServerRun:
        await self._prune_claims(claims)
        now = await self._time()
        kept_seconds = KEY_SECONDS if identity.has_key else SAME_BYTES_SECONDS + START_SECONDS
        claim = RequestClaim(
            id=id, content=identity.content, run_id=new_id(), claimed_at=now, expires_at=now + kept_seconds
        )
        while True:
            try:
                await claims.create(claim)
                break
            except RowExistsError:
                pass
            try:
                earlier, run = await self._claimed(claims, id, identity)
            except RowNotFoundError:  # it was refused
                continue
            if run is not None and identity.joins(run, await self._time() - earlier.claimed_at):
                return run
            if run is None and await self._store.run(earlier.run_id) is None:
                claim = earlier  # its server has crashed or hangs: with the same id, one of both can start the run
                break
            if await _replace(claims, earlier, claim):  # otherwise another request has replaced it
                break
        started: ServerRun | None = None
        try:
            run = await start_run(claim.run_id)
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                started = await self._runs.follow(claim.run_id)
                if started is None:
                    await _replace(claims, claim, None)
            if started is None or not isinstance(error, ValueError):  # that of a run id that is in use
                raise
            run = started
        if run.id != claim.run_id:  # the request repeats an answer
            await _replace(claims, claim, claim.model_copy(update={'run_id': run.id}))
        return run

    async def _claimed(
        self, claims: SqlRepository[RequestClaim], id: str, identity: RequestIdentity
    ) -> tuple[RequestClaim, ServerRun | None]:
        """Return a claim and its run; `None` if it is not kept any more, or has not started in time.

        Raises:
            RowNotFoundError: There is no claim.
            ServerError: The key was used for another request.
        """
        pause = MIN_POLL_SECONDS
        while True:
            claim = await claims.get(id)
            run = await self._runs.follow(claim.run_id)
            is_forgotten = run is None and await self._store.run(claim.run_id) is not None
            if not is_forgotten:
                identity.check(claim.content)
            if run is not None or is_forgotten or await self._time() - claim.claimed_at > START_SECONDS:
                return claim, run
            await anyio.sleep(pause)
            pause = min(2 * pause, MAX_POLL_SECONDS)

    async def _prune_claims(self, claims: SqlRepository[RequestClaim]) -> None:
        """Remove claims that have expired, once in a while."""
        now = await self._time()
        if now >= self._next_prune:
            expired = await claims.list({'expires_at': Range(lt=now)})
            for claim in expired.items:
                await _replace(claims, claim, None)  # unless another request has replaced it now
            self._next_prune = now + PRUNE_SECONDS * (expired.cursor is None)

    async def _time(self) -> float:
        """Return the time in seconds since 1970, by the clock that all servers have."""
        return await self._store.queue.time() / 1_000_000

    def _prune(self) -> None:
        """Remove the entries of runs that are not kept any more, except those that are being started."""
        for key, entry in [*self._entries.items()]:
            if not entry.lock.locked() and (entry.run is None or self._runs.get(entry.run.id) is None):
                del self._entries[key]


async def _replace(claims: SqlRepository[RequestClaim], known: RequestClaim, new: RequestClaim | None) -> bool:
    """Replace a claim, or remove it; return `False` if another request has changed it."""
    return await claims.update(known.id, lambda current: new if current == known else current) == new


def claim_id(owner: str, agent_name: str, identity: RequestIdentity) -> str:
    """Return the id of the row of a request."""
    return sha256(json.dumps([owner, agent_name, identity.digest]).encode()).hexdigest()
