"""Deps: uploads, clones for subagents, and serialization as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai.usage import UsageLimits

from pydantic_deep import DeepAgentDeps, DeepAgentError, InvalidUploadError, LocalBackend, StateBackend, Todo, Upload

if TYPE_CHECKING:
    from pathlib import PurePath

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class TenantDeps(DeepAgentDeps):
    tenant: str = 'acme'
    connection: object = field(default=None, metadata={'live': True})


class Connection:
    """Something that JSON cannot represent."""


async def test_upload_is_written_and_described() -> None:
    deps = DeepAgentDeps()
    upload = await deps.upload('2026/sales.csv', b'region,sum\nnorth,1\n')
    assert upload == Upload(
        name='2026/sales.csv',
        path='/uploads/2026/sales.csv',
        size_bytes=19,
        encoding='utf-8',
        line_count=2,
        media_type='text/csv',
    )
    assert await deps.backend.read_bytes('/uploads/2026/sales.csv') == b'region,sum\nnorth,1\n'
    assert deps.uploads == {'2026/sales.csv': upload}


async def test_upload_without_a_known_encoding_succeeds() -> None:
    upload = await DeepAgentDeps().upload('blob', bytes(range(256)))
    assert (upload.encoding, upload.line_count, upload.media_type) == (None, None, 'application/octet-stream')


async def test_upload_replaces_one_of_the_same_name() -> None:
    deps = DeepAgentDeps()
    await deps.upload('a.txt', b'old')
    await deps.upload('./a.txt', b'new')
    assert [u.size_bytes for u in deps.uploads.values()] == [3]
    assert await deps.backend.read_bytes('/uploads/a.txt') == b'new'


@pytest.mark.parametrize(
    'name',
    [
        '',
        '.',
        '..',
        '../evil.txt',
        '../../evil.txt',
        'a/../../b',
        '/etc/passwd',
        '//srv/x',
        '~/x',
        'C:\\x',
        'a\\b',
        'a\0b',
        'a\nb',
        'x' * 300,
    ],
)
async def test_upload_name_outside_the_uploads_is_refused(name: str, tmp_path: pytest.TempPathFactory) -> None:
    deps = DeepAgentDeps(backend=LocalBackend(str(tmp_path)))
    with pytest.raises(InvalidUploadError, match='cannot be the name of an upload') as refused:
        await deps.upload(name, b'x')
    assert refused.value.name == name
    assert deps.uploads == {}
    assert await deps.backend.list_dir('/') == []


@pytest.mark.parametrize('is_local', [True, False])
async def test_upload_in_the_place_of_a_directory_or_below_a_file_is_refused(is_local: bool, tmp_path: Path) -> None:
    deps = DeepAgentDeps(backend=LocalBackend(str(tmp_path)) if is_local else StateBackend())
    await deps.upload('2026/a.txt', b'x')
    with pytest.raises(InvalidUploadError, match=r"^name: '2026' cannot .*: it is a directory\. Use another name\.$"):
        await deps.upload('2026', b'x')
    with pytest.raises(InvalidUploadError, match='a parent of it is a file'):
        await deps.upload('2026/a.txt/b', b'x')
    assert list(deps.uploads) == ['2026/a.txt']


async def test_subagent_deps_share_only_files_and_uploads() -> None:
    deps = TenantDeps(todos=[Todo(content='mine')], subagents={'x': object()}, tenant='umbrella')
    await deps.upload('a.txt', b'1')
    clone = deps.clone_for_subagent()
    assert (clone.todos, clone.subagents, clone.max_depth, clone.tenant) == ([], {}, 0, 'umbrella')
    assert clone.backend is deps.backend
    assert clone.uploads is deps.uploads
    assert deps.todos == [Todo(content='mine')]
    assert DeepAgentDeps().max_depth is None


async def test_json_contains_everything_except_live_fields() -> None:
    deps = TenantDeps(
        todos=[Todo(content='plan', status='completed')],
        usage_limits=UsageLimits(request_limit=7),
        metadata={'ticket': 4, 'tags': ['a']},
        tenant='umbrella',
        connection=object(),
    )
    await deps.upload('é.txt', 'naïve'.encode())
    backend = StateBackend()
    again = TenantDeps.from_json(deps.to_json(), backend=backend, connection='new')
    assert (again.todos, again.uploads, again.usage_limits) == (deps.todos, deps.uploads, deps.usage_limits)
    assert (again.metadata, again.tenant, again.backend, again.connection) == (
        deps.metadata,
        'umbrella',
        backend,
        'new',
    )
    assert again.subagents == {}


def test_nan_in_metadata_is_refused() -> None:
    with pytest.raises(DeepAgentError, match='NaN or infinity'):
        DeepAgentDeps(metadata={'score': float('nan')}).to_json()


async def test_refused_upload_name_error_suggests_a_fix() -> None:
    with pytest.raises(InvalidUploadError, match='Remove'):
        await DeepAgentDeps().upload('../x', b'')


def test_deps_share_no_defaults() -> None:
    one, other = DeepAgentDeps(), DeepAgentDeps()
    assert one.backend is not other.backend
    assert one.todos is not other.todos
    assert one.uploads is not other.uploads


def test_unserializable_field_is_named() -> None:
    @dataclass(kw_only=True)
    class Connected(DeepAgentDeps):
        connection: object = None

    with pytest.raises(DeepAgentError, match=r"the field 'connection': .*'live': True"):
        Connected(connection=object()).to_json()


def test_field_of_a_type_that_json_cannot_represent_is_named() -> None:
    """The usual cause is a connection that is not marked as live."""

    @dataclass(kw_only=True)
    class Connected(DeepAgentDeps):
        connection: Connection

    message = r"the type of the field 'connection', <class .*Connection'>\. Mark it `field\(metadata={'live': True}\)`"
    with pytest.raises(DeepAgentError, match=message):
        Connected(connection=Connection()).to_json()


def test_type_that_is_not_defined_at_run_time_is_named() -> None:
    @dataclass(kw_only=True)
    class Typed(DeepAgentDeps):
        path: PurePath | None = field(default=None, metadata={'live': True})

    message = (
        r"of Typed are needed at run time: name 'PurePath' is not defined\. Import it outside of `if TYPE_CHECKING:`"
    )
    with pytest.raises(DeepAgentError, match=message):
        Typed().to_json()


def test_undecodable_bytes_field_is_named() -> None:
    @dataclass(kw_only=True)
    class Signed(DeepAgentDeps):
        signature: bytes = b''

    assert Signed.from_json(Signed(signature=b'ada').to_json()).signature == b'ada'
    with pytest.raises(DeepAgentError, match=r"the field 'signature': .*0xff.*'live': True"):
        Signed(signature=b'\xff').to_json()


def test_json_of_another_class_is_refused_with_its_fields() -> None:
    with pytest.raises(DeepAgentError, match='DeepAgentDeps has no tenant'):
        DeepAgentDeps.from_json(TenantDeps(tenant='acme').to_json())


@pytest.mark.parametrize('fields', ['"todos": [{"content": 1}]', '"nothing": 1, "todos": 3', '"max_depth": "x"'])
def test_json_with_invalid_values_is_refused(fields: str) -> None:
    with pytest.raises(DeepAgentError):
        DeepAgentDeps.from_json('{"format": "pydantic-deep.deps", "format_version": 1, %s}' % fields)  # noqa: UP031


def test_missing_required_field_in_json_is_reported() -> None:
    @dataclass(kw_only=True)
    class Owned(DeepAgentDeps):
        owner: str

    with pytest.raises(DeepAgentError, match=r'These are not valid Owned: .*owner'):
        Owned.from_json(DeepAgentDeps().to_json())


async def test_upload_of_a_string_is_refused() -> None:
    text: Any = 'text'
    with pytest.raises(TypeError, match=r'`data` is str. Pass bytes'):
        await DeepAgentDeps().upload('a.txt', text)


@pytest.mark.parametrize(
    'text', ['nonsense', '[]', '{}', '{"format": "else", "format_version": 1}', '{"format": "pydantic-deep.deps"}']
)
def test_unrelated_json_is_refused(text: str) -> None:
    with pytest.raises(DeepAgentError, match=r'not written by `DeepAgentDeps\.to_json`'):
        DeepAgentDeps.from_json(text)


def test_json_of_a_newer_format_version_is_refused() -> None:
    with pytest.raises(DeepAgentError, match='format version 2, but this release reads up to 1'):
        DeepAgentDeps.from_json('{"format": "pydantic-deep.deps", "format_version": 2}')


@pytest.mark.parametrize('depth', [-1, 'x', 0.5])
def test_invalid_depth_is_refused(depth: Any) -> None:
    with pytest.raises(ValueError, match=r'DeepAgentDeps\(max_depth=.*\): pass the maximum number of levels'):
        DeepAgentDeps(max_depth=depth)


def test_invalid_depth_in_json_is_refused() -> None:
    text = DeepAgentDeps(max_depth=1).to_json().replace('"max_depth": 1', '"max_depth": -1')
    with pytest.raises(DeepAgentError, match=r'These are not valid DeepAgentDeps: .*max_depth=-1'):
        DeepAgentDeps.from_json(text)
