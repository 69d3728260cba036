"""Changes in a fork are stored in few segments, which together contain all its changes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import StateBackend
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, call
from pydantic_deep.versions.recording._overlay_deltas import Segment, joined, segments_with
from tests.versions.conftest import MakeAgent, SpyStore

States = Mapping[str, int]

_STATES: st.SearchStrategy[States] = st.dictionaries(st.sampled_from('abcdefghijklmnop'), st.integers(0, 3), min_size=0)


def changes(states: States) -> dict[str, Any]:
    return {'format': 1, 'entries': [{'path': path, 'now': now} for path, now in states.items()]}


@pytest.mark.slow
@given(st.lists(_STATES, min_size=1, max_size=20))
def test_segments_together_contain_all_changes_of_the_fork(history: list[States]) -> None:
    known: tuple[Segment, ...] = ()
    for states in history:
        segments = segments_with(known, changes(states))
        assert {each['path']: each['now'] for each in joined([each.data for each in segments])['entries']} == states
        assert segments_with(segments, changes(states)) == segments
        sizes = [len(each.entries) for each in segments]
        assert all(2 * small <= large for large, small in pairwise(sizes))
        known = segments


async def _stored_bytes(make: MakeAgent, store: SpyStore, files: int) -> int:
    """Return the stored bytes of the calls of a fork that writes this many files, without the files."""

    def script(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        if 'fork it' not in str(messages[0]):
            return call('task', subagent='fork', description='fork it') if len(messages) < 2 else 'done'
        count = len(messages) // 2
        if count == files:
            return 'written'
        return ToolCallPart('write_file', {'path': f'/{count}', 'content': f'{count}'}, tool_call_id=f'write {count}')

    agent = make(then=script, subagents=[Subagent('fork', 'Works apart.', isolation='fork')])
    store.commits.clear()
    turn = await (await agent.create(backend=StateBackend())).advance('go')
    assert len(await turn.file_tree()) == files
    assets = [asset for commit in store.commits for asset in commit.assets]
    return sum(len(asset.data) for asset in assets if asset.media_type == 'application/json')


@pytest.mark.slow
@pytest.mark.anyio
async def test_call_in_a_fork_stores_only_its_changes(make: MakeAgent, store: SpyStore) -> None:
    few, many = [await _stored_bytes(make, store, files) for files in (10, 80)]
    assert many < 16 * few  # 64 times as much if each call stored all files
