"""Skills in the files of a run, and their protection against changes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability, Toolset
from pydantic_ai.exceptions import UserError

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.extensions import SupportsProtectedPaths, find_capabilities
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.skills import BackendSkills, Skill, SkillDirectory, Skills
from pydantic_deep.skills import _backend as backend_scan
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import BackendProtocol, CompositeBackend, LocalBackend, OverlayBackend, StateBackend
from pydantic_deep_backends.sandbox import SandboxBackend

from .conftest import Deps, Play

pytestmark = pytest.mark.anyio

DOCUMENT = b'---\nname: pdf\ndescription: Use this skill when PDF.\n---\nFill it.'


async def files(**contents: bytes) -> StateBackend:
    backend = StateBackend()
    for path, data in contents.items():
        await backend.write_bytes(path, data)
    return backend


async def found(backend: BackendProtocol) -> tuple[list[str], list[str]]:
    """Return the names of the skills in `/skills`, and the codes of the diagnostics."""
    scan = backend_scan.BackendScan(backend=backend, source=BackendSkills('/skills', trusted=True))
    await scan.run()
    return [skill.name for skill in scan.skills], [diagnostic.code for diagnostic in scan.diagnostics]


async def test_backend_skills_are_found_loaded_and_read(play: Play) -> None:
    backend = await files(**{'/skills/pdf/SKILL.md': DOCUMENT, '/skills/pdf/a.md': b'A', '/secret': b'SECRET'})
    assert await play(
        [BackendSkills('skills', trusted=True)],
        call('load_skill', name='pdf'),
        call('load_skill', name='pdf', file='a.md'),
        call('load_skill', name='pdf', file='/skills/pdf/a.md'),
        call('load_skill', name='pdf', file='/secret'),
        deps=Deps(backend),
    ) == [
        'Fill it.\n\n[Files in /skills/pdf: a.md]',
        'A',
        'A',
        "retried: /secret is not a file of the skill 'pdf'.",
    ]


async def test_backend_skills_use_the_backend_of_deep_agent_deps() -> None:
    backend = await files(**{'/skills/pdf/SKILL.md': DOCUMENT})
    model = ScriptedModel(call('load_skill', name='pdf'), 'done')
    agent = create_deep_agent(model, capabilities=[Skills([BackendSkills('/skills', trusted=True)])])
    await agent.run('go', deps=DeepAgentDeps(backend=backend))
    assert str(model.requests[-1].tool_returns[0].content).startswith('Fill it.')
    model = ScriptedModel('done')
    await agent.run('go', model=model, deps=cast('DeepAgentDeps', None))
    assert 'load_skill' not in [tool.name for tool in model.requests[0].parameters.function_tools]


async def test_users_do_not_see_the_backend_skills_of_others() -> None:
    agent = Agent(capabilities=[Skills([BackendSkills('/skills', trusted=True)])])
    model = ScriptedModel('one', 'two')
    await agent.run('go', model=model, deps=Deps(await files(**{'/skills/pdf/SKILL.md': DOCUMENT})))
    await agent.run('go', model=model, deps=Deps(StateBackend()))
    assert [request.instructions is None for request in model.requests] == [False, True]


async def test_untrusted_backend_skills_are_only_logged(caplog: pytest.LogCaptureFixture, play: Play) -> None:
    caplog.set_level(logging.INFO, 'pydantic_deep')
    backend = await files(**{'/skills/pdf/SKILL.md': DOCUMENT})
    assert await play([BackendSkills('/skills')], deps=Deps(backend)) == []
    assert [record.getMessage().rpartition('[')[2] for record in caplog.records] == ['untrusted]']


async def test_run_without_a_backend_is_refused(play: Play) -> None:
    with pytest.raises(UserError, match='has no backend to scan'):
        await play([BackendSkills('/skills')])


async def test_unchanged_backend_skill_is_not_parsed_again(play: Play) -> None:
    backend = await files(**{'/skills/pdf/SKILL.md': DOCUMENT})
    backend_scan.parse_contents.cache_clear()
    for _ in range(3):
        await play([BackendSkills('/skills', trusted=True)], deps=Deps(backend))
    assert backend_scan.parse_contents.cache_info().misses == 1


async def test_invalid_skills_do_not_hide_others(tmp_path: Path) -> None:
    root = tmp_path / 'skills'
    for name in ('bad', 'dir', 'fifo', 'good', 'huge', 'link', 'none'):
        (root / name).mkdir(parents=True)
    (root / 'good/SKILL.md').write_bytes(DOCUMENT)
    (root / 'bad/SKILL.md').write_text('nothing')
    (root / 'dir/SKILL.md').mkdir()
    os.mkfifo(root / 'fifo/SKILL.md')
    (root / 'huge/SKILL.md').write_text('x' * 1_100_000)
    (tmp_path / 'other.md').write_bytes(DOCUMENT)
    (root / 'link/SKILL.md').symlink_to('../../other.md')
    (root / 'file').touch()
    names, codes = await found(LocalBackend(tmp_path))
    assert names == ['pdf']
    assert codes == [
        'no-frontmatter',
        'not-a-file',
        'unreadable',
        'name-differs',
        'too-large',
        'link-outside',
        'no-skill-file',
    ]


async def test_a_file_is_reported_and_a_missing_directory_is_not() -> None:
    assert await found(await files(**{'/skills': b'a file'})) == ([], ['unreadable'])
    assert await found(StateBackend()) == ([], [])


async def test_number_of_scanned_backend_skills_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend_scan, 'MAX_SKILLS', 1)
    backend = await files(**{f'/skills/{name}/SKILL.md': DOCUMENT for name in ('pdf', 'xlsx')})
    assert await found(backend) == (['pdf'], ['too-many'])


def protected(seen: list[tuple[str, ...]]) -> Callable[[RunContext[object]], str]:
    """Instructions that record the protected paths."""

    def note(ctx: RunContext[object]) -> str:
        seen.append(
            tuple(
                path
                for capability in find_capabilities(ctx, SupportsProtectedPaths)
                for path in capability.protected_paths
            )
        )
        return ''

    return note


class TestProtection:
    async def paths(self, skills: Skills, backend: object) -> tuple[str, ...]:
        seen: list[tuple[str, ...]] = []
        agent = Agent(ScriptedModel('done'), capabilities=[skills], instructions=protected(seen), deps_type=Deps)
        await agent.run('go', deps=Deps(backend))
        return seen[0]

    async def test_skill_directories_are_protected_by_canonical_path(self, tmp_path: Path) -> None:
        (tmp_path / 'real').mkdir()
        (tmp_path / 'skills').symlink_to('real')
        in_backend = Skills([BackendSkills('skills'), BackendSkills('none'), BackendSkills('a\0b')])
        assert await self.paths(in_backend, LocalBackend(tmp_path)) == ('/real', '/none')
        in_code = Skill('pdf', 'x', body='x', directory=tmp_path / 'skills')
        bundled = SkillDirectory('~/none', is_required=False)
        assert await self.paths(Skills([in_code, tmp_path, bundled]), LocalBackend(tmp_path)) == ('/', '/real')
        assert await self.paths(Skills([in_code]), SandboxBackend(tmp_path)) == ('/workspace/real',)
        composite = CompositeBackend(StateBackend(), {'/a': LocalBackend(tmp_path), '/b': StateBackend()})
        assert await self.paths(Skills([in_code]), composite) == ('/a/real',)
        assert await self.paths(Skills([in_code]), OverlayBackend(LocalBackend(tmp_path))) == ('/real',)

    async def test_skills_outside_the_backend_need_no_protection(self, tmp_path: Path) -> None:
        assert await self.paths(Skills([tmp_path]), StateBackend()) == ()

        @dataclass
        class Strange:
            ref: object = None

        assert await self.paths(Skills([tmp_path]), Strange()) == ()

    async def test_changes_are_refused_without_approvals(self, play: Play) -> None:
        backend = await files(**{'/skills/pdf/SKILL.md': DOCUMENT})
        answers = await play(
            [BackendSkills('/skills', trusted=True)],
            call('write_file', path='skills/pdf/SKILL.md', content='x'),
            call('edit_file', path='/skills/pdf/SKILL.md', old_string='Fill', new_string='Kill'),
            call('write_file', path='/skills/new/SKILL.md', content='x'),
            call('write_file', path='/skills', content='x'),
            call('write_file', path='a\0b', content='x'),
            call('write_file', path='/notes.md', content='x'),
            call('read_file', path='/skills/pdf/SKILL.md'),
            deps=Deps(backend),
            also=[Filesystem()],
        )
        refused = [answer.endswith('belongs to a skill. Only a person may allow changes.') for answer in answers]
        assert refused == [True, True, True, True, False, False, False]
        assert answers[5] == 'Created /notes.md: 1 line, 1 byte.'
        assert await backend.read_bytes('/skills/pdf/SKILL.md') == DOCUMENT

    @pytest.mark.parametrize('kind', [LocalBackend, SandboxBackend])
    async def test_protection_follows_links(
        self, tmp_path: Path, play: Play, kind: Callable[[Path], BackendProtocol]
    ) -> None:
        (tmp_path / 'skills/pdf').mkdir(parents=True)
        (tmp_path / 'skills/pdf/SKILL.md').write_bytes(DOCUMENT)
        (tmp_path / 'notes').symlink_to('skills')
        (answer,) = await play(
            [tmp_path / 'skills'],
            call('write_file', path='notes/pdf/SKILL.md', content='x'),
            deps=Deps(kind(tmp_path)),
            also=[Filesystem()],
        )
        assert answer.endswith('Only a person may allow changes.')

    async def test_tools_without_a_path_argument_are_allowed(self, play: Play) -> None:
        toolset = FunctionToolset[object]()

        @toolset.tool_plain(metadata={'effect': 'write'})
        def save() -> str:
            return 'saved'

        also: list[AbstractCapability[object]] = [Toolset(toolset)]
        answers = await play([BackendSkills('/skills')], call('save'), deps=Deps(StateBackend()), also=also)
        assert answers == ['saved']

    async def test_approvals_capability_decides_about_changes(self, play: Play) -> None:
        class Asking(AbstractCapability[object]):
            def may_require_approval(self, tool_name: str) -> bool:
                return False

        answers = await play(
            [BackendSkills('/skills')],
            call('write_file', path='/skills/pdf/SKILL.md', content='x'),
            deps=Deps(StateBackend()),
            also=[Asking(), Filesystem()],
        )
        assert answers == ['Created /skills/pdf/SKILL.md: 1 line, 1 byte.']

    async def test_approved_change_is_made(self) -> None:
        toolset = FunctionToolset[Deps]()

        @toolset.tool(metadata={'effect': 'write'}, requires_approval=True)
        async def put(ctx: RunContext[Deps], path: str) -> str:
            return f'put {path}'

        model = ScriptedModel(call('put', path='/skills/x'), 'done')
        agent = Agent(
            model,
            deps_type=Deps,
            toolsets=[toolset],
            capabilities=[Skills([BackendSkills('/skills')])],
            output_type=[str, DeferredToolRequests],
        )
        deps = Deps(StateBackend())
        paused = await agent.run('go', deps=deps)
        assert isinstance(paused.output, DeferredToolRequests)
        answers = paused.output.build_results(approve_all=True)
        await agent.run(message_history=paused.all_messages(), deferred_tool_results=answers, deps=deps)
        assert [part.content for part in model.requests[-1].tool_returns] == ['put /skills/x']
