"""Arguments of other types are refused with advice when a backend is created."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pydantic_deep_backends import CompositeBackend, OverlayBackend, ReadOnlyBackend, StateBackend


@pytest.mark.parametrize('wrong', ['work', Path('work'), StateBackend, None])
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
