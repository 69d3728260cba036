"""What a turn changed in files that programs of the host run or obey, and that no version holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ToolCallPart

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.approvals import Approve, render_approval
from pydantic_deep.store._store import SqlStore
from pydantic_deep.store.memory import MemoryEngine
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import ProtectedFilesWarning, VersionedAgent
from pydantic_deep_backends import CommandResult, ProtectedChange

pytestmark = pytest.mark.anyio

EVIL = 'git init -q . && git config core.fsmonitor evil'

CONFIG = ProtectedChange(path='/.git/config', change='added')


@dataclass
class Mine:
    """Deps of somebody else."""

    backend: LocalBackend


def execute(command: str) -> ToolCallPart:
    return ToolCallPart('execute', {'command': command})


def write(path: str) -> ToolCallPart:
    return ToolCallPart('write_file', {'path': path, 'content': 'x'}, tool_call_id='w')


def versioned(*steps: Any, interrupt_on: Any = None) -> VersionedAgent[Any, Any]:
    agent = create_deep_agent(ScriptedModel(*steps), interrupt_on=interrupt_on)
    return VersionedAgent(agent, SqlStore(MemoryEngine.open()))


async def test_a_turn_says_what_its_commands_changed_in_paths_that_no_version_holds(tmp_path: Path):
    """`git init` with `core.fsmonitor` set: no diff shows it, so the version says it, loaded from the store too, and
    the next turn, which changes nothing, does not."""
    agent = versioned(execute(EVIL), 'done', 'again')
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    with pytest.warns(ProtectedFilesWarning, match=r'/\.git/config \(added\)'):
        version = await root.advance('go')
    assert CONFIG in version.protected_changes
    assert (await agent.load(version.id)).protected_changes == version.protected_changes
    assert root.protected_changes == ()
    assert (await version.advance('more')).protected_changes == ()


async def test_what_commands_changed_is_shown_before_anything_else_is_approved(tmp_path: Path):
    """The approval that comes after the command names what it made, and the turn says it over the pause."""
    agent = versioned(execute(EVIL), write('a.txt'), 'done', interrupt_on={'write_file': True})
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    with pytest.warns(ProtectedFilesWarning):
        paused = await root.advance('go')
    [pending] = paused.pending
    assert 'Commands of this run changed files that programs of this machine run or obey' in render_approval(pending)
    assert '/.git/config (added)' in render_approval(pending)
    assert '+x' in render_approval(pending)
    assert CONFIG in paused.protected_changes
    with pytest.warns(ProtectedFilesWarning):
        done = await paused.resume({pending.id: Approve()})
    assert (tmp_path / 'a.txt').read_text() == 'x'
    assert CONFIG in done.protected_changes


async def test_many_changes_are_counted(tmp_path: Path):
    many = 'for i in 1 2 3 4 5 6 7 8 9 10 11 12; do mkdir $i; touch $i/.envrc; done'
    agent = versioned(execute(many), write('a.txt'), 'done', interrupt_on={'write_file': True})
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    with pytest.warns(ProtectedFilesWarning, match='and 2 more'):
        paused = await root.advance('go')
    assert len(paused.protected_changes) == 12
    assert ' and 2 more.' in render_approval(paused.pending[0])


async def test_a_turn_on_a_view_says_what_stays_of_it(tmp_path: Path):
    """A view has no repository, and is gone after the turn: what it made of one is gone too, and not told."""
    agent = versioned('one', execute(f'{EVIL}; echo x > .envrc'), 'two')
    root = await agent.create(backend=LocalBackend(tmp_path, allow_commands=True))
    await root.advance('first')
    with pytest.warns(ProtectedFilesWarning):
        other = await root.advance('second')
    assert other.protected_changes == (ProtectedChange(path='/.envrc', change='added'),)


async def test_without_commands_and_without_a_directory_nothing_is_looked_at(tmp_path: Path):
    agent = versioned(write('a'), 'done')
    version = await (await agent.create(backend=LocalBackend(tmp_path))).advance('go')
    assert version.protected_changes == ()

    class Gone(LocalBackend):
        async def run(self, *args: Any, **kwargs: Any) -> CommandResult:
            raise NotImplementedError

        async def protected_files(self) -> dict[str, str]:
            raise OSError('away')

    agent = versioned('done')
    version = await (await agent.create(backend=Gone(tmp_path))).advance('go')
    assert version.protected_changes == ()


async def test_deps_that_are_not_ours_keep_what_changed(tmp_path: Path):
    backend = LocalBackend(tmp_path, allow_commands=True)
    plain = Agent(ScriptedModel(ToolCallPart('sneak', {}), 'done', 'more'), deps_type=Mine)

    @plain.tool
    async def sneak(ctx: RunContext[Mine]) -> str:
        (tmp_path / '.envrc').write_text('x')
        return 'done'

    agent = VersionedAgent(plain, SqlStore(MemoryEngine.open()), make_deps=lambda: Mine(backend))
    root = await agent.create()
    with pytest.warns(ProtectedFilesWarning):
        version = await root.advance('go')
    assert version.protected_changes == (ProtectedChange(path='/.envrc', change='added'),)
    assert version.todos == []
    assert (await version.advance('more')).protected_changes == ()
