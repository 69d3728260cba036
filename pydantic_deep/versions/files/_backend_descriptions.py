"""Which backend files belong to, as a store keeps it, and the way back. A description is data: nothing of it is run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic_deep_backends import BackendProtocol, BackendRef, LocalBackend, SupportsCommands
from pydantic_deep_backends.tracking import OmittedFile

_SANDBOX = 'sandbox'

_DIRECTORY_PROVIDERS = ('local', _SANDBOX)
"""Backends whose `id` is a directory."""


def describe_backend(backend: BackendProtocol) -> str | None:
    """Return what a version keeps of its backend: canonical JSON with `provider` and `id`; `None` if it has no identity.

    Where commands run without isolation `commands` is true. Other settings, such as the limits of a sandbox, are not
    kept. For a view, describe the backend that it is a view of.
    """
    ref = backend.ref
    if ref is None:
        return None
    if not isinstance(ref, BackendRef):  # the workspace of somebody else
        provider, id = cast('object', getattr(ref, 'provider', None)), cast('object', getattr(ref, 'id', None))
        return _dump({'provider': provider, 'id': id}) if isinstance(provider, str) and isinstance(id, str) else None
    described: dict[str, object] = {'provider': ref.provider, 'id': ref.id}
    if isinstance(backend, SupportsCommands) and ref.provider != _SANDBOX:
        described['commands'] = True
    return _dump(described)


def workspace_key(description: str) -> str:
    """Return the key of a workspace, the `backend` of its `WorkspaceRecord`: the same for all backends of a directory.

    Args:
        description: The `backend` of a `VersionRecord`.
    """
    described = _load(description)
    provider = described.get('provider')
    return _dump({'provider': 'directory' if provider in _DIRECTORY_PROVIDERS else provider, 'id': described.get('id')})


def runs_commands(description: str) -> bool:
    """Return whether the backend that was described ran commands."""
    described = _load(description)
    return described.get('provider') == _SANDBOX or described.get('commands') is True


def view_of(description: str | None) -> str | None:
    """Return the name of the view that a version was made in; `None` for one made in the backend itself."""
    view = None if description is None else _load(description).get('view')
    return view if isinstance(view, str) else None


def with_view(description: str | None, view: str | None) -> str | None:
    """Return a description that says in which view of the backend a version was made."""
    if description is None:
        return None
    described = {name: value for name, value in _load(description).items() if name != 'view'}
    return _dump(described if view is None else {**described, 'view': view})


MAX_OMITTED = 100
"""How many files without a version a description names: a version with all of them could be as large as they are many."""


def omitted_in(description: str | None) -> tuple[OmittedFile, ...]:
    """Return the files of the backend that a version does not have, as it was described then."""
    listed = () if description is None else cast('list[list[Any]]', _load(description).get('omitted', ()))
    return tuple(OmittedFile(path=path, reason=reason, size_bytes=size) for path, reason, size in listed)


def with_omitted(description: str | None, omitted: Sequence[OmittedFile]) -> str | None:
    """Return a description that names the files of the backend that a version does not have."""
    if description is None or tuple(omitted[:MAX_OMITTED]) == omitted_in(description):
        return description
    described = {name: value for name, value in _load(description).items() if name != 'omitted'}
    if omitted:
        described['omitted'] = [[each.path, each.reason, each.size_bytes] for each in omitted[:MAX_OMITTED]]
    return _dump(described)


def attach_backend(description: str) -> BackendProtocol | None:
    """Return the backend that was described; `None` if another process cannot have it, as files in memory.

    A directory is looked at when it is used, and must exist then. A sandbox has the default settings. Files outside of
    a sandbox run commands only if they did when they were described.

    Args:
        description: What `describe_backend` returned, once; it is not trusted to be well-formed.
    """
    described = _load(description)
    id = described.get('id')
    if not isinstance(id, str) or not id.startswith('/') or '\0' in id:
        return None
    if described.get('provider') == 'local':
        return LocalBackend(id, allow_commands=described.get('commands') is True)
    if described.get('provider') == _SANDBOX:
        from pydantic_deep_backends.sandbox import SandboxBackend  # heavy, and most programs have none

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
