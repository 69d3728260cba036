"""Whole turns on unusual files: no data leaks, is lost or is invented."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import CompositeBackend, DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent
from pydantic_deep.testing import ScriptedModel, Step, call, deps_for_test
from pydantic_deep_backends import BackendProtocol

pytestmark = pytest.mark.anyio

NOBODY = 65534
"""The user that owns nothing, by convention on Linux."""


async def play(backend: BackendProtocol | DeepAgentDeps, *steps: Step) -> list[tuple[str, str]]:
    """Play a turn of a deep agent and return the outcome and text of each call."""
    deps = backend if isinstance(backend, DeepAgentDeps) else DeepAgentDeps(backend=backend)
    model = ScriptedModel(*steps, 'done')
    result = await create_deep_agent(model).run('go', deps=deps)
    assert ModelMessagesTypeAdapter.dump_json(result.new_messages()[2:])
    return [(p.outcome, str(p.content)) for p in model.requests[-1].tool_returns]


IN_A_CHILD = """
import os, resource, sys
import anyio
from pydantic_deep import DeepAgentDeps, LocalBackend, create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

calls = {calls}
# Lazy imports must be loaded before privileges are dropped.
create_deep_agent(ScriptedModel('ready')).run_sync('warm up', deps=DeepAgentDeps())
{before}
model = ScriptedModel(*calls, 'done')
create_deep_agent(model).run_sync('go', deps=DeepAgentDeps(backend=LocalBackend(sys.argv[1])))
for part in model.requests[-1].tool_returns:
    print(part.outcome, repr(part.content))
