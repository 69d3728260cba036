"""Threads are found by the history that a client sends."""

from __future__ import annotations

import json

import pytest
from pydantic_ai import BinaryContent

from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.server._threads import THREAD_FIELDS, Thread
from pydantic_deep.server.compat._dialogue import Dialogue, DialogueMessage
from pydantic_deep.server.compat._dialogue_threads import (
    find_thread,
    has_new_instructions,
    store_thread,
    thread_id,
)
from tests.server.compat.conftest import Wire, answered, openai

pytestmark = pytest.mark.anyio


async def version_of(threads: MemoryRepository[Thread], owner: str, agent: str, known: Dialogue) -> str | None:
    found = await find_thread(threads, owner, agent, known)
    return None if found is None else found.version_id


async def test_thread_is_found_by_its_history(wire: Wire) -> None:
    threads = MemoryRepository(Thread, fields=THREAD_FIELDS)
    first = wire([('user', 'Write it')])
    assert await find_thread(threads, 'o', 'a', first) is None

    await store_thread(threads, 'o', 'a', first, answer='I look.\n\nWritten.', version_id='v1')
    then = wire([('user', 'Write it'), ('assistant', 'I look. Written. '), ('user', 'More')])

    assert await version_of(threads, 'o', 'a', then) == 'v1'
    await store_thread(threads, 'o', 'a', then, answer='Done.', version_id='v2')
    last = wire([('user', 'Write it'), ('assistant', 'I look.Written.'), ('user', 'More'), ('assistant', 'Done.'), ('user', 'Bye')])  # fmt: skip
    assert await version_of(threads, 'o', 'a', last) == 'v2'


async def test_thread_of_another_owner_agent_history_or_session_is_not_found() -> None:
    threads = MemoryRepository(Thread, fields=THREAD_FIELDS)
    await store_thread(threads, 'o', 'a', openai([('user', 'Hi')]), answer='Yes.', version_id='v1')
    then = openai([('user', 'Hi'), ('assistant', 'Yes.'), ('user', 'More')])
    edited = openai([('user', 'Hi!'), ('assistant', 'Yes.'), ('user', 'More')])

    assert await version_of(threads, 'o', 'a', then) == 'v1'
    assert await find_thread(threads, 'p', 'a', then) is None
    assert await find_thread(threads, 'o', 'b', then) is None
    assert await find_thread(threads, 'o', 'a', edited) is None
    assert await find_thread(threads, 'o', 'a', then, session_id='s') is None


async def test_thread_after_decisions_is_found_by_the_joined_answers() -> None:
    """A message with decisions has no text, so the texts before and after the pause form one answer."""
    threads = MemoryRepository(Thread, fields=THREAD_FIELDS)
    paused = openai([], **answered('approve')[openai])
    await store_thread(threads, 'o', 'a', paused, answer='Written.', version_id='v2')

    request = answered('approve')[openai]
    request['messages'] += [{'role': 'assistant', 'content': 'Written.'}, {'role': 'user', 'content': 'More'}]

    assert await version_of(threads, 'o', 'a', openai([], **request)) == 'v2'


def test_files_are_distinguished_by_their_content() -> None:
    def with_file(data: bytes) -> str:
        said = [DialogueMessage(role='user', content=('Look', BinaryContent(data, media_type='image/png')))]
        return thread_id('o', 'a', Dialogue(messages=said))

    assert with_file(b'1') == with_file(b'1')
    assert with_file(b'1') != with_file(b'2')
    assert len(json.dumps(with_file(b'1'))) == 66


async def test_changed_system_text_finds_the_thread_and_is_detected() -> None:
    """Clients may insert the current time into the system text."""
    threads = MemoryRepository(Thread, fields=THREAD_FIELDS)
    first = Dialogue(system='It is 12:01.', prompt=('Hi',))
    await store_thread(threads, 'o', 'a', first, answer='Yes.', version_id='v1')
    said = [DialogueMessage(role='user', content=('Hi',)), DialogueMessage(role='assistant', content=('Yes.',))]
    then, later = (Dialogue(system=f'It is 12:0{minute}.', messages=said, prompt=('More',)) for minute in (1, 2))

    found = await find_thread(threads, 'o', 'a', later)

    assert found is not None
    assert not has_new_instructions(found, then)
    assert has_new_instructions(found, later)
