"""The errors of the backends."""

from __future__ import annotations

import pickle
import re

import pytest

from pydantic_deep_backends import errors
from pydantic_deep_backends.errors import (
    BackendError,
    FileChangedError,
    InvalidPathError,
    MissingBlobError,
    OutsideRootError,
    ReadOnlyError,
    ScanLimitError,
)


def documented_errors() -> dict[str, tuple[str, str | None]]:
    """Return the names in the tree of the module's docstring, with the builtin base class of each."""
    assert errors.__doc__ is not None
    above = ['BackendError']
    found: dict[str, tuple[str, str | None]] = {}
    for line in errors.__doc__.splitlines():
        if (entry := re.match(r'([│ ]*)[├└]── (\w+) +(?:\((\w+)\))?', line)) is not None:
            depth = len(entry[1]) // 4 + 1
            del above[depth:]
            found[entry[2]] = (above[-1], entry[3])
            above.append(entry[2])
    return found


def test_tree_in_the_docstring_has_every_error_with_its_base_classes() -> None:
    classes = {name: value for name, value in vars(errors).items() if isinstance(value, type)}
    defined = {name for name, value in classes.items() if issubclass(value, BackendError)} - {'BackendError'}
    assert {*documented_errors()} == defined
    for name, (parent, builtin) in documented_errors().items():
        bases = {base.__name__ for base in classes[name].__bases__}
        assert bases == {parent} | ({builtin} if builtin else set())


@pytest.mark.parametrize(
    ('error', 'message'),
    [
        (
            MissingBlobError(tuple(f'/{n}' for n in range(7))),
            "The contents of '/0', '/1', '/2', '/3', '/4' and 2 more are not known. "
            'Pass `read_blob=` to fetch them by digest.',
        ),
        (
            OutsideRootError('/a', root='/workspace'),
            "'/a' is outside of '/workspace', where nothing can be written. Use a path below it.",
        ),
        (
            OutsideRootError('/link'),
            "'/link' leads outside of the root through a symbolic link. Use a path inside it.",
        ),
        (ReadOnlyError('/a'), "'/a' is read-only. Write to another path."),
        (
            FileChangedError('/a', expected=None, actual='sha256:0'),
            "'/a' changed since it was read. Read it again, then write.",
        ),
        (
            ScanLimitError('entries', 1_000_000, 'Use a smaller one.'),
            'The directory has more than 1,000,000 files and directories, the most for one call. Use a smaller one.',
        ),
        (
            ScanLimitError('depth', 4_096, 'Move it.', path='/' + 'd' * 5_000),
            f"The path '/{'d' * 79}'… is longer than 4,096 bytes, the most for a path. Move it.",
        ),
    ],
)
def test_message_states_the_problem_and_the_remedy(error: BackendError, message: str) -> None:
    assert str(error) == message


def test_long_path_is_shown_by_its_beginning() -> None:
    error = InvalidPathError('x' * 5_000, 'it is too long.')
    assert (error.path, len(str(error)) < 250) == ('x' * 5_000, True)


def test_error_crosses_processes_with_its_message_and_attributes() -> None:
    for error in (OutsideRootError('/a'), FileChangedError('/a', expected=None, actual='b'), MissingBlobError(('/a',))):
        copied = pickle.loads(pickle.dumps(error))
        assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
