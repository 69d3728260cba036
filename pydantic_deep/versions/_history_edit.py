"""Versions with a history that the caller sets, instead of a run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import takewhile
from typing import Any

from pydantic_ai.messages import ModelMessage

from pydantic_deep._messages.coalesced_requests import is_same
from pydantic_deep.store import Append, Commit, HeadMove, NewAsset, NewMessage, VersionRecord, new_id

from ._messages import encode_message
from ._session import Session


async def with_messages(
    session: Session[Any, Any], record: VersionRecord, messages: Sequence[ModelMessage], *, moves_head: bool
) -> VersionRecord | None:
    """Store and return a child with these messages; return `None` without storing anything if they equal the history.

    The common prefix is shared. If that is not the whole old history, the child is on a branch of its own.
    """
    history, ids = await session.history(record)
    common = sum(1 for _ in takewhile(bool, map(is_same, history, messages)))
    if common == len(history) == len(messages):
        return None
    assets: list[NewAsset] = []
    news: list[NewMessage] = []
    for message in messages[common:]:
        body, media = encode_message(message)
        assets += media
        news.append(NewMessage(id=new_id(), body=body))
    child = record.child('edit', state='complete', output=None, pending=None, message_count=len(messages))
    append = Append(
        branch_id=record.branch_id,
        at=common,
        messages=news,
        fork_id=new_id(),
        is_fork=common < len(history),
        rewrites=len(history) if common == 0 and history else None,
    )
    move = HeadMove(conversation_id=record.conversation_id, expected_id=record.id, version_id=child.id)
    heads = [move] if moves_head else []
    await session.store.commit(Commit(assets=assets, append=append, versions=[child], heads=heads))
    cached = [*history[:common], *deepcopy(messages[common:])]  # the caller may change its messages later
    session.cache_history(child.id, cached, [*ids[:common], *(message.id for message in news)])
    return await session.store.version(child.id)
