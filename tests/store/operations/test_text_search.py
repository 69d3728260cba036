"""Conversations are found by the texts of their prompts and answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydantic_ai import BinaryContent
from pydantic_ai.messages import TextContent, UserContent

from pydantic_deep import VersionedAgent, create_deep_agent
from pydantic_deep._messages.loaded_skills import loaded_skill
from pydantic_deep.store import SqlStore, StoreCorruptedError
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.operations import _text_search
from pydantic_deep.testing import ScriptedModel, call

from .conftest import CountedEngine

pytestmark = pytest.mark.anyio

MEDIA = BinaryContent(b'bytes', media_type='image/png')
WRITE = call('write_file', path='/secret.txt', content='rhubarb')


async def advance(store: SqlStore, prompt: str | Sequence[UserContent], *script: object) -> str:
    """Return the conversation of one turn."""
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*script)), store)  # type: ignore[arg-type]
    return (await (await agent.create()).advance(prompt)).conversation_id


async def test_prompts_and_answers_are_found_in_any_case_by_one_statement(store: SqlStore) -> None:
    """One statement searches all messages of a page of conversations; contents of tools and media do not count."""
    ids = {
        'tea': await advance(store, 'Buy TEA', 'Done: "Assam".'),
        'street': await advance(
            store, ['Die Straße\nist lang', MEDIA, TextContent(content='Ada', metadata={'a': 1})], 'Ja.'
        ),
        'file': await advance(store, 'Write it', WRITE, 'Wrote it.'),
    }
    found: dict[str, set[str]] = {}
    for text in ('tea', '"ASSAM"', 'STRASSE\nIST', 'ada', 'wrote', 'image/png', 'rhubarb', 'user-prompt'):
        CountedEngine.take()
        found[text] = await store.conversations_with(text, ids.values())
        assert CountedEngine.take() == 1
    names = {text: {name for name, id in ids.items() if id in matching} for text, matching in found.items()}
    assert names == {
        'tea': {'tea'},
        '"ASSAM"': {'tea'},
        'STRASSE\nIST': {'street'},
        'ada': {'street'},
        'wrote': {'file'},
        'image/png': set(),
        'rhubarb': set(),
        'user-prompt': set(),
    }


async def test_prompts_with_loaded_skills_are_found_as_they_were_typed(store: SqlStore) -> None:
    """A prompt that was typed with `/NAME` is stored with the text of the skill, which the person has not typed. It is
    found by the name, across the name and the rest of the prompt, and not by the text of the skill."""
    pdf, tables = loaded_skill('pdf', 'Read "every" page.'), loaded_skill('tables', 'Find the columns.')
    ids = {
        'one': await advance(store, f'{pdf}\n\nRead invoice.pdf', 'Done.'),
        'two': await advance(store, [f'{pdf}\n\n{tables}\n\nSum "them" up', MEDIA], 'Done.'),
        'none': await advance(store, 'What is a pdf?', f'{tables}\n\nDone.'),
    }
    found = {
        text: {name for name, id in ids.items() if id in await store.conversations_with(text, ids.values())}
        for text in ('/PDF', '/pdf read', '/pdf /tables sum "them"', 'every', 'skill name', '/tables done', 'columns')
    }
    assert found == {
        '/PDF': {'one', 'two'},
        '/pdf read': {'one'},
        '/pdf /tables sum "them"': {'two'},
        'every': set(),
        'skill name': {'none'},  # an answer is what the model wrote
        '/tables done': set(),
        'columns': {'none'},
    }


async def test_only_the_given_conversations_are_searched(store: SqlStore) -> None:
    """Those of other owners are not read; without conversations, nothing is."""
    ada, bob = await advance(store, 'tea', 'x'), await advance(store, 'tea', 'x')
    assert await store.conversations_with('tea', [ada]) == {ada}
    CountedEngine.take()
    assert await store.conversations_with('tea', []) == set()
    assert CountedEngine.take() == 0
    assert await store.conversations_with('tea', [bob, 'f' * 32]) == {bob}


async def test_long_conversations_are_read_in_pages(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page continues after the last message of the one before, on every branch."""
    monkeypatch.setattr(_text_search, 'PAGE', 2)
    agent = VersionedAgent(create_deep_agent(ScriptedModel('1', '2', '3')), store)
    first = await (await agent.create()).advance('One')
    await first.advance('Two')
    await first.advance('Three')  # a second branch
    for text in ('one', 'two', 'three', '3'):
        assert await store.conversations_with(text, [first.conversation_id]) == {first.conversation_id}
    CountedEngine.take()
    assert await store.conversations_with('four', [first.conversation_id]) == set()
    assert CountedEngine.take() == 4  # six messages, and the end


async def test_damaged_message_is_an_error_with_its_id(store: SqlStore) -> None:
    """A message that is not one of pydantic-ai is damage, and not a conversation without the text."""
    dialogue = Dialogue(store)
    await dialogue.add(await dialogue.begin(), b'"tea"')
    with pytest.raises(StoreCorruptedError, match='message'):
        await store.conversations_with('tea', [dialogue.id])
