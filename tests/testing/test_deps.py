"""Deps for tests, and that the framework does not import the test kit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pydantic_deep import Todo
from pydantic_deep.testing import deps_for_test

pytestmark = pytest.mark.anyio


async def test_given_files_are_in_the_backend() -> None:
    deps = deps_for_test({'/a.txt': 'Grüße', '/deep/b.bin': b'\x00\xff'})
    assert await deps.backend.read_bytes('/a.txt') == 'Grüße'.encode()
    assert await deps.backend.read_bytes('/deep/b.bin') == b'\x00\xff'


async def test_backend_is_empty_without_files() -> None:
    assert await deps_for_test().backend.list_dir('/') == []


async def test_deps_share_no_state() -> None:
    first, second = deps_for_test(), deps_for_test()
    await first.backend.write_bytes('/a', b'1')
    first.todos.append(Todo(content='Plan'))
    assert not await second.backend.exists('/a')
    assert second.todos == []


def test_other_fields_are_passed_on() -> None:
    deps = deps_for_test(todos=[Todo(content='Plan')], metadata={'user': 'ada'}, max_depth=2)
    assert (deps.todos, deps.metadata, deps.max_depth) == ([Todo(content='Plan')], {'user': 'ada'}, 2)


@pytest.mark.slow
def test_the_framework_does_not_import_the_test_kit() -> None:
    code = 'import sys, pydantic_deep; print([m for m in sys.modules if m.startswith("pydantic_deep.testing")])'
    ran = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == '[]'
