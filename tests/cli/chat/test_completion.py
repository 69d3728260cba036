"""Completion at the prompt of the chat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from pydantic_ai import CancellationToken
from pydantic_ai.models.test import TestModel

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import deny_all
from pydantic_deep.cli.chat._chat import VERBS
from pydantic_deep.cli.chat._completion import ChatCompleter, ListNames, Name, model_names, version_names
from pydantic_deep.cli.history._changes import check_out
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._runner import TurnObserver, run_turn
from pydantic_deep.testing import ScriptedModel

pytestmark = pytest.mark.anyio


def names(*texts: str) -> ListNames:
    async def list_names() -> Iterable[Name]:
        return [Name(text, f'about {text}') for text in texts]

    return list_names


async def complete(typed: str, work: Path) -> list[str]:
    """Return the whole lines that completion offers."""
    completer = ChatCompleter(
        VERBS, work, skills=names('haiku'), versions=names('main', 'HEAD', '01234567'), models=names('test', 'openai:a')
    )
    document = Document(typed)
    event = CompleteEvent(completion_requested=True)
    assert list(completer.get_completions(document, event)) == []
    found = [completion async for completion in completer.get_completions_async(document, event)]
    return [f'{typed[: len(typed) + completion.start_position]}{completion.text}' for completion in found]


@pytest.mark.parametrize(
    ('typed', 'lines'),
    [
        ('/re', ['/rewind', '/resume']),
        ('/ex', []),
        ('/h', ['/help', '/haiku']),
        ('/switch m', ['/switch main']),
        ('/switch ', ['/switch main', '/switch HEAD', '/switch 01234567']),
        ('/switch main m', []),
        ('/diff main H', ['/diff main HEAD']),
        ('/model o', ['/model openai:a']),
        ('/todos ', []),
        ('/haiku m', []),
        ('re', []),
        ('Say /re', []),
    ],
)
async def test_verbs_skills_and_their_arguments_are_completed(work: Path, typed: str, lines: list[str]) -> None:
    """A line with a slash is completed by verbs and skills, then by the names that the verb takes."""
    assert await complete(typed, work) == lines


@pytest.fixture
def files(work: Path) -> Path:
    """A directory with files, hidden files and files with spaces, and a file beside it."""
    (work.parent / 'secret.txt').write_text('')
    for name in ('src/main.py', 'src/two words.py', '.env', 'bad\nname', 'plum.txt'):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text('')
    return work


@pytest.mark.parametrize(
    ('typed', 'lines'),
    [
        ('See @p', ['See @plum.txt', 'See @poem.txt']),
        ('@', ['@plum.txt', '@poem.txt', '@src/']),
        ('@/po', ['@/poem.txt']),
        ('@.', ['@.env']),
        ('@src/', ['@src/main.py', '@"src/two words.py"']),
        ('@"src/t', ['@"src/two words.py"']),
        ('@"s', ['@"src/']),
        ('@src/two', ['@"src/two words.py"']),
        ('/model @s', ['/model @src/']),
        ('a@p', []),
        ('@../', []),
        ('@missing/', []),
    ],
)
async def test_files_of_the_directory_are_completed(files: Path, typed: str, lines: list[str]) -> None:
    """A mention is completed by files below the directory: no hidden ones unless asked for, none outside."""
    assert await complete(typed, files) == lines


async def test_branches_and_versions_are_names(make_conversation: Callable[..., Conversation]) -> None:
    """Branches come first, then HEAD, then the newest versions with their prompts."""
    conversation = make_conversation(ScriptedModel('One.', 'Two.'))
    reader = VersionReader(revisions=conversation.revisions)
    assert await version_names(reader) == []
    observer = TurnObserver(show=lambda event: None, decide=deny_all)
    await run_turn(conversation, 'First', stop=CancellationToken(), observer=observer)
    await run_turn(conversation, 'Second', branch='side', stop=CancellationToken(), observer=observer)
    found = await version_names(reader)
    assert [(name.text, name.about) for name in found[:4]] == [
        ('side', 'Second'),
        ('main', 'First'),
        ('HEAD', 'Second'),
        ('HEAD~', ''),
    ]
    assert [name.about for name in found[4:]] == ['Second', 'First', 'a conversation begins']


async def test_a_branch_is_that_of_the_current_conversation(make_conversation: Callable[..., Conversation]) -> None:
    """Of a name that several conversations have, the completion shows the version that it refers to."""
    conversation = make_conversation(ScriptedModel('One.', 'Two.'))
    observer = TurnObserver(show=lambda event: None, decide=deny_all)
    await run_turn(conversation, 'First', stop=CancellationToken(), observer=observer)
    first = conversation.tip
    conversation.reset()
    await run_turn(conversation, 'Second', stop=CancellationToken(), observer=observer)
    assert first is not None
    reader = VersionReader(revisions=conversation.revisions)
    await check_out(reader, first.record, force=False)
    found = await version_names(reader)
    assert (found[0].text, found[0].about) == ('main', 'First')


def test_usable_models_are_names() -> None:
    """The models of the program come first, then those of providers whose key is set."""
    environment = Environment(models={'house': TestModel()}, variables={'OPENAI_API_KEY': 'x'})
    found = [name.text for name in model_names(environment)]
    assert found[0] == 'house'
    assert any(name.startswith('openai:') for name in found)
    assert not any(name.startswith('anthropic:') for name in found)
