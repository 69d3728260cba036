"""What people pass is checked before anything is done with it: the same on every face."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import CachePoint, ModelRequest, TextContent, UserPromptPart

from pydantic_deep import Conversation, VersionedAgent, create_deep_agent, open_store, prompt
from pydantic_deep.audit import AuditRecord
from pydantic_deep.errors import DeepAgentError, ValidationError
from pydantic_deep.repository import MemoryRepository
from pydantic_deep.store import Store
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import ApprovalInbox

pytestmark = pytest.mark.anyio

EMPTY_PROMPTS: list[Any] = [
    '',
    ' \n\t',
    [],
    [''],
    [' ', TextContent(' ')],
    [CachePoint()],
    'a \ud83d b',
    ['\udc00'],
    None,
    5,
]
BLANK: list[Any] = ['', '  ', '\ud83d', 7]
WRONG_SETTINGS: list[tuple[str, Any]] = [
    ('temperature', 'hot'), ('temperature', -0.1), ('temperature', math.nan), ('temperature', True),
    ('max_tokens', -1), ('max_tokens', 0), ('max_tokens', 1.5), ('max_tokens', 10**30), ('max_tokens', '5'),
    ('timeout', 0), ('timeout', -1), ('timeout', 'long'), ('timeout', math.inf),
    ('top_p', 2), ('top_p', -1), ('seed', 1.5), ('seed', 'x'), ('presence_penalty', 'x'),
]  # fmt: skip
WRONG_NUMBERS: list[Any] = [-1, 10**30, -(10**30), 1.5, True, '5', None]


async def raised(action: Callable[[], Any]) -> str:
    """Return the `field` of the error of an action."""

    async def act() -> None:
        result = action()
        if isinstance(result, Awaitable):
            await cast('Awaitable[Any]', result)

    with pytest.raises(ValidationError) as error:
        await act()
    assert isinstance(error.value, DeepAgentError)
    assert len(str(error.value)) < 400
    return error.value.field


@pytest.fixture
def agent() -> Agent[Any, Any]:
    return Agent(ScriptedModel(), name='worker')


@pytest.mark.parametrize('words', EMPTY_PROMPTS)
async def test_a_prompt_says_something(agent: Agent[Any, Any], words: Any) -> None:
    """An empty or blank prompt, and one with half of a surrogate pair, is refused as `prompt` by versions, their
    streams, conversations and builders, before a model is asked or anything is stored.
    """
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        conversation = versioned.conversation(root.conversation_id)
        assert await raised(lambda: root.advance(words)) == 'prompt'
        assert await raised(lambda: root.advance_stream(words)) == 'prompt'
        assert await raised(lambda: conversation.advance(words)) == 'prompt'
        assert await raised(lambda: prompt(agent).user(words)) == 'prompt'
        assert await raised(lambda: prompt(versioned).request(words)) == 'prompt'
        assert await raised(lambda: Conversation(agent=agent).continuation.user(words)) == 'prompt'
        if words and isinstance(words, str | list):
            for handle in (Conversation(agent=agent), Conversation(agent=versioned)):
                handle.messages.append(ModelRequest([UserPromptPart(cast('Any', words))]))
                assert await raised(handle.run) == 'prompt'
        assert [version.kind for version in await store.versions()] == ['root']
        assert await store.runs() == []


@pytest.mark.parametrize('text', BLANK)
async def test_names_and_models_are_words(agent: Agent[Any, Any], text: Any) -> None:
    """Blank names, models and ids, and those that are no text, are refused by the name of the argument."""
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        assert await raised(lambda: versioned.create(name=text)) == 'name'
        assert await raised(lambda: versioned.create(conversation_id=text)) == 'conversation_id'
        assert await raised(lambda: root.with_metadata(name=text)) == 'name'
        assert await raised(lambda: root.advance('Go', branch=text)) == 'branch'
        assert await raised(lambda: create_deep_agent('test', name=text)) == 'name'
        assert await raised(lambda: prompt(agent, conversation_id=text)) == 'conversation_id'
        assert await raised(lambda: prompt(agent).instructions(text)) == 'instructions'
        assert await raised(lambda: prompt(agent).assistant(text)) == 'assistant'
        if isinstance(text, str):
            assert await raised(lambda: versioned.create(model=text)) == 'model'
            assert await raised(lambda: root.advance('Go', model=text)) == 'model'
            assert await raised(lambda: prompt(agent).model(text)) == 'model'
            assert await raised(lambda: prompt(text)) == 'model'
            assert await raised(lambda: create_deep_agent(text)) == 'model'


@pytest.mark.parametrize(('name', 'value'), WRONG_SETTINGS)
async def test_settings_are_numbers_within_bounds(agent: Agent[Any, Any], name: str, value: Any) -> None:
    """`temperature='hot'`, `max_tokens=-1`, `timeout=0` and the like are refused by the name of the setting."""
    settings: Any = {name: value}
    async with open_store('memory:') as store:
        versioned = VersionedAgent(agent, store)
        root = await versioned.create()
        assert await raised(lambda: versioned.create(model_settings=settings)) == name
        assert await raised(lambda: root.with_metadata(model_settings=settings)) == name
        assert await raised(lambda: root.advance('Go', **settings)) == name
        assert await raised(lambda: root.advance_stream('Go', **settings)) == name
        assert await raised(lambda: prompt(agent).settings(**settings)) == name
        assert await raised(lambda: create_deep_agent('test', model_settings=settings)) == name


async def test_what_is_right_is_taken() -> None:
    async with open_store('memory:') as store:
        versioned = VersionedAgent(Agent(ScriptedModel(then=lambda messages, info: 'Fine.')), store)
        settings: Any = {'temperature': 0, 'max_tokens': 1, 'timeout': 0.5, 'top_p': 1, 'seed': -3, 'thinking': 'high'}
        unset: Any = {'timeout': None}
        root = await versioned.create(name='a', model_settings=unset)
        assert (await root.advance('Go', **settings)).output == 'Fine.'
        picture = BinaryContent(b'\x89PNG', media_type='image/png')
        assert (await root.advance([picture])).output == 'Fine.'
        timeout: Any = httpx2.Timeout(5)
        assert await prompt(versioned.agent).settings(timeout=timeout).user([CachePoint(), 'Go']).prompt() == 'Fine.'


@pytest.fixture(params=['memory', 'sqlite'])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return 'memory:' if request.param == 'memory' else f'sqlite:///{tmp_path}/a.db'


@pytest.mark.parametrize('number', WRONG_NUMBERS)
async def test_pages_are_whole_numbers_that_every_database_takes(url: str, agent: Agent[Any, Any], number: Any) -> None:
    """A negative limit or offset, `10**30`, and what is no whole number, are refused above the engine, so the same on
    all: by the store, by versions, by the inbox and by repositories.
    """
    async with open_store(url) as store:
        versioned = VersionedAgent(agent, store)
        await versioned.create(name='a')
        lists: list[Callable[..., Any]] = [
            versioned.list, partial(versioned.find_by_name, 'a'), store.versions, store.conversations,
        ]  # fmt: skip
        for each in lists:
            assert await raised(lambda each=each: each(limit=number)) == 'limit'
            assert await raised(lambda each=each: each(offset=number)) == 'offset'
        limited: list[Callable[..., Any]] = [
            store.runs, store.approvals, store.orphans, ApprovalInbox(store).list, MemoryRepository(AuditRecord).list,
        ]  # fmt: skip
        for each in limited:
            assert await raised(lambda each=each: each(limit=number)) == 'limit'
        assert await versioned.list(limit=0) == await versioned.list(offset=2**63 - 1) == []
        assert len(await versioned.list(limit=2**63 - 1)) == 1
        await _unchanged(store)


async def _unchanged(store: Store) -> None:
    assert len(await store.versions()) == 1


async def test_a_number_that_python_does_not_write_is_refused() -> None:
    async with open_store('memory:') as store:
        assert await raised(lambda: store.versions(limit=10**5000)) == 'limit'
