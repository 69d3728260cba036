"""The errors of the framework."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from pydantic_deep import errors
from pydantic_deep.errors import DeepAgentError, InvalidUploadError, UploadNotFoundError, UploadTooLargeError
from tests.public_modules import public_modules, public_names


class Documented(NamedTuple):
    """An error in the tree of the module's docstring."""

    name: str
    parent: str
    """The error that it stands below."""
    package: str
    """The package that exports it."""


def documented_errors() -> Iterator[Documented]:
    assert errors.__doc__ is not None
    above: list[tuple[int, str]] = [(-1, 'DeepAgentError')]
    for line in errors.__doc__.splitlines():
        if (entry := re.search(r'[├└]── (?:in `([\w.]+)`|(\w+))', line)) is None:
            continue
        while above[-1][0] >= entry.start():
            above.pop()
        names = [name for _, name in above]
        if entry[2] is not None:
            parent = next(name for name in reversed(names) if '.' not in name)
            package = next((name for name in reversed(names) if '.' in name), 'pydantic_deep.errors')
            yield Documented(entry[2], parent, package)
        above.append((entry.start(), entry[1] or entry[2]))


def public_errors() -> set[type[DeepAgentError]]:
    values = (value for module in public_modules() for value in public_names(module).values())
    return {value for value in values if isinstance(value, type) and issubclass(value, DeepAgentError)}


def test_tree_in_the_docstring_has_every_public_error() -> None:
    documented = sorted(each.name for each in documented_errors())
    assert documented == sorted(error.__name__ for error in public_errors() - {DeepAgentError})


@pytest.mark.parametrize('documented', [*documented_errors()], ids=lambda each: each.name)
def test_error_has_the_base_class_and_package_of_the_tree(documented: Documented) -> None:
    error = public_names(documented.package)[documented.name]
    assert isinstance(error, type)
    assert documented.parent in {base.__name__ for base in error.__bases__}


@pytest.mark.parametrize(
    ('error', 'builtin', 'message'),
    [
        (UploadNotFoundError('a.csv'), LookupError, "There is no upload 'a.csv'. See `uploads` for existing ones."),
        (
            UploadTooLargeError('a.csv', 2_000, 1_000),
            ValueError,
            "The upload 'a.csv' has 2,000 bytes; at most 1,000 can be stored. Split it.",
        ),
        (
            InvalidUploadError('../a', 'it leads outside.'),
            ValueError,
            "name: '../a' cannot be the name of an upload: it leads outside.",
        ),
    ],
)
def test_upload_error_is_a_builtin_and_states_the_remedy(
    error: DeepAgentError, builtin: type[Exception], message: str
) -> None:
    assert isinstance(error, builtin)
    assert str(error) == message


@pytest.mark.parametrize('kind', sorted(public_errors(), key=str))
def test_error_crosses_processes_with_its_message_and_attributes(kind: type[DeepAgentError]) -> None:
    """A pool of processes breaks on an exception that cannot be unpickled."""
    new: Any = OSError.__new__ if issubclass(kind, OSError) else Exception.__new__
    error: DeepAgentError = new(kind)
    error.args = ('There is none. Create one.',)
    vars(error)['field'] = 'name'
    error.add_note('The run is stored.')
    copied = pickle.loads(pickle.dumps(error))
    assert (type(copied), copied.args, vars(copied)) == (kind, error.args, vars(error))


def test_long_name_is_shown_by_its_beginning() -> None:
    assert 'x' * 200 + "'" in str(UploadNotFoundError('x' * 5_000))
    assert len(str(UploadNotFoundError('x' * 5_000))) < 300
