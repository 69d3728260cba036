"""The folder of a case: what is written, what is read, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from pydantic_deep.evals import (
    CaseFormatError,
    SecretsFoundError,
    TurnCase,
    TurnResult,
    read_case,
    read_cases,
    write_case,
)

from .conftest import EDIT, PLAN, RecordCase

pytestmark = pytest.mark.anyio

KEY = 'sk-ant-' + 'a1B2' * 8


def handwritten(folder: Path, **fields: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / 'case.json').write_text(json.dumps({'format_version': 1, 'prompt': 'Hi', **fields}))
    return folder


async def test_folder_is_readable(record: RecordCase, tmp_path: Path):
    remove = [PLAN, EDIT]
    await record(remove, 'Fixed.', interrupt_on={'edit_file': True})
    folder = tmp_path / 'evals/poem'
    document = json.loads((folder / 'case.json').read_text())
    assert len(document.pop('version')) == 36
    assert document == snapshot(
        {
            'format_version': 1,
            'agent': 'deep-agent',
            'model': 'scripted:scripted',
            'prompt': 'Fix the poem.',
            'answers': [
                {
                    'tool': 'edit_file',
                    'arguments': {
                        'path': '/poem.txt',
                        'old_string': 'violet',
                        'new_string': 'lily',
                    },
                    'answer': 'approve',
                }
            ],
            'expected': {
                'output': 'Fixed.',
                'todos': [{'content': 'Edit', 'status': 'completed'}],
                'usage': {'requests': 2, 'tokens': 220},
            },
            'evaluators': ['FilesEqual', 'ApprovalsAsked', 'TodosCompleted'],
        }
    )
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file()) == snapshot(
        ['case.json', 'expected/poem.txt', 'files/old.txt', 'files/poem.txt', 'recording.json']
    )
    recording = json.loads((folder / 'recording.json').read_text())
    assert (recording['format_version'], recording['unrepeatable']) == (1, [])


async def test_written_case_is_read_unchanged(record: RecordCase, tmp_path: Path):
    case = await record(EDIT, 'Fixed.')
    again = read_case(write_case(replace(case, name='again'), tmp_path))
    assert replace(again, name='poem') == case


def test_case_without_a_recording_needs_only_a_prompt(tmp_path: Path):
    folder = handwritten(tmp_path / 'hello')
    (folder / 'files').mkdir()
    (folder / 'files/a.txt').write_text('a')
    (folder / 'files/link').symlink_to('/etc/passwd')
    case = read_case(folder)
    assert (case.name, case.prompt, case.files, case.rows) == ('hello', 'Hi', {'/a.txt': b'a'}, None)
    assert case.expected == TurnResult(output=None, files={'/a.txt': b'a'}, todos=[], approvals=[])


def test_removed_files_are_named(tmp_path: Path):
    expected = TurnResult(output=None, files={'/b': b'b', '/run': b''})
    case = TurnCase(
        name='x', prompt='Hi', files={'/a': b'a', '/run': b''}, executables=frozenset({'/run'}), expected=expected
    )
    again = read_case(write_case(case, tmp_path))
    assert again.expected.files == expected.files
    assert again.executables == {'/run'}
    assert again.tree['/run'].mode == 0o755


def test_folder_that_exists_is_not_replaced(tmp_path: Path):
    case = TurnCase(name='x', prompt='Hi', expected=TurnResult(output=None))
    write_case(case, tmp_path)
    with pytest.raises(FileExistsError):
        write_case(case, tmp_path)


@pytest.mark.parametrize(
    ('case', 'found'),
    [
        (TurnCase(name='x', prompt=f'Use {KEY}', expected=TurnResult(output=None)), ('anthropic key in case.json',)),
        (
            TurnCase(name='x', prompt='Hi', files={'/.env': KEY.encode()}, expected=TurnResult(output=None)),
            ('anthropic key in files/.env',),
        ),
        (
            TurnCase(name='x', prompt='Hi', expected=TurnResult(output={'password': 'hunter2'})),
            ('password in case.json',),
        ),
    ],
)
def test_secrets_are_refused_unless_allowed(case: TurnCase, found: tuple[str, ...], tmp_path: Path):
    with pytest.raises(SecretsFoundError, match='Nothing was written') as raised:
        write_case(case, tmp_path)
    assert raised.value.found == found
    assert list(tmp_path.iterdir()) == []
    assert read_case(write_case(case, tmp_path, allow_secrets=True)).prompt == case.prompt


@pytest.mark.parametrize(
    ('text', 'said'),
    [
        ('nonsense', 'Expecting value'),
        ('[]', 'its `format_version` is None, and this release reads 1.'),
        ('{"format_version": 2}', 'its `format_version` is 2, and this release reads 1. Upgrade pydantic-deep.'),
        ('{"format_version": 1}', '`prompt`: Field required.'),
        ('{"format_version": 1, "prompt": "Hi", "typo": 1}', 'Extra inputs are not permitted'),
        ('{"format_version": 1, "prompt": 3}', 'Input should be a valid string'),
        ('{"format_version": 1, "prompt": " "}', 'its `prompt` is blank. Write what the agent is asked to do.'),
        (r'{"format_version": 1, "prompt": "a\ud800"}', 'the character 1 is half of a surrogate pair'),
        ('{"format_version": 1, "prompt": []}', 'prompt: it is empty'),
    ],
)
def test_case_that_cannot_be_read_is_named(text: str, said: str, tmp_path: Path):
    (tmp_path / 'case.json').write_text(text)
    with pytest.raises(CaseFormatError, match='is not a case: ') as raised:
        read_case(tmp_path)
    assert said in str(raised.value)


def test_byte_order_mark_is_ignored(tmp_path: Path):
    """Editors on Windows begin files with one, which JSON does not allow."""
    (tmp_path / 'case.json').write_text('{"format_version": 1, "prompt": "Hi"}', encoding='utf-8-sig')
    assert read_case(tmp_path).prompt == 'Hi'


def test_recording_that_cannot_be_read_is_named(tmp_path: Path):
    folder = handwritten(tmp_path / 'x')
    (folder / 'recording.json').write_text('{"format_version": 1}')
    with pytest.raises(CaseFormatError, match="'conversations'"):
        read_case(folder)


def test_directory_of_cases_or_one_case(tmp_path: Path):
    for name in ('b', 'a'):
        handwritten(tmp_path / name)
    assert [case.name for case in read_cases(tmp_path)] == ['a', 'b']
    assert [case.name for case in read_cases(tmp_path / 'b')] == ['b']
    (tmp_path / 'empty').mkdir()
    with pytest.raises(CaseFormatError, match=r'neither it nor a folder in it has a `case\.json`'):
        read_cases(tmp_path / 'empty')
