"""`ProjectContext`: which instructions the model receives, when, and what a store, a replay and a summary do with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import CompactionPart, UserPromptPart
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep import Approve, DeepAgentDeps, Subagent, VersionedAgent, create_deep_agent
from pydantic_deep.project_context import ProjectContext
from pydantic_deep.project_context._files import MAX_BYTES, ContextFile, find_above, render
from pydantic_deep.store import open_store
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, SeenRequest, call
from pydantic_deep_backends import BackendProtocol, FileEntry, LocalBackend, StateBackend
from tests._messages.notices import notices_in

pytestmark = pytest.mark.anyio

HEADING = 'Instructions of the project:\n'


def instructions_in(request: SeenRequest) -> list[str]:
    return [text.removeprefix(HEADING) for text in notices_in(request) if text.startswith(HEADING)]


def shown(request: SeenRequest) -> str:
    """Return the instructions, system prompts and summaries of a request."""
    parts = [part for message in request.messages for part in message.parts]
    summaries = [str(part.content) for part in parts if isinstance(part, CompactionPart)]
    return '\n'.join([*notices_in(request), *summaries])


async def instructions_for(backend: BackendProtocol, **options: object) -> list[str]:
    model = ScriptedModel('done')
    agent = Agent(model, deps_type=DeepAgentDeps, capabilities=[ProjectContext(**options)])  # type: ignore[arg-type]
    await agent.run('go', deps=DeepAgentDeps(backend=backend))
    return instructions_in(model.requests[0])


class Below(StateBackend):
    """Files with a working directory below the root."""

    async def working_dir(self) -> str:
        return '/repo/app'


@pytest.mark.parametrize(
    ('files', 'expected'),
    [
        ({}, []),
        ({'/repo/app/AGENTS.md': ' \n'}, []),
        ({'/repo/app/AGENTS.md/x': 'a directory'}, []),
        ({'/repo/app/AGENTS.md': 'Use tabs.\n'}, ['AGENTS.md:\nUse tabs.']),
        ({'/repo/app/CLAUDE.md': 'Use tabs.'}, ['CLAUDE.md:\nUse tabs.']),
        ({'/repo/app/AGENTS.md': 'One.', '/repo/app/CLAUDE.md': 'Two.'}, ['AGENTS.md:\nOne.']),
        (
            {'/AGENTS.md': 'Outer.', '/repo/CLAUDE.md': 'Middle.', '/repo/app/AGENTS.md': 'Inner.', '/repo/b/AGENTS.md': 'No.'},
            ['../../AGENTS.md:\nOuter.\n\n../CLAUDE.md:\nMiddle.\n\nAGENTS.md:\nInner.'],
        ),
    ],
)  # fmt: skip
async def test_files_are_read_from_the_root_down_to_the_working_directory(
    files: dict[str, str], expected: list[str]
) -> None:
    assert await instructions_for(Below(files)) == expected


async def test_names_of_files_can_be_chosen() -> None:
    files = {'/repo/app/AGENTS.md': 'One.', '/repo/app/GEMINI.md': 'Two.'}
    assert await instructions_for(Below(files), filenames=['GEMINI.md']) == ['GEMINI.md:\nTwo.']


async def test_instructions_come_before_the_prompt_of_the_first_request() -> None:
    model = ScriptedModel(call('ls'), 'done')
    agent = create_deep_agent(model, capabilities=[ProjectContext()])
    await agent.run('go', deps=DeepAgentDeps(backend=StateBackend({'/AGENTS.md': 'Use tabs.'})))
    first, second = model.requests
    assert [type(part) for part in first.messages[0].parts][-1] is UserPromptPart
    assert second.messages[0] == first.messages[0]
    assert instructions_in(second) == ['AGENTS.md:\nUse tabs.']


async def test_directories_that_the_backend_refuses_have_no_instructions(tmp_path: Path) -> None:
    inner = tmp_path / 'inner'
    inner.mkdir()
    (tmp_path / 'AGENTS.md').write_text('Outside.')
    (inner / 'CLAUDE.md').symlink_to(tmp_path / 'AGENTS.md')
    assert await instructions_for(LocalBackend(inner)) == []


async def test_file_that_is_too_large_is_named_with_its_size() -> None:
    class Large(StateBackend):
        async def stat(self, path: str) -> FileEntry:
            return FileEntry(name='AGENTS.md', path=path, is_dir=False, size=MAX_BYTES + 1)

    assert await instructions_for(Large()) == ['AGENTS.md:\n… 1,048,577 bytes']


@pytest.mark.parametrize(
    ('max_chars', 'expected'),
    [
        (100, '../AGENTS.md:\none\ntwo\n\nAGENTS.md:\nthree\nfour'),
        (16, '../AGENTS.md:\none\n… 3 more characters\n\nAGENTS.md:\nthree\nfour'),
        (3, '../AGENTS.md:\n… 7 more characters\n\nAGENTS.md:\nthr… 7 more characters'),
        (9, '../AGENTS.md:\n… 7 more characters\n\nAGENTS.md:\nthree\n… 4 more characters'),
    ],
)
def test_inner_files_have_precedence_within_the_limit(max_chars: int, expected: str) -> None:
    files = [
        ContextFile(path='../AGENTS.md', text='one\ntwo'),
        ContextFile(path='empty/AGENTS.md', text=''),
        ContextFile(path='AGENTS.md', text='three\nfour'),
    ]
    assert render(files, max_chars) == expected


def test_path_in_a_notice_is_escaped() -> None:
    assert render([ContextFile(path='a\nb/AGENTS.md', text='x')], 10) == 'a\\nb/AGENTS.md:\nx'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with instructions above it, at its root and below."""
    repository = tmp_path / 'repository'
    (repository / 'packages' / 'app').mkdir(parents=True)
    (repository / '.git').mkdir()
    (tmp_path / 'AGENTS.md').write_text('Outside.')
    (repository / 'AGENTS.md').write_text('Root.')
    (repository / 'packages' / 'CLAUDE.md').write_text('Packages.')
    (repository / 'packages' / 'app' / 'AGENTS.md').write_text('App.')
    return repository


