"""Which files a turn changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.cli._events import FileChange
from pydantic_deep.cli._watched import WatchedBackend, describe_change
from pydantic_deep_backends import FileChangedError, digest_of

pytestmark = pytest.mark.anyio


async def test_a_change_is_taken_once_and_counted_from_the_beginning(work: Path) -> None:
    backend = WatchedBackend(str(work))
    await backend.write_bytes('/poem.txt', b'rose\nlily\n')
    first = await backend.take_changes()
    await backend.write_bytes('/poem.txt', b'rose\nlily\noak\n')
    assert first == [FileChange(path='/poem.txt', change='changed', added_lines=1, removed_lines=1)]
    assert await backend.take_changes() == [
        FileChange(path='/poem.txt', change='changed', added_lines=2, removed_lines=1)
    ]
    assert await backend.take_changes() == []


async def test_a_swap_is_a_change_and_a_refused_one_is_not(work: Path) -> None:
    backend = WatchedBackend(str(work))
    await backend.compare_and_swap('/new.txt', b'a\n', expected=None)
    with pytest.raises(FileChangedError):
        await backend.compare_and_swap('/poem.txt', b'a\n', expected=digest_of(b'other'))
    assert await backend.all_changes() == [
        FileChange(path='/new.txt', change='created', added_lines=1, removed_lines=0)
    ]


async def test_two_spellings_of_a_path_are_one_file(work: Path) -> None:
    (work / 'link.txt').symlink_to('poem.txt')
    backend = WatchedBackend(str(work))
    await backend.write_bytes('/link.txt', b'oak\n')
    await backend.write_bytes('/poem.txt', b'oak\nelm\n')
    assert [(c.path, c.added_lines, c.removed_lines) for c in await backend.all_changes()] == [('/poem.txt', 2, 2)]


async def test_a_file_that_is_as_it_was_has_not_changed(work: Path) -> None:
    backend = WatchedBackend(str(work))
    await backend.write_bytes('/poem.txt', b'')
    await backend.write_bytes('/poem.txt', b'rose\nviolet\n')
    assert await backend.take_changes() == []
    assert await backend.all_changes() == []


@pytest.mark.parametrize(
    ('before', 'after', 'expected'),
    [
        (None, None, None),
        (b'a', b'a', None),
        (None, b'a\nb\n', ('created', 2, 0)),
        (None, b'', ('created', 0, 0)),
        (b'a\nb\n', None, ('removed', 0, 2)),
        (b'a\nb\n', b'b\na\n', ('changed', 0, 0)),
        (b'a\na\n', b'a\n', ('changed', 0, 1)),
        (b'\xff\n', b'\xfe\n', ('changed', 1, 1)),
    ],
)
def test_lines_are_counted(before: bytes | None, after: bytes | None, expected: tuple[str, int, int] | None) -> None:
    change = describe_change('/f', before, after)
    assert (change and (change.change, change.added_lines, change.removed_lines)) == expected
