"""The body and the files of a skill, as they are loaded and read."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelRequest, ToolReturnPart

from pydantic_deep.skills import BackendSkills, Skill, Skills
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import CompositeBackend, FileEntry, LocalBackend, StateBackend
from pydantic_deep_backends.sandbox import SandboxBackend

from .conftest import GREETING

pytestmark = pytest.mark.anyio


WriteSkill = Callable[..., Path]


Play = Callable[..., Awaitable[list[str]]]


@dataclass
class Mounted:
    """A backend that shows local directories under other names, like a sandbox."""

    backend: StateBackend
    directory: Path

    def path_of(self, host_path: str) -> str | None:
        is_inside = Path(host_path).is_relative_to(self.directory)
        return f'/mnt/{Path(host_path).relative_to(self.directory)}' if is_inside else None


@dataclass
class Deps:
    """Third-party deps with a backend."""

    backend: object


class TestLoading:
    async def test_load_skill_returns_the_body_and_lists_files(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        write_skill('pdf', files=['scripts/fill.py', 'LICENSE'])
        write_skill('plain')
        skills = [tmp_path / 'skills']
        assert await play(skills, call('load_skill', name='pdf'), call('load_skill', name='plain')) == [
            "# Do it\n\n[Files, read with load_skill('pdf', file) and not to be run here: LICENSE, scripts/fill.py]",
            '# Do it',
        ]

    async def test_no_host_path_is_exposed(self, play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
        write_skill('pdf', files=['a.md'])
        calls = [
            call('load_skill', name='pdf'),
            *(call('load_skill', name='pdf', file=f) for f in ('b.md', '/', '../x')),
        ]
        answers = await play([tmp_path / 'skills'], *calls)
        assert not any(str(tmp_path) in answer for answer in answers)

    async def test_directory_exposed_by_the_backend_is_named(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        write_skill('pdf', files=['a.md'])
        write_skill('bare', body='Hi.')
        skills = [tmp_path / 'skills']
        calls = call('load_skill', name='pdf'), call('load_skill', name='bare')
        mounted = Mounted(StateBackend(), tmp_path / 'skills')
        assert await play(skills, *calls, deps=Deps(mounted)) == [
            "# Do it\n\n[Files, read with load_skill('pdf', file) and run in /mnt/pdf: a.md]",
            'Hi.\n\n[Directory: /mnt/bare]',
        ]
        assert (await play(skills, *calls, deps=Deps(LocalBackend(tmp_path))))[0].endswith(
            '[Files in /skills/pdf: a.md]'
        )
        sandbox = SandboxBackend(tmp_path)
        assert (await play(skills, *calls, deps=Deps(sandbox)))[0].endswith('[Files in /workspace/skills/pdf: a.md]')
        composite = CompositeBackend(StateBackend(), {'/work': LocalBackend(tmp_path / 'skills/pdf')})
        assert (await play(skills, *calls, deps=Deps(composite)))[0].endswith('[Files in /work: a.md]')
        wrapped: object = Mounted(StateBackend(), tmp_path / 'skills')
        for _ in range(5):
            wrapped = Deps(wrapped)
        assert (
            'not to be run here' in (await play(skills, *calls, deps=Deps(wrapped)))[0]
        )  # too deeply wrapped to be found
        elsewhere = Mounted(StateBackend(), tmp_path / 'elsewhere')
        assert 'not to be run here' in (await play(skills, *calls, deps=Deps(elsewhere)))[0]

    async def test_many_files_are_counted(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_skill('pdf', files=[f'f{n:02}' for n in range(60)])
        (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf'))
        assert answer.endswith('f48, f49, and 10 more]')
        monkeypatch.setattr('pydantic_deep.skills._files.MAX_ENTRIES', 20)
        (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf'))
        assert answer.endswith(', f18, and more]')

    async def test_links_and_special_files_are_not_listed(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        directory = write_skill('pdf', files=['sub/a.md', '.git/config'])
        (directory / 'loop').symlink_to('.')
        (directory / 'etc').symlink_to('/etc')
        (directory / 'passwd').symlink_to('/etc/passwd')
        os.mkfifo(directory / 'fifo')
        (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf'))
        assert answer.endswith('here: sub/a.md]')

    async def test_unreadable_directory_does_not_hide_other_files(self, play: Play) -> None:
        class Closed(StateBackend):
            async def list_dir(self, path: str) -> Sequence[FileEntry]:
                if path.endswith('closed'):
                    raise PermissionError(13, 'Permission denied', path)
                return await super().list_dir(path)

        backend = Closed()
        for path in ('SKILL.md', 'closed/x', 'open/y'):
            await backend.write_bytes(f'/skills/pdf/{path}', b'---\ndescription: x\n---\nHi.')
        skills = [BackendSkills('/skills', trusted=True)]
        (answer,) = await play(skills, call('load_skill', name='pdf'), deps=Deps(backend))
        assert answer == 'Hi.\n\n[Files in /skills/pdf: open/y]'

    async def test_edited_skill_is_loaded_with_its_new_contents(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        file = write_skill('pdf') / 'SKILL.md'
        skills = Skills([tmp_path / 'skills'])
        model = ScriptedModel(call('load_skill', name='pdf'), 'one', call('load_skill', name='pdf'), 'two')
        agent = Agent(model, capabilities=[skills])
        first = await agent.run('go')
        file.write_text(file.read_text().replace('# Do it', '# Do it otherwise'))
        await agent.run('on', message_history=first.all_messages())
        assert [part.content for part in model.requests[-1].tool_returns] == ['# Do it', '# Do it otherwise']

    async def test_body_in_the_history_is_not_repeated(self, write_skill: WriteSkill, tmp_path: Path) -> None:
        write_skill('pdf', files=['a.md'])
        load = call('load_skill', name='pdf')
        model = ScriptedModel(load, load, 'one', load, load, 'two')
        agent = Agent(model, capabilities=[Skills([tmp_path / 'skills'])])
        first = await agent.run('go')
        stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(first.all_messages()))
        await agent.run('on', message_history=stored)
        again = "The skill 'pdf' is already in this conversation."
        assert [part.content for part in model.requests[-1].tool_returns[1:]] == [again] * 3
        summarized = [ModelRequest.user_text_prompt('We loaded the skill pdf.')]
        model = ScriptedModel(load, 'three')
        await agent.run('on', model=model, message_history=summarized)
        assert '# Do it' in str(model.requests[-1].tool_returns[0].content)

    async def test_cleared_result_is_loaded_again(self, play: Play) -> None:
        model = ScriptedModel(call('load_skill', name='greeting'), 'done')
        result = await Agent(model, capabilities=[Skills([GREETING])]).run('go')
        cleared = ModelMessagesTypeAdapter.dump_json(result.all_messages()).replace(b'Say hello.', b'[cleared]')
        messages = ModelMessagesTypeAdapter.validate_json(cleared)
        assert (await play([GREETING], call('load_skill', name='greeting'), history=messages))[-1] == 'Say hello.'

    async def test_loaded_body_is_identified_by_metadata(self) -> None:
        model = ScriptedModel(call('load_skill', name='greeting'), 'done')
        result = await Agent(model, capabilities=[Skills([GREETING])]).run('go')
        (part,) = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
        assert part.metadata == {
            'skill': 'greeting',
            'digest': snapshot('sha256:c8e2c1437abb87b67330d0dddbd1de9a179ca6be207497f14873894c26e7d742'),
        }

    async def test_unknown_skill_error_lists_similar_names(self, play: Play) -> None:
        many = [Skill(f'skill-{n}', 'x', body='x') for n in range(20)]
        wrong = call('load_skill', name='greting')
        assert await play([GREETING], wrong) == ["retried: No skill named 'greting'. Similar: greeting."]
        assert await play([GREETING], call('load_skill', name='zzz')) == [
            "retried: No skill named 'zzz'. Skills: greeting."
        ]
        assert (
            'Skills: skill-0, skill-1, skill-10, skill-11, skill-12, skill-13, skill-14, skill-15, skill-16, skill-17, ….'
            in (await play(many, call('load_skill', name='zzz')))[0]
        )

    @pytest.mark.parametrize(
        ('contents', 'reason'),
        [
            (None, 'SKILL.md can no longer be read'),
            ('no frontmatter', 'SKILL.md: It has no frontmatter.'),
            ('x' * 1_100_000, 'SKILL.md has 1,100,000 bytes; at most 1,048,576 are read'),
        ],
    )
    async def test_file_that_is_no_longer_a_skill_is_reported(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, contents: str | None, reason: str
    ) -> None:
        file = write_skill('pdf') / 'SKILL.md'
        skills = Skills([tmp_path / 'skills'])
        await skills.catalog()
        file.unlink()
        if contents is not None:
            file.write_text(contents)
        (answer,) = await play(skills, call('load_skill', name='pdf'))
        assert answer.startswith(f"failed: The skill 'pdf' cannot be loaded: {reason}")

    @pytest.mark.parametrize('is_ascii', [True, False])
    async def test_skill_of_one_mebibyte_is_loaded_completely(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, is_ascii: bool
    ) -> None:
        """A `SKILL.md` and a text file of up to 1 MiB are found and loaded; one byte more is refused with the number."""
        directory = write_skill('pdf', files=['a.md'])
        head = (directory / 'SKILL.md').read_bytes()
        line = b'A line.\n' if is_ascii else b'Caf\xe9 au lait.\n'
        whole = (head + line * 2**18)[: 2**20 - 5] + b'\nEnd.'
        (directory / 'SKILL.md').write_bytes(whole)
        (directory / 'a.md').write_bytes((line * 2**18)[: 2**20 - 5] + b'\nEnd.')
        calls = call('load_skill', name='pdf'), call('load_skill', name='pdf', file='a.md')
        body, file = await play([tmp_path / 'skills'], *calls)
        assert (len(body) > 2**20 - len(head), '\nEnd.' in body, file.endswith('\nEnd.')) == (True, True, True)
        (directory / 'a.md').write_bytes(b'x' * (2**20 + 1))
        assert await play([tmp_path / 'skills'], calls[1]) == [
            'failed: a.md has 1,048,577 bytes; at most 1,048,576 can be read.'
        ]

    async def test_linked_skill_file_is_loaded(self, play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
        directory = write_skill('pdf', files=['a.md'])
        (directory / 'SKILL.md').rename(tmp_path / 'skills/common.md')
        (directory / 'SKILL.md').symlink_to('../common.md')
        skills = Skills([tmp_path / 'skills'])
        calls = call('load_skill', name='pdf'), call('load_skill', name='pdf', file='../common.md')
        body, refused = await play(skills, *calls)
        assert body.startswith('# Do it')
        assert 'leads above `/`' in refused

    async def test_skill_in_code_can_have_files(self, play: Play, write_skill: WriteSkill) -> None:
        directory = write_skill('pdf', files=['a.md'])
        skills = [Skill('one', 'x', body='Mine.', directory=directory), Skill('two', 'x', directory=directory)]
        one, two = await play(skills, call('load_skill', name='one'), call('load_skill', name='two'))
        assert one.startswith('Mine.')
        assert one.endswith('here: a.md]')
        assert two.startswith('# Do it')

    async def test_invisible_characters_are_removed_and_reported(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, 'pydantic_deep')
        directory = write_skill('pdf', body='Do \u202eit\U000e0041\u200b.')
        (directory / 'a.md').write_text('a\u200bb')
        skills = Skills([tmp_path / 'skills'])
        answers = await play(skills, call('load_skill', name='pdf'), call('load_skill', name='pdf', file='a.md'))
        assert answers == [
            snapshot("""\
