"""The `rewind`, `checkout`, `branch` and `merge` commands."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import _scan_budget

Invoke = Callable[..., Result]

EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
WRITE = call('write_file', path='/new.txt', content='new\n')
WRITE_SIDE = call('write_file', path='/new.txt', content='side\n')
EDIT_SIDE = call('edit_file', path='/poem.txt', old_string='violet', new_string='oak')
ALLOW = '--approvals=allow'
NO_TERMINAL_REASON = 65534


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def ids(invoke: Invoke) -> list[str]:
    """Return the version ids of the directory, oldest first."""
    return [row['id'] for row in reversed(document(invoke('log', '--json')))]


@pytest.fixture
def two_turns(invoke: Invoke) -> list[str]:
    """The ids of a root version, a turn that edits the poem and a turn that writes a file."""
    invoke('run', 'Fix', ALLOW, model=ScriptedModel(EDIT, 'Fixed.'))
    invoke('run', 'Write', '-c', ALLOW, model=ScriptedModel(WRITE, 'Wrote.'))
    return ids(invoke)


def test_rewind_restores_files_and_conversation(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    result = invoke('rewind', 'HEAD~')
    first, second = two_turns[1][-8:], two_turns[2][-8:]
    assert (result.exit_code, result.stderr) == (0, '')
    assert result.stdout == f'HEAD is {first}: Fix\n1 version after it stays in the store: {second}\n'
    assert sorted(path.name for path in work.iterdir()) == ['poem.txt']
    model = ScriptedModel('Again.')
    invoke('run', 'Again', '--continue', model=model)
    assert 'Write' not in str(model.requests[0].messages[1:])
    assert len(model.requests[0].messages) == 5


def test_rewind_stores_uncommitted_edits_as_a_version(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    (work / 'poem.txt').write_text('mine\n')
    done = document(invoke('rewind', two_turns[0][-8:], '--json'))
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
    assert (done['version']['id'], done['version']['is_head']) == (two_turns[0], True)
    assert done['detached'] == [two_turns[2], two_turns[1]]
    kept = done['edits']
    assert (kept['kind'], kept['parent_id'], len(kept['files_changed'])) == ('edit', two_turns[2], 1)
    result = invoke('rewind', kept['id'][-8:])
    assert (work / 'poem.txt').read_text() == 'mine\n'
    assert result.stdout == f'HEAD is {kept["id"][-8:]}: edited without the agent\n'


@pytest.mark.slow
def test_rewind_lists_only_the_first_undone_versions(invoke: Invoke) -> None:
    invoke('run', 'Turn', model=ScriptedModel('Done.'))
    for _ in range(6):
        invoke('run', 'Turn', '-c', model=ScriptedModel('Done.'))
    assert '6 versions after it stay in the store: ' in (shown := invoke('rewind', 'HEAD~6').stdout)
    assert shown.endswith(', …\n')


@contextmanager
def without_rights(directory: Path) -> Generator[None]:
    """Change the owner of a directory tree to an unprivileged user, and run as that user."""
    if os.geteuid() != 0:
        yield
        return
    for each in (directory, *directory.rglob('*')):
        os.chown(each, NO_TERMINAL_REASON, NO_TERMINAL_REASON)
    os.seteuid(NO_TERMINAL_REASON)
    try:
        yield
    finally:
        os.seteuid(0)


def test_rewind_names_unrestorable_files_and_can_be_repeated(invoke: Invoke) -> None:
    with tempfile.TemporaryDirectory() as directory:  # only the owner may enter the tmp_path of pytest
        poem = Path(directory) / 'work' / 'sub' / 'poem.txt'
        poem.parent.mkdir(parents=True)
        poem.write_text('rose\n')
        here = ('--dir', f'{directory}/work', '--store', f'sqlite:///{directory}/agents.db')
        model = ScriptedModel(call('write_file', path='/sub/poem.txt', content='lily\n'), 'Wrote.')
        assert invoke('run', 'Go', ALLOW, *here, model=model).exit_code == 0
        assert invoke('rewind', 'HEAD', *here).exit_code == 0
        poem.parent.chmod(0o500)
        with without_rights(Path(directory)):
            result = invoke('rewind', 'HEAD~', *here)
        assert (result.exit_code, result.stdout) == (1, '')
        assert result.stderr.startswith('Some files of the version ')
        assert result.stderr.endswith(
            f'were not restored: {poem.parent}: Permission denied. Fix the cause and run the command again.\n'
        )
        poem.parent.chmod(0o700)
        assert invoke('rewind', 'HEAD~', *here).exit_code == 0
        assert poem.read_text() == 'rose\n'


def test_checkout_refuses_to_overwrite_edits_without_force(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    (work / 'poem.txt').write_text('mine\n')
    result = invoke('checkout', two_turns[0])
    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr == snapshot(
        'The changes of /poem.txt are in no version, and the checkout would lose them. Use --force to store them as a version first.\n'
    )
    assert (work / 'poem.txt').read_text() == 'mine\n'
    forced = invoke('checkout', two_turns[0], '--force')
    kept = ids(invoke)[-1][-8:]
    assert forced.stdout == (
        f'HEAD is {two_turns[0][-8:]}: a conversation begins\nEdits in the directory were stored as version {kept}\n'
    )
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


def test_checkout_lists_the_first_conflicting_files(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    (work / 'new.txt').unlink()
    (work / 'new.txt').symlink_to('poem.txt')
    invoke('checkout', two_turns[0], '--force')
    for number in range(12):
        (work / f'{number:02}.txt').write_text('mine\n')
    invoke('run', 'Keep', '-c', model=ScriptedModel('Kept.'))
    for number in range(12):
        (work / f'{number:02}.txt').write_text('changed\n')
    result = invoke('checkout', two_turns[0])
    assert '/00.txt, ' in result.stderr
    assert ' and 2 more are in no version, and the checkout' in result.stderr


def test_checkout_json_contains_the_version(invoke: Invoke, two_turns: list[str]) -> None:
    done = document(invoke('checkout', 'HEAD~2', '--json'))
    assert (done['version']['id'], done['edits'], done['detached']) == (two_turns[0], None, [])


def test_turn_after_checkout_continues_from_that_version(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    invoke('checkout', 'HEAD~2')
    model = ScriptedModel(WRITE, 'Wrote.')
    result = invoke('run', 'Else', '--continue', ALLOW, model=model)
    assert len(model.requests[0].messages) == 1
    assert (result.exit_code, (work / 'new.txt').exists()) == (0, True)
    assert invoke('log').stdout.count('HEAD') == 1


def test_checkout_refuses_a_version_of_another_directory(invoke: Invoke, two_turns: list[str], tmp_path: Path) -> None:
    other = tmp_path / 'other'
    other.mkdir()
    result = invoke('checkout', two_turns[0], '--dir', str(other))
    assert result.exit_code == 2
    assert 'belongs to another directory' in result.stderr
    assert list(other.iterdir()) == []


def test_merge_contains_the_files_of_both_versions(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    write = call('write_file', path='/other.txt', content='1\n')
    invoke('branch', 'side', 'Else', '--from', 'HEAD~', ALLOW, model=ScriptedModel(write, 'Else.'))
    side = ids(invoke)[-1]
    result = invoke('merge', 'HEAD', side[-8:])
    merged = ids(invoke)[-1][-8:]
    assert result.stdout == (
        f'version {merged} has the changes of both: 1 file merged in.\n'
        f'To check out its files: pydantic-deep checkout {merged}\n'
    )
    assert not (work / 'other.txt').exists()
    invoke('checkout', merged)
    assert sorted(path.name for path in work.iterdir()) == ['new.txt', 'other.txt', 'poem.txt']
    assert f'with {side[-8:]}' in invoke('log').stdout
    details = invoke('show').stdout
    assert f'from         {two_turns[2]} and {side}' in details


@pytest.fixture
def conflicts(invoke: Invoke, two_turns: list[str], work: Path) -> None:
    """A branch `side` and HEAD whose changes of two files conflict."""
    invoke('branch', 'side', 'Else', '--from', 'HEAD~2', ALLOW, model=ScriptedModel(WRITE_SIDE, EDIT_SIDE, 'Else.'))


def test_conflicting_merge_creates_no_version(invoke: Invoke, conflicts: None) -> None:
    side = ids(invoke)[-1]
    result = invoke('merge', 'HEAD', side)
    assert (result.exit_code, result.stdout) == (1, '')
    assert result.stderr.splitlines()[0].startswith('conflict /new.txt: ')
    assert ids(invoke)[-1] == side
    found = invoke('merge', 'HEAD', side, '--json')
    assert (found.exit_code, json.loads(found.stdout)['version']) == (1, None)
    assert [each['path'] for each in json.loads(found.stdout)['conflicts']] == ['/new.txt', '/poem.txt']


def test_a_conflict_names_the_commands_that_decide_it(invoke: Invoke, conflicts: None) -> None:
    """The message of a conflict has complete commands, with the sides that are chosen already."""
    assert invoke('merge', 'HEAD', 'side').stderr == snapshot("""\
