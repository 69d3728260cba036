"""Versions are immutable at every level."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from pydantic_ai.messages import ModelRequest

from pydantic_deep import Approve
from pydantic_deep.store import VersionRecord
from pydantic_deep.testing import call
from pydantic_deep.versions import AgentVersion
from pydantic_deep.versions._frozen_json import freeze, thaw

from .conftest import MakeAgent

pytestmark = pytest.mark.anyio

PUBLIC = sorted(name for name in dir(AgentVersion) if isinstance(getattr(AgentVersion, name), property))


async def whole(make: MakeAgent) -> AgentVersion[Any, Any]:
    """Return a version in which every attribute has a value."""
    agent = make(
        call('write_todos', todos=[{'content': 'a', 'status': 'pending'}]), call('write_file', path='/a', content='x'),
        'done', interrupt_on={'write_file': True},
    )  # fmt: skip
    root = await agent.create(
        name='Q3', metadata={'tags': ['x', {'y': [1]}]}, model_settings={'temperature': 0, 'stop_sequences': ['x']}
    )
    paused = await root.advance('go')
    assert await paused.resume({paused.pending[0].id: Approve()})
    return paused


@pytest.mark.parametrize('name', PUBLIC)
async def test_attributes_cannot_be_set(make: MakeAgent, name: str):
    version = await make().create()

    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        setattr(version, name, None)
    with pytest.raises((AttributeError, dataclasses.FrozenInstanceError)):
        delattr(version, name)


def spoil(value: Any, depth: int = 0) -> None:
    """Change every mutable value that is reachable."""
    if depth > 6:
        return
    if isinstance(value, list):
        items = cast('list[Any]', value)
        for item in items:
            spoil(item, depth + 1)
        items.append('spoiled')
    elif isinstance(value, dict):
        entries = cast('dict[Any, Any]', value)
        for item in entries.values():
            spoil(item, depth + 1)
        with suppress(TypeError):
            entries['spoiled'] = True
    elif isinstance(value, Mapping | tuple):
        inner = cast('Mapping[Any, Any] | tuple[Any, ...]', value)
        for item in inner.values() if isinstance(inner, Mapping) else inner:
            spoil(item, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            spoil(getattr(value, field.name, None), depth + 1)
            try:
                object.__getattribute__(value, '__setattr__')(field.name, 'spoiled')
            except AttributeError:
                continue


@pytest.mark.parametrize('name', [name for name in PUBLIC if name not in ('backend',)])
async def test_changing_an_attribute_value_does_not_change_the_version(make: MakeAgent, name: str):
    version = await whole(make)
    before = repr(getattr(version, name))

    spoil(getattr(version, name))

    assert repr(getattr(version, name)) == before


async def test_metadata_are_read_only_at_every_level(make: MakeAgent):
    metadata = cast('Any', (await whole(make)).metadata)

    with pytest.raises(TypeError):
        metadata['tags'] = 1
    with pytest.raises(TypeError):
        metadata['tags'][1]['y'] = 1
    with pytest.raises(TypeError, match=r'A value of a version cannot change\. Change a copy: `dict\(value\)`\.'):
        metadata.update(tags=1)
    assert metadata['tags'] == ('x', {'y': (1,)})


async def test_metadata_can_be_dumped_copied_and_pickled(make: MakeAgent):
    """`json.dumps` refused them, and so did `dataclasses.asdict` those of an approval in the inbox."""
    metadata = (await whole(make)).metadata

    assert json.dumps(metadata) == '{"tags": ["x", {"y": [1]}]}'
    assert copy.deepcopy(metadata) == pickle.loads(pickle.dumps(metadata)) == metadata
    with pytest.raises(TypeError):
        cast('Any', copy.deepcopy(metadata))['tags'] = 1


async def test_changing_returned_messages_does_not_change_the_version(make: MakeAgent):
    agent = make('one', 'two')
    turn = await (await agent.create()).advance('go')
    before = repr(await turn.messages())

    messages = await turn.messages()
    assert isinstance(messages[0], ModelRequest)
    cast('list[Any]', messages[0].parts).clear()
    messages[1].metadata = {'spoiled': True}
    messages.clear()
    difference = await (await agent.load(turn.parent_id or '')).diff(turn)
    cast('list[Any]', difference.messages_added[0].parts).clear()

    assert repr(await turn.messages()) == before
    after = await turn.advance('more')
    assert repr((await after.messages())[:2]) == before


async def test_stored_history_of_a_version_never_changes(make: MakeAgent):
    agent = make('one', 'two', 'three', 'four')
    turn = await (await agent.create()).advance('a')
    before = await agent.store.messages(turn.record.branch_id, turn.message_count)
    record = turn.record

    for prompt in ('b', 'c', 'd'):
        await turn.advance(prompt)
    await agent.gc(0)

    assert await agent.store.messages(record.branch_id, record.message_count) == before
    assert (await agent.load(turn.id)).record == record


async def test_lineage_cannot_be_changed(make: MakeAgent):
    lineage = cast('Any', await (await make().create()).lineage())

    with pytest.raises(AttributeError):
        lineage.truncated_at = 'x'
    with pytest.raises(TypeError):
        lineage[0] = None


def test_version_record_is_a_tuple():
    assert issubclass(VersionRecord, tuple)


def test_freeze_and_thaw_are_inverse():
    value = cast('object', {'a': [1, 2.5, None, True, {'b': [0]}], 'c': 'x'})

    frozen = freeze(value)

    assert isinstance(frozen, Mapping)
    assert isinstance(frozen['a'], Sequence)
    assert thaw(frozen) == value
    with pytest.raises(TypeError, match='not a JSON value'):
        freeze(object())