Do it.

[Files, read with load_skill('pdf', file) and not to be run here: a.md]\
"""),
            'ab',
        ]
        await play(skills, call('load_skill', name='pdf'))
        assert len([record for record in caplog.records if 'invisible' in record.getMessage()]) == 1


class TestFiles:
    async def test_skill_file_is_read(self, play: Play, write_skill: WriteSkill, tmp_path: Path) -> None:
        directory = write_skill('pdf', files=['references/a.md'])
        (directory / 'empty').touch()
        answers = await play(
            [tmp_path / 'skills'],
            call('load_skill', name='pdf', file='references/a.md'),
            call('load_skill', name='pdf', file='empty'),
        )
        assert answers == ['This is references/a.md.', '']

    @pytest.mark.parametrize(
        'file',
        [
            '../other/SKILL.md',
            '/../other/SKILL.md',
            'link',
            'folder/SKILL.md',
            '/etc/passwd',
            'none',
            '.',
            'fifo',
            'a\0b',
            '~/x',
        ],
    )
    async def test_other_files_are_refused(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, file: str
    ) -> None:
        write_skill('other', body='SECRET')
        directory = write_skill('pdf', files=['a.md'])
        (directory / 'link').symlink_to('../other/SKILL.md')
        (directory / 'folder').symlink_to('../other')
        os.mkfifo(directory / 'fifo')
        (answer,) = await play([tmp_path / 'skills'], call('load_skill', name='pdf', file=file))
        assert answer.startswith('retried: ')
        assert 'SECRET' not in answer

    async def test_a_missing_file_lists_existing_ones(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        write_skill('pdf', files=['a.md', 'b.md'])
        write_skill('bare')
        assert await play(
            [tmp_path / 'skills', GREETING],
            call('load_skill', name='pdf', file='c.md'),
            call('load_skill', name='bare', file='c.md'),
            call('load_skill', name='greeting', file='c.md'),
        ) == [
            "retried: c.md is not a readable file of the skill 'pdf'. It has a.md, b.md.",
            "retried: c.md is not a readable file of the skill 'bare'. It has none.",
            "failed: The skill 'greeting' has no files.",
        ]

    async def test_binary_and_large_files_are_refused(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path
    ) -> None:
        directory = write_skill('pdf')
        (directory / 'image').write_bytes(b'\x89PNG\0')
        (directory / 'large').write_bytes(b'x' * 1_100_000)
        calls = [call('load_skill', name='pdf', file=file) for file in ('image', 'large')]
        assert await play([tmp_path / 'skills'], *calls) == [
            'failed: image is not text: 5 bytes.',
            'failed: large has 1,100,000 bytes; at most 1,048,576 can be read.',
        ]
