"""Arguments of other types are refused with advice when a backend is created."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from pydantic_deep_backends import (
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    SandboxBackend,
    SandboxLimits,
    StateBackend,
)


@pytest.mark.parametrize('wrong', ['work', Path('work'), StateBackend, None, 5])
def test_backend_on_a_path_or_class_is_refused(wrong: Any) -> None:
    mounted = partial(CompositeBackend, StateBackend())
    attempts: list[tuple[Callable[[Any], object], Any]] = [
        (ReadOnlyBackend, wrong),
        (OverlayBackend, wrong),
        (partial(CompositeBackend, mounts={}), wrong),
        (mounted, {'/docs': wrong}),
    ]
    for create, backend in attempts:
        with pytest.raises(TypeError, match=r'is not a backend\. Pass one, such as `LocalBackend\(directory\)`\.'):
            create(backend)


@pytest.mark.parametrize('contents', [5, None, ['text']])
def test_files_in_memory_have_texts_or_bytes(contents: Any) -> None:
    """A number is no contents: `bytes(5)` would be five zeros."""
    with pytest.raises(TypeError, match=r'`data` is \w+\. Pass bytes'):
        StateBackend({'/notes.md': contents})


@pytest.mark.parametrize('files', ['/notes.md', ['/notes.md']])
def test_files_in_memory_are_a_mapping(files: Any) -> None:
    with pytest.raises(TypeError, match=r'`files` is \w+\. Pass paths and contents'):
        StateBackend(files)


@pytest.mark.parametrize(
    ('option', 'value', 'advice'),
    [
        ('root', None, '`root` is None. Pass a directory'),
        ('root', 5, '`root` is 5. Pass a directory'),
        ('runner', 'bash', "`runner` is 'bash'. Pass an async function"),
        ('protected', [1], r'`protected` is \[1\]. Pass a list of strings'),
        ('protected', 5, '`protected` is 5. Pass a list of strings'),
    ],
)
def test_options_of_a_directory(tmp_path: Path, option: str, value: Any, advice: str) -> None:
    with pytest.raises((TypeError, ValueError), match=advice):
        LocalBackend(**cast('dict[str, Any]', {'root': tmp_path, option: value}))


@pytest.mark.parametrize(
    ('option', 'value', 'advice'),
    [
        ('network', 'none', "`network` is 'none'. Pass True or False"),
        ('env', 'HOME', r"`env` is the string 'HOME'. Pass a list: `\['HOME'\]`"),
        ('env', [1], r'`env` is \[1\]. Pass a list of strings'),
        ('env', {'LEVEL': 5}, "The variable 'LEVEL' is 5. Pass a string"),
        ('read_only', ['/usr/share'], '`read_only` is .* Pass a mapping'),
        ('limits', {'timeout_seconds': 5}, '`limits` is .* Pass `SandboxLimits'),
    ],
)
def test_options_of_a_sandbox(tmp_path: Path, option: str, value: Any, advice: str) -> None:
    with pytest.raises(TypeError, match=advice):
        SandboxBackend(tmp_path, **{option: value})


@pytest.mark.parametrize(
    ('limit', 'value', 'wanted'),
    [
        ('cpu_seconds', 1.5, 'whole'),
        ('memory_bytes', 2e9, 'whole'),
        ('processes', True, 'whole'),
        ('disk_bytes', 10**30, 'whole'),
        ('timeout_seconds', '60', 'finite'),
    ],
)
def test_limits_of_a_sandbox(limit: str, value: Any, wanted: str) -> None:
    with pytest.raises(ValueError, match=f'`{limit}` is .* Pass a positive, {wanted} number'):
        SandboxLimits(**{limit: value})


@pytest.mark.parametrize('path', [Path('/a/b'), Path('/a/../b'), 5, None, ['/a']])
async def test_paths_are_strings(tmp_path: Path, path: Any) -> None:
    for backend in (StateBackend(), LocalBackend(tmp_path)):
        for operation in (backend.read_bytes(path), backend.write_bytes(path, b''), backend.glob('*', path=path)):
            with pytest.raises(
                TypeError, match=r"is not a path of a backend\. Pass a string, such as '/notes/plan\.md'\."
            ):
                await operation