conflict /new.txt: add/add
conflict /poem.txt: content
Both made conflicting changes, and no version was created. Choose a side for all conflicts, or file by file:
  pydantic-deep merge HEAD side --ours
  pydantic-deep merge HEAD side --theirs
  pydantic-deep merge HEAD side --choose /new.txt=theirs
""")
    assert invoke('merge', 'HEAD', 'side', '--choose', 'new.txt=ours').stderr == snapshot("""\
conflict /poem.txt: content
Both made conflicting changes, and no version was created. Choose a side for all conflicts, or file by file:
  pydantic-deep merge HEAD side --choose=new.txt=ours --ours
  pydantic-deep merge HEAD side --choose=new.txt=ours --theirs
  pydantic-deep merge HEAD side --choose=new.txt=ours --choose /poem.txt=theirs
""")


@pytest.mark.parametrize(
    ('options', 'new', 'poem'),
    [
        (['--ours'], 'new\n', 'rose\nlily\n'),
        (['--theirs'], 'side\n', 'rose\noak\n'),
        (['--choose', '/new.txt=theirs', '--ours'], 'side\n', 'rose\nlily\n'),
        (['--choose', '/new.txt=ours', '--choose', 'poem.txt=theirs'], 'new\n', 'rose\noak\n'),
    ],
)
def test_merge_keeps_the_chosen_sides_of_conflicts(
    invoke: Invoke, conflicts: None, work: Path, options: list[str], new: str, poem: str
) -> None:
    """`--ours` and `--theirs` decide all conflicts, and `--choose` those of single files."""
    assert invoke('merge', 'HEAD', 'side', *options).exit_code == 0
    invoke('checkout', ids(invoke)[-1])
    assert ((work / 'new.txt').read_text(), (work / 'poem.txt').read_text()) == (new, poem)


def test_merge_as_json_has_the_chosen_sides(invoke: Invoke, conflicts: None) -> None:
    merged = document(invoke('merge', 'HEAD', 'side', '--choose', '/new.txt=theirs', '--ours', '--json'))
    assert (merged['conflicts'], merged['choices']) == ([], {'/new.txt': 'theirs', '/poem.txt': 'ours'})


@pytest.mark.parametrize(
    ('options', 'problem'),
    [
        (['--ours', '--theirs'], 'choose one of --ours and --theirs.'),
        (['--choose', 'new.txt=mine'], "'new.txt=mine' chooses no side. Write PATH=ours or PATH=theirs."),
        (['--choose', '=ours'], "'=ours' chooses no side."),
        (['--choose', '/other.txt=ours'], "These choices have no side or no conflict: '/other.txt'."),
    ],
)
def test_merge_refuses_choices_without_meaning(
    invoke: Invoke, conflicts: None, options: list[str], problem: str
) -> None:
    result = invoke('merge', 'HEAD', 'side', *options)
    assert (result.exit_code, result.stdout) == (2, '')
    assert problem in result.stderr


def test_merge_of_an_ancestor_creates_no_version(invoke: Invoke, two_turns: list[str]) -> None:
    write = call('write_file', path='/other.txt', content='1\n')
    invoke('branch', 'side', 'Else', '--from', 'HEAD~', ALLOW, model=ScriptedModel(write, 'Else.'))
    invoke('checkout', document(invoke('merge', 'HEAD', 'side', '--json'))['version']['id'])
    steps = [row['id'] for row in document(invoke('log', '--steps', '--json')) if row['kind'] == 'step']
    before = ids(invoke)
    for other in ('HEAD', two_turns[0], 'side', *steps):
        result = invoke('merge', 'HEAD', other)
        assert (result.exit_code, result.stdout, result.stderr) == (0, 'Already up to date.\n', '')
    assert document(invoke('merge', 'HEAD', 'HEAD', '--json')) == {'version': None, 'conflicts': [], 'choices': {}}
    assert ids(invoke) == before
    forward = document(invoke('merge', 'HEAD~2', 'side', '--json'))
    assert forward['version']['kind'] == 'merge'


def test_merge_refuses_versions_without_a_common_ancestor(invoke: Invoke, two_turns: list[str]) -> None:
    invoke('run', 'Another', model=ScriptedModel('Done.'))
    result = invoke('merge', two_turns[2], 'HEAD')
    assert result.exit_code == 1
    assert 'have no common ancestor' in result.stderr


def make_anew(work: Path) -> None:
    """Replace the working directory with a new one at the same path."""
    shutil.rmtree(work)
    work.mkdir()
    os.chdir(work)


def test_turn_in_a_recreated_directory_restores_the_files_of_head(
    invoke: Invoke, two_turns: list[str], work: Path
) -> None:
    make_anew(work)
    result = invoke('run', 'On', '--continue', ALLOW, model=ScriptedModel('Going on.'))
    assert result.exit_code == 0
    assert sorted(path.name for path in work.iterdir()) == ['new.txt', 'poem.txt']
    rows = document(invoke('log', '--json'))
    assert [(row['kind'], row['files_changed']) for row in rows[:1]] == [('turn', [])]
    assert rows[1]['id'] == two_turns[-1]


@pytest.mark.parametrize('command', ['checkout', 'rewind'])
def test_checkout_and_rewind_create_a_missing_directory(
    invoke: Invoke, two_turns: list[str], work: Path, command: str
) -> None:
    os.chdir(work.parent)
    shutil.rmtree(work)
    assert invoke(command, 'HEAD', '--dir', str(work)).exit_code == 0
    assert sorted(path.name for path in work.iterdir()) == ['new.txt', 'poem.txt']
    os.chdir(work)
    assert ids(invoke) == two_turns


def test_recreated_directory_with_other_files_is_refused_until_forced(
    invoke: Invoke, two_turns: list[str], work: Path
) -> None:
    make_anew(work)
    (work / 'mine.txt').write_text('mine\n')
    result = invoke('run', 'On', '--continue', ALLOW, model=ScriptedModel('Never.'))
    assert result.exit_code == 1
    assert (
        f'{work} is not the directory that had the files of the version {two_turns[-1]}: it was recreated, or is on '
        'another machine. It has files that the version does not have: /mine.txt. Empty it, or store them as a version '
        f'first: pydantic-deep checkout {two_turns[-1][-8:]} --force (then check that version out to continue with them)'
    ) in result.stderr
    assert [path.name for path in work.iterdir()] == ['mine.txt']
    forced = invoke('checkout', two_turns[-1][-8:], '--force')
    kept = forced.stdout.split()[-1]
    assert sorted(path.name for path in work.iterdir()) == ['new.txt', 'poem.txt']
    assert invoke('checkout', kept).exit_code == 0
    assert [path.name for path in work.iterdir()] == ['mine.txt']


def test_too_many_files_are_reported_with_the_limit(
    invoke: Invoke, two_turns: list[str], work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn and a checkout exit with code 1 and change nothing."""
    for number in range(10):
        (work / f'{number}.txt').write_text('')
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 5)
    for arguments in (['run', 'On', '--continue', ALLOW], ['checkout', 'HEAD~1']):
        result = invoke(*arguments, model=ScriptedModel('Never.'))
        assert result.exit_code == 1
        assert 'more than 5 files and directories, the most for one call. List unneeded files' in result.stderr
    assert len(list(work.iterdir())) == 12


def test_unstorable_file_in_a_recreated_directory_must_be_moved(
    invoke: Invoke, two_turns: list[str], work: Path
) -> None:
    make_anew(work)
    (work / 'poem.txt').symlink_to('/elsewhere')
    result = invoke('run', 'On', '--continue', ALLOW, model=ScriptedModel('Never.'))
    assert result.exit_code == 1
    assert '/poem.txt. Move them away: some of them cannot be stored in a version.' in result.stderr
