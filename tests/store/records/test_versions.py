"""Versions that continue another one."""

from __future__ import annotations

import pytest

from pydantic_deep.store import open_store
from pydantic_deep.store._samples import Dialogue

pytestmark = pytest.mark.anyio


async def test_child_continues_its_parent_with_the_changed_fields() -> None:
    async with open_store('memory:') as store:
        parent = (await Dialogue(store).begin())._replace(
            run_id='r', cloned_from='c', merged_from='m', name='old', metadata='{"a":1}', message_count=3
        )
    child = parent.child('edit', name='new', message_count=4)

    assert (child.parent_id, child.kind, child.name, child.message_count) == (parent.id, 'edit', 'new', 4)
    assert (child.number, child.run_id, child.cloned_from, child.merged_from) == (0, None, None, None)
    assert child.id > parent.id
    assert child.created_at >= parent.created_at
    rest = [name for name in parent._fields if getattr(child, name) == getattr(parent, name)]
    assert {'conversation_id', 'branch_id', 'branch', 'agent_name', 'metadata', 'usage', 'tree'} <= set(rest)
