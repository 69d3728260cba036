"""The content of a version: messages, files, requests and differences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse

from pydantic_deep import LocalBackend, StateBackend
from pydantic_deep.testing import Answer, call
from tests.versions.conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


async def test_versions_with_the_same_id_are_equal(make: MakeAgent):
    agent = make()
    version = await agent.create(name='Q3')
    other = await agent.create(name='Q3')

    assert version == await agent.load(version.id)
    assert version != other
    assert version != version.id
    assert len({version, await agent.load(version.id[:18]), other}) == 2


async def test_repr_describes_the_version(make: MakeAgent):
    agent = make()
    named, nameless = await agent.create(name='Q3'), await agent.create()

    assert repr(named) == f"<AgentVersion {named.id} 'Q3': root, complete, 0 messages, main>"
    assert repr(nameless) == f'<AgentVersion {nameless.id}: root, complete, 0 messages, main>'
    assert repr(agent) == "VersionedAgent('deep-agent', 'memory:')"
    assert named.created_at.tzinfo is UTC
    assert abs(named.created_at - datetime.now(UTC)) < timedelta(minutes=5)


async def test_messages_can_be_sliced(make: MakeAgent, store: SpyStore):
    version = await (await (await make('one', 'two').create()).advance('a')).advance('b')
    history = await version.messages()

    assert await version.messages(start=1) == history[1:]
    assert await version.messages(start=1, stop=3) == history[1:3]
    assert await version.messages(stop=99) == history
    assert await version.messages(start=7) == []
    assert [type(message) for message in history] == [ModelRequest, ModelResponse] * 2


async def test_requests_of_a_turn_are_listed(make: MakeAgent):
    """000-15c: The requests of a turn list the settings in effect."""
    turn = await (await make(call('ls'), 'done').create()).advance('go', temperature=0.5)

    requests = await turn.requests()

    assert [(request.number, request.model_settings) for request in requests] == [
        (1, '{"temperature": 0.5}'),
        (2, '{"temperature": 0.5}'),
    ]


def put(path: str, content: str) -> Answer:
    return call('write_file', path=path, content=content)


async def test_diff_shows_messages_files_and_usage(make: MakeAgent):
    agent = make(put('/a.txt', 'one\n'), 'done', call('read_file', path='/a.txt'), put('/a.txt', 'two\n'), 'done')
    root = await agent.create(backend=StateBackend({'/b.bin': b'\x00\x01'}))
    first = await root.advance('a')
    second = await first.advance('b')

    there, back = await first.diff(second), await second.diff(first)

    assert (there.messages_common, len(there.messages_added), len(there.messages_removed)) == (4, 6, 0)
    assert (len(back.messages_added), len(back.messages_removed)) == (0, 6)
    [file] = there.files
    assert (file.path, file.kind, file.size_before, file.size_after) == ('/a.txt', 'changed', 4, 4)
    assert file.diff == '--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n'
    assert (there.usage.requests, back.usage.requests) == (3, -3)
    assert str(there) == '6 messages more, 0 fewer\nchanged /a.txt'
    assert not await second.diff(second)
    [added] = (await root.diff(first)).files
    [removed] = (await first.diff(root)).files
    assert (added.kind, added.size_before, removed.kind, removed.size_after) == ('added', None, 'removed', None)


@pytest.mark.parametrize(
    ('before', 'after', 'shown'),
    [
        (
            b'a',
            b'\x00',
            '--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+\x00\n\\ No newline at end of file\n',
        ),
        (b'a', b'\xff\xfe', None),
        (
            b'a',
            b'b',
            '--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n',
        ),
        (b'a', b'x' * 1_000_001, None),
    ],
)
async def test_diff_shows_lines_of_text_files_only(
    make: MakeAgent, tmp_path: Path, before: bytes, after: bytes, shown: str | None
):
    (tmp_path / 'f').write_bytes(before)
    root = await make('one').create(backend=LocalBackend(tmp_path))
    (tmp_path / 'f').write_bytes(after)
    turn = await root.advance('go')

    [file] = (await root.diff(turn)).files

    assert (file.kind, file.diff, file.size_after) == ('changed', shown, len(after))


async def test_view_contains_the_files_of_its_version(make: MakeAgent, tmp_path: Path):
    agent = make(put('/a.txt', 'new'), 'done', call('read_file', path='/a.txt'), 'seen')
    (tmp_path / 'a.txt').write_text('old')
    root = await agent.create(backend=LocalBackend(tmp_path))
    deleted = make(put('/b.txt', 'b'), 'done')
    await (await deleted.load(root.id, backend=LocalBackend(tmp_path))).advance('elsewhere')

    turn = await root.advance('read', branch='second')

    assert (tmp_path / 'a.txt').read_text() == 'old'
    assert '/a.txt' in await turn.file_tree()
