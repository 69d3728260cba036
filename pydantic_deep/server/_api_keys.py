"""API keys: made, listed, revoked, and found by what a client sends. A key is shown once; its digest is kept."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pydantic_deep._checks import check_name, check_names
from pydantic_deep.errors import ValidationError
from pydantic_deep.repository import Repository, RowNotFoundError, SqlRepository
from pydantic_deep.store import SqlStore, new_id

KeyScope: TypeAlias = Literal['run', 'approve', 'audit', 'admin']
"""What a key may do: `run` conversations of its owner, `approve` calls in them, read their `audit`, or everything."""

SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""All of them."""

USE_NOTED_SECONDS = 3600
"""How often the last use of a key is noted at most: to the hour is enough to find keys that nobody uses."""

_NOBODY = hashlib.sha256(b'').hexdigest()
"""What the digest of a key is compared with that is not there: as much work as for one that is."""

_FORM = re.compile(r'pd_([0-9a-f-]{36})_([A-Za-z0-9_-]{43})')


class InvalidKeyError(ValidationError):
    """A key cannot be made like that."""


class ApiKey(BaseModel):
    """What is kept of a key."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: str
    """Names it, and is no secret."""
    name: str
    """What people call it."""
    owner: str
    """Whose conversations it sees."""
    digest: str = Field(repr=False)
    """The SHA-256 of its secret, which has 256 bits of chance: nothing slower is needed."""
    scopes: tuple[KeyScope, ...]
    """What it may do."""
    agents: tuple[str, ...] | None
    """The agents that it may use; `None` for all."""
    created_at: AwareDatetime
    """When it was made."""
    expires_at: AwareDatetime | None
    """From when on it is worth nothing; `None` for never."""
    revoked_at: AwareDatetime | None = None
    """When it was revoked."""

    def is_valid(self, at: datetime) -> bool:
        """Return whether it is worth something at a time."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class KeyUse(BaseModel):
    """When a key was last used, about; apart from the key, so that noting it can never undo a revocation."""

    model_config = ConfigDict(frozen=True)

    id: str
    """The id of the key."""
    last_used_at: AwareDatetime
    """When, to the hour."""


