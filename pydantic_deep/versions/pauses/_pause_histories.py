"""Histories of paused subagents: a stored pause refers to their versions instead of copying them.

The pending calls of a subagent carry its whole history, so that a `Conversation` is enough to resume it. A store
already has that history, as the version that the subagent paused with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from pydantic import JsonValue
from pydantic_ai import DeferredToolRequests

from pydantic_deep._messages.deferred_metadata import KEY
from pydantic_deep._messages.message_json import dump_history
from pydantic_deep.store import Store, VersionFilter, VersionRecord
from pydantic_deep.versions._messages import load_history

from ._pause import decode_pause, encode_pause

_VERSION = 'version'
"""The key of the version id that replaces a history."""


async def store_pause(store: Store, requests: DeferredToolRequests) -> bytes:
    """Return pending calls as JSON, with version ids instead of histories."""
    document = json.loads(encode_pause(requests))
    for delegation in _delegations(document):
        version = await _version_of(store, delegation)
        if version is not None:
            delegation['messages'] = {_VERSION: version.id}
    return json.dumps(document, ensure_ascii=False, separators=(',', ':')).encode()


async def load_pause(store: Store, data: bytes) -> DeferredToolRequests:
    """Return pending calls from their JSON, with the histories loaded.

    Raises:
        VersionNotFoundError: The version of a subagent was deleted.
    """
    document = json.loads(data)
    for delegation in _delegations(document):
        messages: JsonValue = delegation['messages']
        if isinstance(messages, dict):
            delegation['messages'] = await _dump(store, await store.version(str(messages[_VERSION])))
    return decode_pause(json.dumps(document).encode())


def _delegations(requests: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the delegations in pending calls, at any depth."""
    for metadata in cast('dict[str, dict[str, Any]]', requests['metadata']).values():
        carried = metadata.get(KEY)
        if isinstance(carried, dict) and cast('dict[str, Any]', carried).get('kind') == 'delegation':
            delegation = cast('dict[str, Any]', carried)
            yield delegation
            yield from _delegations(delegation['requests'])


async def _version_of(store: Store, delegation: dict[str, Any]) -> VersionRecord | None:
    """Return the version with exactly the history of a delegation; `None` if there is none, for example without a
    recorder.
    """
    pauses = VersionFilter(conversation_id=delegation['conversation_id'], kinds=['pause'])
    for version in await store.versions(pauses, limit=1):
        if await _dump(store, version) == delegation['messages']:
            return version
    return None


async def _dump(store: Store, version: VersionRecord) -> JsonValue:
    messages, _ = await load_history(store, version)
    return dump_history(messages)
