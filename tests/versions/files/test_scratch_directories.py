"""Scratch directories for views: one per process, with a reusable name; those of crashed processes are removed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from pydantic_deep.versions.files import _scratch_directories
from pydantic_deep.versions.files._scratch_directories import Scratch

NAME = 'pydantic-deep-view-abcdefgh'


def test_nothing_is_created_before_it_is_needed(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, None)
    assert scratch.name is None
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_scratch_has_empty_private_directories(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path, None)
    one, two = scratch.make_directory(), scratch.make_directory()
    assert one.parent == two.parent == tmp_path / str(scratch.name)
    assert (one != two, list(one.iterdir()), one.parent.stat().st_mode & 0o777) == (True, [], 0o700)
    scratch.remove()
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_scratch_name_can_be_reused_when_it_is_free(tmp_path: Path) -> None:
    first = Scratch(tmp_path, None)
    path = first.make_directory()
    beside = Scratch(tmp_path, first.name)
    assert beside.make_directory().parent != path.parent
    first.remove()
    again = Scratch(tmp_path, path.parent.name)
    assert again.make_directory() == path
    again.remove()
    assert beside.name is not None
    assert (tmp_path / beside.name).exists()
    beside.remove()


@pytest.mark.parametrize('name', ['../pydantic-deep-view-abcdefgh', '.ssh', '/etc', f'{NAME}/a', f'{NAME}\n', ''])
def test_invalid_scratch_name_is_not_used(tmp_path: Path, name: str) -> None:
    scratch = Scratch(tmp_path, name)
    path = scratch.make_directory()
    assert path.parent.parent == tmp_path
    assert path.parent.name != name
    scratch.remove()


@pytest.mark.slow
def test_scratch_of_a_crashed_process_is_removed_and_of_a_live_one_preserved(tmp_path: Path) -> None:
    killed = (
        'import os, sys\n'
        'from pydantic_deep.versions.files._scratch_directories import Scratch\n'
        f'(Scratch(sys.argv[1], {NAME!r}).make_directory() / "file").write_text("left")\n'
        'os.kill(os.getpid(), 9)\n'
    )
    run([sys.executable, '-c', killed, str(tmp_path)], check=False)
    living = Scratch(tmp_path, None)
    assert (tmp_path / NAME / '1' / 'file').exists()
    living.make_directory()
    assert [path.name for path in tmp_path.iterdir()] == [living.name]
    again = Scratch(tmp_path, NAME)
    assert list(again.make_directory().iterdir()) == []
    again.remove()
    living.remove()


def test_link_or_file_with_a_scratch_name_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / 'elsewhere').mkdir()
    (tmp_path / 'elsewhere' / 'mine').write_text('mine')
    (tmp_path / NAME).symlink_to(tmp_path / 'elsewhere')
    (tmp_path / NAME.replace('a', 'b')).write_text('mine')
    scratch = Scratch(tmp_path, NAME)
    assert scratch.make_directory().parent.name != NAME
    scratch.remove()
    assert (tmp_path / 'elsewhere' / 'mine').exists()
    assert (tmp_path / NAME.replace('a', 'b')).exists()


def test_scratch_of_another_user_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / NAME).mkdir()
    me = os.geteuid()
    with monkeypatch.context() as patched:  # tests run as a single user
        patched.setattr(_scratch_directories.os, 'geteuid', lambda: me + 1)
        _scratch_directories.sweep(tmp_path)
    assert (tmp_path / NAME).exists()


def test_scratch_removed_during_its_creation_is_created_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = _scratch_directories.lock_directory, list[Path]()

    def swept(path: Path) -> int | None:
        calls.append(path)
        if len(calls) < 3:
            path.rmdir()
        return lock(path)

    monkeypatch.setattr(_scratch_directories, 'lock_directory', swept)  # the window is too short to hit reliably
    scratch = Scratch(tmp_path, NAME)
    assert scratch.make_directory().parent == calls[2]
    assert (calls[0].name, len(calls)) == (NAME, 3)
    scratch.remove()


def test_unsupported_locks_raise_and_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        return None

    monkeypatch.setattr(_scratch_directories, 'lock_directory', refuse)  # as on a network disk
    with pytest.raises(OSError, match=r'Directories cannot be locked here\. Set TMPDIR to one on a local disk'):
        Scratch(tmp_path, NAME).make_directory()
    assert [path.name for path in tmp_path.iterdir()] in ([], [NAME])
