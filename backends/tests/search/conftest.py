"""Fixtures and helpers for search tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from pydantic_deep_backends.search import GrepResult
from pydantic_deep_backends.search._cases import GLOB_FILES, GREP_FILES
from pydantic_deep_backends.search._grep import GrepBuilder, compile_grep

components = st.sampled_from(['a', 'b.py', '.env', '.h', 'ab', '.'])


pieces = st.sampled_from(
    ['a', 'b', '.', '*', '?', '[ab]', '[!a]', '[^.]', '.py', '.*', '*.py', '.env', '{a,b}', '{,a}', '{.h,*}']
)


glob_components = st.lists(pieces, min_size=1, max_size=3).map(''.join) | st.just('**') | st.just('{a,{b,**}}')


globs = st.lists(glob_components, min_size=1, max_size=4).map('/'.join)


class DirectoryTree:
    """A directory on disk, listed and read like in the local backend."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._current = root
        self.scanned: list[str] = []
        self.read_count = 0

    def scan(self, directory: str) -> Iterator[tuple[str, bool]]:
        self.scanned.append(directory)
        self._current = self._root / directory
        with os.scandir(self._current) as entries:
            yield from [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]

    def read(self, name: str) -> bytes:
        self.read_count += 1
        return (self._current / name).read_bytes()


def write_files(root: Path, files: dict[str, bytes]) -> Path:
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    return root


def grep_files(pattern: str, *files: bytes, limit: int = 1000) -> GrepResult:
    builder = GrepBuilder(compile_grep(pattern), limit)
    for index, data in enumerate(files):
        builder.add(f'/{index}', data)
    return builder.result()


def lines_of(pattern: str, data: bytes) -> list[tuple[int, str]]:
    return [(match.line_number, match.line) for match in grep_files(pattern, data).matches]


@pytest.fixture(scope='module')
def glob_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp('glob'), dict.fromkeys(GLOB_FILES, b''))


@pytest.fixture(scope='module')
def grep_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp('grep'), dict(GREP_FILES))
