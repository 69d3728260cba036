"""`WrapperBackend`: implemented protocols, and overrides in subclasses."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends import (
    BackendProtocol,
    CompositeBackend,
    LocalBackend,
    OverlayBackend,
    ReadOnlyBackend,
    StateBackend,
    SupportsSearch,
    SupportsSnapshots,
    WrapperBackend,
)

pytestmark = pytest.mark.anyio


def capabilities_of(backend: BackendProtocol) -> set[str]:
    return {kind.__name__ for kind in WrapperBackend.capabilities if isinstance(backend, kind)}


class Plain(WrapperBackend):
    capabilities = ()


class Recording(WrapperBackend):
    """Records the paths that are written, by compare-and-swap too."""

    capabilities = (SupportsSearch,)

    def __init__(self, wrapped: StateBackend) -> None:
        super().__init__(wrapped)
        self.paths: list[str] = []

    async def write_bytes(self, path: str, data: bytes) -> None:
        self.paths.append(path)
        await super().write_bytes(path, data)


@pytest.mark.parametrize(
    'wrapped',
    [
        StateBackend(),
        LocalBackend('.'),
        LocalBackend('.', allow_commands=True),
        OverlayBackend(StateBackend()),
        ReadOnlyBackend(StateBackend()),
        CompositeBackend(LocalBackend('.'), {'/m': StateBackend()}),
        Plain(StateBackend()),
    ],
    ids=repr,
)
def test_wrapper_implements_the_protocols_of_the_wrapped_backend(wrapped: BackendProtocol) -> None:
    assert capabilities_of(WrapperBackend(wrapped)) == capabilities_of(wrapped)
    assert capabilities_of(Plain(wrapped)) == set()


async def test_subclass_overrides_an_operation_and_limits_the_protocols() -> None:
    files = StateBackend()
    backend = Recording(files)

    await backend.write_bytes('/a', b'1')

    assert (await files.read_bytes('/a'), backend.paths) == (b'1', ['/a'])
    assert capabilities_of(backend) == {'SupportsSearch'}


def test_operations_that_bypass_an_override_are_unsupported(tmp_path: Path) -> None:
    class Refusing(WrapperBackend):
        async def write_bytes(self, path: str, data: bytes) -> None:
            raise PermissionError(path)

    class Listing(Refusing):
        capabilities = (SupportsSnapshots,)

    class Swapping(Refusing):
        async def compare_and_swap(self, path: str, data: bytes, *, expected: bytes | None) -> None:
            raise PermissionError(path)

    local = LocalBackend(tmp_path, allow_commands=True)
    changing = {'SupportsCommands', 'SupportsCompareAndSwap', 'SupportsSnapshots', 'SupportsPatch'}
    changing.add('SupportsStreamedPatch')
    assert capabilities_of(local) >= changing
    assert capabilities_of(Refusing(local)) == capabilities_of(local) - changing
    assert capabilities_of(Listing(local)) == {'SupportsSnapshots'}
    assert capabilities_of(Swapping(local)) == capabilities_of(local) - changing | {'SupportsCompareAndSwap'}


async def test_wrapper_is_copied_for_another_backend(tmp_path: Path) -> None:
    backend = Recording(StateBackend())
    await backend.write_bytes('/a', b'1')
    files = StateBackend()

    await backend.around(files).write_bytes('/b', b'2')

    assert (await files.read_bytes('/b'), backend.paths) == (b'2', ['/a', '/b'])
    local = LocalBackend(tmp_path, allow_commands=True)
    assert capabilities_of(WrapperBackend(local).around(files)) == capabilities_of(files)
    assert capabilities_of(ReadOnlyBackend(local).around(files)) == capabilities_of(ReadOnlyBackend(files))


async def test_member_defined_by_the_class_is_not_replaced() -> None:
    class Unrooted(WrapperBackend):
        async def make_root(self) -> None:
            raise NotImplementedError

    with pytest.raises(NotImplementedError):
        await Unrooted(LocalBackend('.')).make_root()


def test_wrapper_shows_files_at_the_same_path_as_the_wrapped_backend(tmp_path: Path) -> None:
    default = WrapperBackend(LocalBackend(tmp_path, allow_commands=True))

    with pytest.raises(ValueError, match='would hide all of them'):
        CompositeBackend(default, {str(tmp_path): StateBackend()})


def test_repr_includes_the_wrapped_backend() -> None:
    assert repr(Plain(StateBackend())) == 'Plain(<StateBackend of 0 files, 0 bytes>)'
