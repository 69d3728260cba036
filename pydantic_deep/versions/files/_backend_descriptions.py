"""Stored descriptions of backends, and the backends that they describe. A description is data and is never executed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_deep_backends import BackendProtocol, BackendRef, LocalBackend, StateBackend, SupportsCommands
from pydantic_deep_backends.tracking import OmittedFile

_SANDBOX = 'sandbox'

_DIRECTORY_PROVIDERS = ('local', _SANDBOX)
"""Backends whose `id` is a directory."""


def describe_backend(backend: BackendProtocol) -> str | None:
    """Return the description of a backend for the store: canonical JSON with `provider` and `id`; `None` if it has no
    identity.

    `commands` is true for a backend that runs commands without isolation. Other settings, such as the limits of a
    sandbox, are not stored. For a view, describe the backend behind it.
    """
    ref = backend.ref
    if ref is None:
        return None
    if not isinstance(ref, BackendRef):  # the reference of a third-party workspace
        provider, id = cast('object', getattr(ref, 'provider', None)), cast('object', getattr(ref, 'id', None))
        return _dump({'provider': provider, 'id': id}) if isinstance(provider, str) and isinstance(id, str) else None
    described: dict[str, object] = {'provider': ref.provider, 'id': ref.id}
    if isinstance(backend, SupportsCommands) and ref.provider != _SANDBOX:
        described['commands'] = True
    return _dump(described)


async def describe_unversioned(backend: BackendProtocol) -> str | None:
    """Return the description of a backend whose files no version has: with its identity, if it has one, and its type;
    `None` for an empty backend in memory.
    """
    if isinstance(backend, StateBackend) and not await backend.snapshot():
        return None
    described = _load(describe_backend(backend) or '{}')
    return _dump({**described, 'unversioned': type(backend).__name__})


def unversioned_in(description: str | None) -> str | None:
    """Return the type of the backend in a result of `describe_unversioned`; `None` for other descriptions."""
    name = None if description is None else _load(description).get('unversioned')
    return name if isinstance(name, str) else None


def workspace_key(description: str) -> str:
    """Return the key of a workspace, the `backend` of its `WorkspaceRecord`, which is the same for all backends of a
    directory.

    Args:
        description: The `backend` of a `VersionRecord`.
    """
    described = _load(description)
    provider = described.get('provider')
    return _dump({'provider': 'directory' if provider in _DIRECTORY_PROVIDERS else provider, 'id': described.get('id')})


def runs_commands(description: str) -> bool:
    """Return whether the described backend runs commands."""
    described = _load(description)
    return described.get('provider') == _SANDBOX or described.get('commands') is True


def view_of(description: str | None) -> str | None:
    """Return the name of the view that a version was created in; `None` if it was created in the backend itself."""
    view = None if description is None else _load(description).get('view')
    return view if isinstance(view, str) else None


def with_view(description: str | None, view: str | None) -> str | None:
    """Return a description with the view of the backend that a version was created in; `None` removes the view."""
    if description is None:
        return None
    described = {name: value for name, value in _load(description).items() if name != 'view'}
    return _dump(described if view is None else {**described, 'view': view})


MAX_OMITTED = 100
"""Maximum number of omitted files in a description, which limits the size of a version."""


def omitted_in(description: str | None) -> tuple[OmittedFile, ...]:
    """Return the files of the backend that the version of a description omits."""
    listed = () if description is None else cast('list[list[Any]]', _load(description).get('omitted', ()))
    return tuple(OmittedFile(path=path, reason=reason, size_bytes=size) for path, reason, size in listed)


def with_omitted(description: str | None, omitted: Sequence[OmittedFile]) -> str | None:
    """Return a description with the files of the backend that its version omits."""
    if description is None or tuple(omitted[:MAX_OMITTED]) == omitted_in(description):
        return description
    described = {name: value for name, value in _load(description).items() if name != 'omitted'}
    if omitted:
        described['omitted'] = [[file.path, file.reason, file.size_bytes] for file in omitted[:MAX_OMITTED]]
    return _dump(described)


def attach_backend(description: str) -> BackendProtocol | None:
    """Return the described backend; `None` if another process cannot open it, such as one in memory.

    A directory is opened on use, and must exist then. A sandbox has default settings. Other backends run commands only
    if the described one did.

    Args:
        description: A result of `describe_backend`, not trusted to be well-formed.
    """
    described = _load(description)
    id = described.get('id')
    if not isinstance(id, str) or not id.startswith('/') or '\0' in id:
        return None
    if described.get('provider') == 'local':
        return LocalBackend(id, allow_commands=described.get('commands') is True)
    if described.get('provider') == _SANDBOX:
        from pydantic_deep_backends.sandbox import SandboxBackend  # a heavy import, which most programs do not need

        return SandboxBackend(id)
    return None


def _dump(described: Mapping[str, object]) -> str:
    return json.dumps(described, sort_keys=True, separators=(',', ':'))


def _load(description: str) -> Mapping[str, object]:
    try:
        loaded: object = json.loads(description)
    except ValueError:
        return {}
    return cast('dict[str, object]', loaded) if isinstance(loaded, dict) else {}
