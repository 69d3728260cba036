"""One commit and what is read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.store import BranchRecord, Commit, ConversationRecord, open_store

pytestmark = pytest.mark.anyio


async def test_a_conversation_is_there_after_reopening(tmp_path: Path) -> None:
    url = f'sqlite:///{tmp_path}/agents.db'
    conversation = ConversationRecord('c', 'analyst', None, 1)
    branch = BranchRecord('b', 'c', 'main', None, 0, 0, None, None, 1)
    async with open_store(url) as store:
        await store.commit(Commit(conversations=[conversation], branches=[branch]))
    async with open_store(url) as store:
        assert await store.conversation('c') == conversation
        assert await store.branches('c') == [branch]
