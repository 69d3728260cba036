"""Descriptions of backends, and the backends that they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from pydantic_ai.workspaces import WorkspaceRef

from pydantic_deep.versions import OmittedFile, workspace_key
from pydantic_deep.versions.files._backend_descriptions import (
    attach_backend,
    describe_backend,
    omitted_in,
    view_of,
    with_omitted,
    with_view,
)
from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    LocalBackend,
    SandboxBackend,
    StateBackend,
    SupportsCommands,
)

pytestmark = pytest.mark.anyio


async def test_directory_is_attached_as_described(tmp_path: Path) -> None:
    plain, commands, sandbox = (
        describe_backend(backend)
        for backend in (LocalBackend(tmp_path), LocalBackend(tmp_path, allow_commands=True), SandboxBackend(tmp_path))
    )
    assert plain == f'{{"id":"{tmp_path}","provider":"local"}}'
    assert commands == f'{{"commands":true,"id":"{tmp_path}","provider":"local"}}'
    assert sandbox == f'{{"id":"{tmp_path}","provider":"sandbox"}}'
    attached = [attach_backend(description or '') for description in (plain, commands, sandbox)]
    assert [type(backend) for backend in attached] == [LocalBackend, LocalBackend, SandboxBackend]
    assert [isinstance(backend, SupportsCommands) for backend in attached] == [False, True, True]
    assert {workspace_key(description) for description in (plain, commands, sandbox) if description} == {
        f'{{"id":"{tmp_path}","provider":"directory"}}'
    }


async def test_files_in_memory_are_described_but_not_attached() -> None:
    state = StateBackend()
    composite = CompositeBackend(state, {'/m': StateBackend()})
    for backend in (state, composite):
        description = describe_backend(backend)
        assert description is not None
        assert attach_backend(description) is None
        assert json.loads(workspace_key(description)) == json.loads(description)


class WithRef:
    """A backend with a foreign `ref`."""

    def __init__(self, ref: object) -> None:
        self.ref = ref


def test_foreign_workspace_is_described_by_its_ref() -> None:
    def described(ref: object) -> str | None:
        return describe_backend(cast('BackendProtocol', WithRef(ref)))

    assert described(WorkspaceRef(provider='cloud', id='7')) == '{"id":"7","provider":"cloud"}'
    assert described(None) is None
    assert described(7) is None


@pytest.mark.parametrize(
    'description',
    [
        '',
        '[]',
        'null',
        '{"provider":"local"}',
        '{"provider":"local","id":7}',
        '{"provider":"local","id":"relative"}',
        '{"provider":"local","id":"/with\\u0000nul"}',
        '{"provider":"os.system","id":"/"}',
        '{"provider":["local"],"id":"/"}',
    ],
)
def test_invalid_description_attaches_nothing(description: str) -> None:
    assert attach_backend(description) is None


def test_commands_are_allowed_only_by_a_literal_true(tmp_path: Path) -> None:
    for value in ('"true"', '1', '{}', 'null', 'false'):
        backend = attach_backend(f'{{"commands":{value},"id":"{tmp_path}","provider":"local"}}')
        assert not isinstance(backend, SupportsCommands)


NAME = 'pydantic-deep-view-abcdefgh'


def test_view_name_is_stored_in_the_backend_description() -> None:
    assert with_view('{"id":"/w","provider":"local"}', NAME) == f'{{"id":"/w","provider":"local","view":"{NAME}"}}'
    assert with_view(with_view('{"id":"/w"}', NAME), None) == '{"id":"/w"}'
    assert with_view(None, NAME) is None
    assert [view_of(text) for text in (None, '{}', '{"view":1}', f'{{"view":"{NAME}"}}')] == [None, None, None, NAME]


def test_omitted_files_are_removed_from_the_description() -> None:
    described = '{"kind": "local", "id": "x"}'
    omitted = OmittedFile(path='big.bin', reason='too large', size_bytes=7)

    with_one = with_omitted(described, [omitted])
    without = with_omitted(with_one, ())

    assert (omitted_in(with_one), omitted_in(without)) == ((omitted,), ())
    assert 'omitted' not in (without or '')