@dataclass(frozen=True, kw_only=True)
class KeyRing:
    """The API keys of a store: `open_keys` returns it, for several operations with one connection.

    `create_api_key`, `list_api_keys` and `revoke_api_key` do one operation each.
    """

    keys: Repository[ApiKey]
    """The keys, by id."""
    uses: Repository[KeyUse]
    """The time of the last use of each key, by the id of the key."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """Returns the current time, in UTC."""
    _noted: dict[str, datetime] = field(default_factory=dict[str, datetime], repr=False)

    async def create(
        self,
        *,
        name: str,
        scopes: Sequence[KeyScope],
        owner: str | None = None,
        agents: Sequence[str] | None = None,
        expires_in_seconds: float | None = None,
    ) -> str:
        """Make a key and return it: nobody can be shown it again.

        Raises:
            InvalidKeyError: It would be worth nothing.
            ValidationError: A name is blank, or no text.
        """
        check_name('name', name)
        check_names(owner=owner)
        for agent in agents or ():
            check_name('agents', agent)
        if not scopes:
            raise InvalidKeyError('scopes', f'a key without scopes may do nothing. Scopes: {", ".join(SCOPES)}.')
        if (unknown := next((scope for scope in scopes if scope not in SCOPES), None)) is not None:
            raise InvalidKeyError('scopes', f'there is no scope {unknown!r}. Scopes: {", ".join(SCOPES)}.')
        if expires_in_seconds is not None and expires_in_seconds <= 0:
            raise InvalidKeyError(
                'expires_in_seconds', f'a key that expires after {expires_in_seconds} seconds has expired already.'
            )
        now, id, secret = self.clock(), new_id(), secrets.token_urlsafe(32)
        try:
            expires_at = None if expires_in_seconds is None else now + timedelta(seconds=expires_in_seconds)
        except (OverflowError, ValueError):  # beyond the year 9999, or no number
            raise InvalidKeyError(
                'expires_in_seconds',
                f'there is no moment {expires_in_seconds} seconds from now. Leave it out for a key that never expires.',
            ) from None
        await self.keys.create(
            ApiKey(
                id=id,
                name=name,
                owner=owner or id,
                digest=_digest(secret),
                scopes=tuple(dict.fromkeys(scopes)),
                agents=None if agents is None else tuple(agents),
                created_at=now,
                expires_at=expires_at,
            )
        )
        return f'pd_{id}_{secret}'

    async def find(self, sent: str) -> ApiKey | None:
        """Return the key that was sent, if it is worth something now. It is read each time: a revocation holds at once."""
        parts = _FORM.fullmatch(sent)
        if parts is None:
            return None
        try:
            key = await self.keys.get(parts[1])
        except RowNotFoundError:
            key = None
        is_right = hmac.compare_digest(_digest(parts[2]), _NOBODY if key is None else key.digest)
        if key is None or not is_right or not key.is_valid(self.clock()):
            return None
        await self._note_use(key.id)
        return key

    async def list(self) -> list[ApiKey]:
        """Return all keys, also those that expired or were revoked, oldest first."""
        found: list[ApiKey] = []
        cursor: str | None = None
        while True:
            page = await self.keys.list(limit=1000, cursor=cursor)  # ids are in the order of time
            found += page.items
            cursor = page.cursor
            if cursor is None:
                return found

    async def last_used_at(self, id: str) -> datetime | None:
        """Return when a key was last used, to the hour; `None` if it was not."""
        try:
            return (await self.uses.get(id)).last_used_at
        except RowNotFoundError:
            return None

    async def revoke(self, id: str) -> ApiKey:
        """Make a key worth nothing, at once and for good, and return what is kept of it.

        Raises:
            RowNotFoundError: There is no key of that id.
        """
        check_name('id', id)
        key = await self.keys.get(id)
        if key.revoked_at is None:
            key = key.model_copy(update={'revoked_at': self.clock()})
            await self.keys.upsert(key)
        return key

    async def _note_use(self, id: str) -> None:
        now = self.clock()
        noted = self._noted.get(id)
        if noted is None or now - noted >= timedelta(seconds=USE_NOTED_SECONDS):
            self._noted[id] = now
            await self.uses.upsert(KeyUse(id=id, last_used_at=now))


@asynccontextmanager
async def open_keys(store: SqlStore) -> AsyncGenerator[KeyRing]:
    """Open the API keys of a store, and close them at the end of the block. The store stays open.

    Args:
        store: The store that is served.
    """
    keys = await SqlRepository[ApiKey].open(store, ApiKey, name='server_keys')
    uses = await SqlRepository[KeyUse].open(store, KeyUse, name='server_key_uses')
    try:
        yield KeyRing(keys=keys, uses=uses)
    finally:
        await keys.aclose()
        await uses.aclose()


async def create_api_key(
    store: SqlStore,
    *,
    name: str,
    scopes: Sequence[KeyScope],
    owner: str | None = None,
    agents: Sequence[str] | None = None,
    expires_in_seconds: float | None = None,
) -> str:
    """Make an API key and return it. It is shown this once: what is kept of it cannot be used.

    Args:
        store: The store that is served.
        name: What people call it.
        scopes: What it may do: `run`, `approve`, `audit`, `admin`.
        owner: Whose conversations it sees, such as the name of a person; only its own if left out.
        agents: The agents that it may use; all if left out.
        expires_in_seconds: For how long it is worth something; for ever if left out.

    Raises:
        InvalidKeyError: It would be worth nothing.
        ValidationError: A name is blank, or no text.
    """
    async with open_keys(store) as ring:
        return await ring.create(
            name=name, scopes=scopes, owner=owner, agents=agents, expires_in_seconds=expires_in_seconds
        )


async def list_api_keys(store: SqlStore) -> list[ApiKey]:
    """Return all keys of a store, also those that expired or were revoked, oldest first."""
    async with open_keys(store) as ring:
        return await ring.list()


async def revoke_api_key(store: SqlStore, id: str) -> ApiKey:
    """Make a key worth nothing, at once, in every server on the store; return what is kept of it.

    Raises:
        RowNotFoundError: There is no key of that id.
    """
    async with open_keys(store) as ring:
        return await ring.revoke(id)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
