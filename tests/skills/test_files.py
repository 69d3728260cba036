"""The body and the files of a skill, as they are loaded and read."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_deep.skills import BackendSkills, Skill, Skills
from pydantic_deep.testing import call
from pydantic_deep_backends import FileEntry, StateBackend

from .conftest import GREETING, Deps, Play, WriteSkill

pytestmark = pytest.mark.anyio


class TestLoading:
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

    @pytest.mark.parametrize('file', ['evals/evals.json', './evals/files/a.csv', 'docs/../EVALS/evals.json', 'cases'])
    async def test_test_cases_are_neither_listed_nor_read(
        self, play: Play, write_skill: WriteSkill, tmp_path: Path, file: str
    ) -> None:
        """A model that could read the cases of a skill would know the checks of its answer."""
        directory = write_skill('pdf', files=['docs/a.md', 'docs/evals/b.md', 'evals/evals.json', 'evals/files/a.csv'])
        (directory / 'EVALS').mkdir()
        (directory / 'EVALS/evals.json').write_text('This is on a file system that ignores case.')
        (directory / 'cases').symlink_to('evals/evals.json')
        loaded, refused = await play(
            [tmp_path / 'skills'], call('load_skill', name='pdf'), call('load_skill', name='pdf', file=file)
        )
        assert loaded.endswith('here: cases, docs/a.md, docs/evals/b.md]')
        assert refused == f"retried: {file} is not a file of the skill 'pdf'."

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
            "retried: c.md is not a readable file of the skill 'bare'. It has none: omit `file`.",
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