async def test_files_above_a_directory_of_this_machine_are_read_up_to_its_repository(repository: Path) -> None:
    app = repository / 'packages' / 'app'
    assert await instructions_for(LocalBackend(app), host_directory=app) == [
        '../../AGENTS.md:\nRoot.\n\n../CLAUDE.md:\nPackages.\n\nAGENTS.md:\nApp.'
    ]
    assert await instructions_for(LocalBackend(repository), host_directory=repository) == ['AGENTS.md:\nRoot.']


def test_directory_without_a_repository_has_nothing_above_it(repository: Path) -> None:
    (repository / '.git').rmdir()
    assert find_above(repository / 'packages' / 'app', ['AGENTS.md', 'CLAUDE.md']) == []


def test_link_out_of_the_repository_and_unreadable_files_are_ignored(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = repository / 'packages' / 'app'
    (repository / 'packages' / 'AGENTS.md').symlink_to(repository.parent / 'AGENTS.md')
    assert [file.text for file in find_above(app, ['AGENTS.md'])] == ['Root.']

    def fail(path: Path) -> bytes:
        raise PermissionError(13, 'Permission denied', str(path))

    monkeypatch.setattr(Path, 'read_bytes', fail)
    assert find_above(app, ['AGENTS.md']) == []


def test_directory_that_may_not_be_searched_is_no_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> bool:
        raise PermissionError(13, 'Permission denied', str(path))

    monkeypatch.setattr(Path, 'exists', fail)
    assert find_above(repository / 'packages' / 'app', ['AGENTS.md']) == []


def test_large_file_above_is_named_with_its_size(repository: Path) -> None:
    (repository / 'AGENTS.md').write_bytes(b'x' * (MAX_BYTES + 1))
    [file] = find_above(repository / 'packages', ['AGENTS.md'])
    assert file.text == '… 1,048,577 bytes'


async def test_changed_instructions_are_sent_with_the_next_prompt_and_the_prefix_stays() -> None:
    model = ScriptedModel('one', 'two', 'three', 'four')
    agent = create_deep_agent(model, capabilities=[ProjectContext()])
    deps = DeepAgentDeps(backend=StateBackend({'/AGENTS.md': 'Use tabs.'}))
    history = (await agent.run('go', deps=deps)).all_messages()
    history = (await agent.run('more', deps=deps, message_history=history)).all_messages()
    await deps.backend.write_bytes('/AGENTS.md', b'Use spaces.')
    history = (await agent.run('more', deps=deps, message_history=history)).all_messages()
    await deps.backend.remove('/AGENTS.md')
    await agent.run('more', deps=deps, message_history=history)
    assert [instructions_in(request) for request in model.requests] == [
        ['AGENTS.md:\nUse tabs.'],
        ['AGENTS.md:\nUse tabs.'],
        ['AGENTS.md:\nUse tabs.', 'AGENTS.md:\nUse spaces.'],
        ['AGENTS.md:\nUse tabs.', 'AGENTS.md:\nUse spaces.', 'none'],
    ]
    for before, after in zip(model.requests, model.requests[1:], strict=False):
        assert after.messages[: len(before.messages)] == before.messages


async def test_turn_that_is_resumed_does_not_receive_them_again() -> None:
    model = ScriptedModel(call('write_file', path='a.txt', content='x'), 'done')
    async with open_store('memory:') as store:
        deep = create_deep_agent(model, interrupt_on={'write_file': True}, capabilities=[ProjectContext()])
        agent = VersionedAgent(deep, store)
        deps = DeepAgentDeps(backend=StateBackend({'/AGENTS.md': 'Use tabs.'}))
        paused = await (await agent.create(deps=deps)).advance('go')
        await deps.backend.write_bytes('/AGENTS.md', b'Use spaces.')
        done = await paused.resume({paused.pending[0].id: Approve()})
        assert done.output == 'done'
        assert (await done.replay()).difference is None
    assert instructions_in(model.requests[-1]) == ['AGENTS.md:\nUse tabs.']


async def test_version_replays_with_the_instructions_that_it_had(tmp_path: Path) -> None:
    (tmp_path / 'AGENTS.md').write_text('Use tabs.')
    model = ScriptedModel('one', 'two')
    async with open_store('memory:') as store:
        agent = VersionedAgent(create_deep_agent(model, capabilities=[ProjectContext()]), store)
        root = await agent.create(deps=DeepAgentDeps(backend=LocalBackend(tmp_path)))
        first = await root.advance('go')
        (tmp_path / 'AGENTS.md').write_text('Use spaces.')
        second = await first.advance('more')
        (tmp_path / 'AGENTS.md').unlink()
        for version in (first, second):
            assert (await version.replay()).difference is None
        branch = await first.advance('other', model=ScriptedModel('three'))
    assert instructions_in(model.requests[1]) == ['AGENTS.md:\nUse tabs.', 'AGENTS.md:\nUse spaces.']
    assert branch.output == 'three'


async def test_instructions_remain_once_when_a_summary_replaces_the_history() -> None:
    """Those of the first message remain there; later ones are in the summary, and are not sent again."""
    calls = [call('write_file', path='a.txt', content=str(number) * 500) for number in range(8)]
    model = ScriptedModel(*calls, 'done', *calls, 'again', 'last')
    summarization = Summarization(trigger=Messages(10), keep=Messages(4), summarizer=ScriptedModel(*['Short.'] * 9))
    agent = create_deep_agent(model, capabilities=[ProjectContext(), summarization])
    deps = DeepAgentDeps(backend=StateBackend({'/AGENTS.md': 'Use tabs.'}))
    history = (await agent.run('go', deps=deps)).all_messages()
    assert shown(model.requests[8]).count('Use tabs.') == 1
    await deps.backend.write_bytes('/AGENTS.md', b'Use spaces.')
    history = (await agent.run('more', deps=deps, message_history=history)).all_messages()
    await agent.run('end', deps=deps, message_history=history)
    for request in model.requests[-2:]:
        first = request.messages[0]
        [summary] = [part for part in first.parts if isinstance(part, CompactionPart)]
        assert (summary.content or '').endswith('Instructions of the project:\nAGENTS.md:\nUse spaces.')
        assert shown(request).count('Use spaces.') == 1


async def test_subagent_receives_the_instructions() -> None:
    child = ScriptedModel('ok')
    agent = create_deep_agent(
        ScriptedModel(call('task', subagent='worker', description='go'), 'done'),
        subagents=[Subagent('worker', 'Works.', instructions='Work.', model=child)],
        capabilities=[ProjectContext()],
    )
    await agent.run('go', deps=DeepAgentDeps(backend=StateBackend({'/AGENTS.md': 'Use tabs.'})))
    assert instructions_in(child.requests[0]) == ['AGENTS.md:\nUse tabs.']


@pytest.mark.parametrize('name', ['AGENTS.md', 'CLAUDE.md'])
async def test_agent_cannot_change_its_instructions_by_itself(name: str) -> None:
    model = ScriptedModel(call('write_file', path=name, content='Obey.'), 'done')
    backend = StateBackend({'/a.txt': ''})
    await create_deep_agent(model, capabilities=[ProjectContext()]).run('go', deps=DeepAgentDeps(backend=backend))
    assert not await backend.exists(f'/{name}')


async def test_workspace_of_the_run_is_read(tmp_path: Path) -> None:
    (tmp_path / 'AGENTS.md').write_text('Use tabs.')
    model = ScriptedModel('done')
    agent = Agent(model, capabilities=[ProjectContext()])
    await agent.run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert instructions_in(model.requests[0]) == ['AGENTS.md:\nUse tabs.']


async def test_run_without_files_is_refused() -> None:
    with pytest.raises(UserError, match='`ProjectContext` has no files to read'):
        await Agent(ScriptedModel('done'), capabilities=[ProjectContext()]).run('go')


@pytest.mark.parametrize(
    ('options', 'error', 'message'),
    [
        ({'filenames': 'AGENTS.md'}, TypeError, 'Pass a list'),
        ({'filenames': []}, ValueError, 'Pass names of files'),
        ({'filenames': ['docs/AGENTS.md']}, ValueError, 'without directories'),
        ({'max_chars': 0}, ValueError, '`max_chars` is 0'),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ProjectContext(**options)  # type: ignore[arg-type]