"""


def play_in_a_child(root: Path, before: str, calls: str) -> list[str]:
    """Play a turn in a separate process, in which limits and privileges can be dropped for good."""
    program = IN_A_CHILD.format(before=before, calls=calls)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, '-c', program, str(root)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, 'PYTHONPATH': path},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_full_disk_leaves_every_file_intact(tmp_path: Path) -> None:
    (tmp_path / 'a.txt').write_text('old\n')
    said = play_in_a_child(
        tmp_path,
        'sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))',
        """[
            call('edit_file', path='a.txt', old_string='old', new_string='n' * 5000),
            call('write_file', path='a.txt', content='n' * 5000),
            call('write_file', path='new.txt', content='n' * 5000),
            call('read_file', path='a.txt'),
        ]""",
    )
    assert said == [
        "failed '/a.txt: File too large.'",
        "failed '/a.txt: File too large.'",
        "failed '/new.txt: File too large.'",
        "success '1→old'",
    ]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {'a.txt': 'old\n'}


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason='only root can become somebody else')
def test_unreadable_files_are_named_and_hide_nothing_else(unprivileged_root: Path) -> None:
    root = unprivileged_root
    (root / 'open.txt').write_text('find me\n')
    (root / 'secret.txt').write_text('find me too\n')
    (root / 'locked').mkdir()
    (root / 'locked' / 'in.txt').write_text('find me as well\n')
    (root / 'secret.txt').chmod(0o600)
    (root / 'locked').chmod(0o700)
    said = play_in_a_child(
        root,
        f'os.setgid({NOBODY}); os.setuid({NOBODY})',
        """[
            call('grep', pattern='find'),
            call('glob', pattern='**'),
            call('read_file', path='secret.txt'),
            call('edit_file', path='secret.txt', old_string='me', new_string='you'),
            call('ls', path='locked'),
            call('write_file', path='locked/new.txt', content='x'),
        ]""",
    )
    assert said == [
        "success '/open.txt\\n1: find me\\n"
        "[not searched: /locked (Permission denied), /secret.txt (Permission denied)]'",
        "success '/open.txt\\n/secret.txt\\n[not searched: /locked (Permission denied)]'",
        "failed '/secret.txt: permission denied.'",
        "failed '/secret.txt: permission denied.'",
        "failed '/locked: permission denied.'",
        "failed '/locked/new.txt: permission denied.'",
    ]
    assert (root / 'secret.txt').read_text() == 'find me too\n'


@pytest.fixture
def unprivileged_root(tmp_path: Path) -> Path:
    """Return a directory that every user can enter, although pytest creates private ones."""
    for directory in (tmp_path, *tmp_path.parents):
        if directory.stat().st_uid == os.geteuid() and directory.name.startswith(('pytest-', 'popen-', 'test_')):
            directory.chmod(0o755)
    return tmp_path


TRAPS = ('link', 'relative', 'directory/secret', 'dangling', 'proc/etc/hostname', 'fifo', 'loop')
"""Files that an agent, a shell or an archive may leave in a directory for the next reader to open."""


@pytest.mark.parametrize('trap', TRAPS)
async def test_no_tool_follows_a_trap(trap: str, tmp_path: Path) -> None:
    outside, root = tmp_path / 'outside', tmp_path / 'root'
    outside.mkdir()
    root.mkdir()
    (outside / 'secret').write_text('top secret\n')
    (root / 'link').symlink_to(outside / 'secret')
    (root / 'relative').symlink_to('../outside/secret')
    (root / 'directory').symlink_to(outside)
    (root / 'dangling').symlink_to(outside / 'new')
    (root / 'proc').symlink_to('/proc/self/root')
    (root / 'loop').symlink_to('loop')
    os.mkfifo(root / 'fifo')
    said = await play(
        LocalBackend(root),
        call('read_file', path=trap),
        call('write_file', path=trap, content='taken'),
        call('edit_file', path=trap, old_string='top', new_string='no'),
        call('grep', pattern='.', path=trap),
        call('grep', pattern='secret'),
        call('glob', pattern='**'),
    )
    assert [outcome for outcome, _ in said] == ['failed'] * 4 + ['success'] * 2
    assert 'top secret' not in str(said)
    assert [path.name for path in outside.iterdir()] == ['secret']
    assert (outside / 'secret').read_text() == 'top secret\n'


async def test_hard_link_to_the_outside_is_neither_read_nor_written(tmp_path: Path) -> None:
    outside, root = tmp_path / 'secret', tmp_path / 'root'
    root.mkdir()
    outside.write_text('kept\n')
    os.link(outside, root / 'hard')
    said = await play(LocalBackend(root), call('edit_file', path='hard', old_string='kept', new_string='changed'))
    assert said == [('failed', '/hard: permission denied.')]
    assert (outside.read_text(), (root / 'hard').read_text()) == ('kept\n', 'kept\n')


async def test_file_names_with_line_breaks_or_invalid_bytes_are_escaped(tmp_path: Path) -> None:
    (tmp_path / 'a\n').mkdir()
    (tmp_path / 'b.txt').write_text('x\n')
    (tmp_path / 'c\u202etxt.exe').write_text('x\n')
    Path(os.fsdecode(os.fsencode(tmp_path) + b'/d\xff')).write_text('x\n')
    (_, listed), (_, found), (_, lines) = await play(
        LocalBackend(tmp_path), call('ls'), call('glob', pattern='**'), call('grep', pattern='x')
    )
    assert listed == 'a\\n/\nb.txt (2 bytes)\nc\\u202etxt.exe (2 bytes)\nd\\udcff (2 bytes)'
    assert found.splitlines()[:2] == ['/b.txt', '/c\\u202etxt.exe']
    assert '/a\\n (' in found
    assert '/d\\udcff (' in found
    assert lines.splitlines()[:4] == ['/b.txt', '1: x', '/c\\u202etxt.exe', '1: x']


async def test_file_replaced_by_a_directory_after_a_read_can_be_corrected(tmp_path: Path) -> None:
    (tmp_path / 'a').write_text('one\n')

    def replace(messages: list[ModelMessage], info: AgentInfo) -> list[ToolCallPart]:
        (tmp_path / 'a').unlink()
        (tmp_path / 'a').mkdir()
        return [
            call('edit_file', path='a', old_string='one', new_string='two'),
            call('write_file', path='a', content='two'),
        ]

    said = await play(LocalBackend(tmp_path), call('read_file', path='a'), replace)
    assert said[1:] == [('retried', '/a is a directory. Use ls, or name a file.')] * 2
    assert list((tmp_path / 'a').iterdir()) == []


async def test_latin_1_file_with_a_late_accent_is_read_and_edited() -> None:
    data = b'plain,1\n' * 20_000 + 'très bon café, naïve façade\n'.encode('latin-1')
    deps = deps_for_test({'/long.csv': data})
    said = await play(
        deps,
        call('read_file', path='long.csv', offset=20_001),
        call('grep', pattern='café'),
        call('edit_file', path='long.csv', old_string='bon café', new_string='mauvais café'),
    )
    assert said == [
        ('success', '20001→très bon café, naïve façade\n[encoding: cp1252]'),
        ('success', '/long.csv\n20001: très bon café, naïve façade'),
        ('success', 'Replaced 1 match at line 20001.'),
    ]
    assert await deps.backend.read_bytes('/long.csv') == data.replace(b'bon', b'mauvais')


@pytest.mark.slow
async def test_one_word_in_a_fifty_megabyte_line_is_found_and_edited() -> None:
    deps = deps_for_test({'/big.json': b'x' * 25_000_000 + b'needle' + b'y' * 25_000_000})
    said = await play(
        deps,
        call('grep', pattern='needle'),
        call('edit_file', path='big.json', old_string='needle', new_string='thread'),
        call('edit_file', path='big.json', old_string='x', new_string='z'),
        call('edit_file', path='big.json', old_string='nedle', new_string='z'),
        call('read_file', path='big.json', offset='1:25000000', limit=1),
    )
    assert [outcome for outcome, _ in said] == ['success', 'success', 'retried', 'retried', 'success']
    assert max(len(text) for _, text in said) < 40_100
    assert 'xthready' in said[-1][1]
    assert len(await deps.backend.read_bytes('/big.json')) == 50_000_006


@pytest.mark.parametrize('concurrent', [False, True])
async def test_eight_edits_of_one_file_by_eight_spellings_lose_nothing(concurrent: bool, tmp_path: Path) -> None:
    (tmp_path / 'd').mkdir()
    (tmp_path / 'd' / 'f').write_text(''.join(f'line {i}: old\n' for i in range(8)))
    (tmp_path / 'to-f').symlink_to('d/f')
    (tmp_path / 'to-d').symlink_to('d')
    (tmp_path / 'abs').symlink_to(tmp_path / 'd' / 'f')
    backend = CompositeBackend(StateBackend(), {'/m': LocalBackend(tmp_path)})
    spellings = ['m/d/f', '/m/d/f', './m//d/f', 'm/d/./f', 'm/to-f', 'm/to-d/f', '/m/abs', 'm/to-d//f']
    edits = [
        call('edit_file', path=path, old_string=f'line {i}: old', new_string=f'line {i}: new')
        for i, path in enumerate(spellings)
    ]
    if concurrent:
        said: list[tuple[str, str]] = []

        async def run(edit: ToolCallPart) -> None:
            said.extend(await play(backend, edit))

        async with create_task_group() as group:
            for edit in edits:
                group.start_soon(run, edit)
    else:
        said = await play(backend, edits)
    assert [outcome for outcome, _ in said] == ['success'] * 8
    assert (tmp_path / 'd' / 'f').read_text() == ''.join(f'line {i}: new\n' for i in range(8))


async def test_large_result_can_be_read_back_in_pages() -> None:
    text = ''.join(chr(ord('a') + i % 26) for i in range(120_000))
    deps = DeepAgentDeps()
    pages: list[str] = []

    def page(messages: list[ModelMessage], info: AgentInfo) -> str | ToolCallPart:
        last: Any = messages[-1].parts[0]
        offset = '1:1'
        if last.tool_name == 'read_file':
            shown = str(last.content).split('→', 1)[1]
            head, _, notice = shown.partition('… [line of ')
            pages.append(head)
            if not notice:
                return 'done'
            offset = notice.split('"')[1]
        return call('read_file', path='/offload/the-result', offset=offset)

    model = ScriptedModel(ToolCallPart('produce', {}, 'the-result'), then=page)
    agent = create_deep_agent(model)

    @agent.tool_plain
    def produce() -> str:
        return text

    await agent.run('go', deps=deps)
    assert ''.join(pages) == text
    assert max(len(p) for p in pages) <= 20_000
    assert await deps.backend.list_dir('/') == []
