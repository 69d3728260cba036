"""API keys: creation, listing, revocation and lookup. A key is shown once; only its digest is stored."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import ClassVar, Literal, TypeAlias, cast, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from pydantic_deep._checks import check_name, check_name_list, check_names, check_object
from pydantic_deep.errors import ValidationError
from pydantic_deep.repository import Repository, RowNotFoundError, SqlRepository
from pydantic_deep.store import SqlStore, new_id

KeyScope: TypeAlias = Literal['run', 'approve', 'audit', 'admin']
"""A permission of a key: `run` conversations of its owner, `approve` their calls, read their `audit` records, or
`admin` for everything."""

SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
"""All scopes, in the order of `KeyScope`."""

USE_NOTED_SECONDS = 3600
"""Minimum interval between updates of the last use of a key. Hours are precise enough to find unused keys."""


def scope_problem(scopes: object) -> str | None:
    """Return the error for permissions that are empty, unknown or no list; `None` if they are valid."""
    if isinstance(scopes, str) or not isinstance(scopes, Collection):
        return f'it is {scopes!r}. Pass a list of scopes: {", ".join(SCOPES)}.'
    if not scopes:
        return f'at least one scope is required. Scopes: {", ".join(SCOPES)}.'
    unknown = next((scope for scope in cast('Collection[object]', scopes) if scope not in SCOPES), None)
    return None if unknown is None else f'there is no scope {unknown!r}. Scopes: {", ".join(SCOPES)}.'


_NOBODY = hashlib.sha256(b'').hexdigest()
"""Digest to compare with if the key does not exist, so that the lookup takes the same time."""

_FORM = re.compile(r'pd_([0-9a-f-]{36})_([A-Za-z0-9_-]{43})')


class InvalidKeyError(ValidationError):
    """Invalid arguments for a new key."""


class ApiKey(BaseModel):
    """The stored form of a key."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: str
    """The id of the key, which is not secret."""
    name: str
    """A display name for the key."""
    owner: str
    """The owner whose conversations the key can access."""
    digest: str = Field(repr=False)
    """The SHA-256 of its secret. The secret has 256 random bits, so no slower hash is needed."""
    scopes: tuple[KeyScope, ...]
    """The permissions of the key."""
    agents: tuple[str, ...] | None
    """The agents that the key may use; `None` for all."""
    created_at: AwareDatetime
    """When the key was created."""
    expires_at: AwareDatetime | None
    """When the key expires; `None` if it does not."""
    revoked_at: AwareDatetime | None = None
    """When the key was revoked; `None` if it was not."""

    def is_valid(self, at: datetime) -> bool:
        """Return whether the key is neither revoked nor expired at a time."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class KeyUse(BaseModel):
    """The last use of a key. It is stored separately, so that updating it can never undo a revocation."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    id: str
    """The id of the key."""
    last_used_at: AwareDatetime
    """The time of the last use, to the hour."""


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
    _recorded_uses: dict[str, datetime] = field(default_factory=dict[str, datetime], repr=False)

    async def create(
        self,
        *,
        name: str,
        scopes: Sequence[KeyScope],
        owner: str | None = None,
        agents: Sequence[str] | None = None,
        expires_in_seconds: float | None = None,
    ) -> str:
        """Create a key and return it. It cannot be shown again.

        Raises:
            InvalidKeyError: There is no scope or an unknown one, or the expiry is not a date in the future.
            ValidationError: A name is blank or not a string, or `agents` is a text.
        """
        check_name('name', name)
        check_names(owner=owner)
        check_name_list('agents', agents)
        if (problem := scope_problem(scopes)) is not None:
            raise InvalidKeyError('scopes', problem)
        check_object('expires_in_seconds', expires_in_seconds, (int, float, NoneType), 'Pass a number of seconds.')
        if expires_in_seconds is not None and expires_in_seconds <= 0:
            raise InvalidKeyError(
                'expires_in_seconds', f'a key that expires after {expires_in_seconds} seconds has already expired.'
            )
        now, id, secret = self.clock(), new_id(), secrets.token_urlsafe(32)
        try:
            expires_at = None if expires_in_seconds is None else now + timedelta(seconds=expires_in_seconds)
        except (OverflowError, ValueError):  # beyond the year 9999, or not a number
            raise InvalidKeyError(
                'expires_in_seconds',
                f'{expires_in_seconds} seconds from now is not a valid date. Omit it for a key that never expires.',
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
        """Return the key that was sent, if it is valid. Each call reads the store, so that revocation is immediate."""
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
        await self._record_use(key.id)
        return key

    async def list(self) -> list[ApiKey]:
        """Return all keys, including expired and revoked ones, oldest first."""
        keys: list[ApiKey] = []
        cursor: str | None = None
        while True:
            page = await self.keys.list(limit=1000, cursor=cursor)  # ids are in chronological order
            keys += page.items
            cursor = page.cursor
            if cursor is None:
                return keys

    async def is_valid(self, id: str) -> bool:
        """Return whether there is a key with an id, and it is neither revoked nor expired."""
        try:
            return (await self.keys.get(id)).is_valid(self.clock())
        except RowNotFoundError:
            return False

    async def last_used_at(self, id: str) -> datetime | None:
        """Return when a key was last used, to the hour; `None` if it was never used."""
        try:
            return (await self.uses.get(id)).last_used_at
        except RowNotFoundError:
            return None

    async def revoke(self, id: str) -> ApiKey:
        """Revoke a key immediately and permanently, and return it.

        Raises:
            RowNotFoundError: There is no key with that id.
        """
        check_name('id', id)
        key = await self.keys.get(id)
        if key.revoked_at is None:
            key = key.model_copy(update={'revoked_at': self.clock()})
            await self.keys.upsert(key)  # nothing else replaces a key, so no change of another process is lost
        return key

    async def _record_use(self, id: str) -> None:
        now = self.clock()
        recorded_at = self._recorded_uses.get(id)
        if recorded_at is None or now - recorded_at >= timedelta(seconds=USE_NOTED_SECONDS):
            self._recorded_uses[id] = now
            await self.uses.upsert(KeyUse(id=id, last_used_at=now))


@asynccontextmanager
async def open_keys(store: SqlStore) -> AsyncGenerator[KeyRing]:
    """Open the API keys of a store, and close them at the end of the block. The store remains open.

    Args:
        store: The store of the server.
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
    """Create an API key and return it. This is the only time it is shown: only its digest is stored.

    Args:
        store: The store of the server.
        name: A display name for the key.
        scopes: The permissions of the key: `run`, `approve`, `audit`, `admin`.
        owner: The owner whose conversations the key can access, such as a person's name. By default, the key is its own
            owner.
        agents: The agents that the key may use. By default, all.
        expires_in_seconds: The lifetime of the key. By default, it does not expire.

    Raises:
        InvalidKeyError: There is no scope or an unknown one, or the expiry is not a date in the future.
        ValidationError: A name is blank or not a string.
    """
    async with open_keys(store) as ring:
        return await ring.create(
            name=name, scopes=scopes, owner=owner, agents=agents, expires_in_seconds=expires_in_seconds
        )


async def list_api_keys(store: SqlStore) -> list[ApiKey]:
    """Return all keys of a store, including expired and revoked ones, oldest first."""
    async with open_keys(store) as ring:
        return await ring.list()


async def revoke_api_key(store: SqlStore, id: str) -> ApiKey:
    """Revoke a key immediately in every server that uses the store, and return it.

    Raises:
        RowNotFoundError: There is no key with that id.
    """
    async with open_keys(store) as ring:
        return await ring.revoke(id)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
