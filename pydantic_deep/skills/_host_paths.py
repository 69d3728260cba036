"""Map local paths to paths in the backend of a run, to show and protect them. Pure, except for `ref`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from pydantic_deep_backends import BackendRef

from ._scan import is_inside

MAX_LAYERS = 4
"""Maximum number of nested adapters to inspect: pydantic-ai's, ours, and a third party's."""


_TOP = {'sandbox': '/workspace'}
"""The path at which a backend exposes its directory, if it is not `/`, keyed by the provider in its `ref`."""


def mounted_path(host_path: str, backend: object) -> str | None:
    """Return the path of a local directory for the commands of a run; `None` if they cannot access it.

    A sandbox provides it by `path_of`. Its file tools may not see that path.
    """
    for part in _layers(backend):
        path_of = getattr(part, 'path_of', None)  # by name, as in a sandbox
        path: object = path_of(host_path) if callable(path_of) else None
        if isinstance(path, str):
            return path
    return None


def file_paths(host_path: str, backend: object) -> Iterator[str]:
    """Yield the paths by which the file tools of a run can access, and change, a local real path.

    This covers backends of a local directory, which have it in their `ref`, and composites of them.
    """
    for part in _layers(backend):
        for prefix, directory in _roots(getattr(part, 'ref', None)):
            if is_inside(host_path, directory):
                names = f'{prefix}/{host_path[len(directory) :]}'.split('/')
                yield '/' + '/'.join(name for name in names if name)


def _layers(backend: object) -> Iterator[object]:
    """Yield a backend and the backends that it adapts."""
    for _ in range(MAX_LAYERS):
        if backend is None:
            return
        yield backend
        backend = getattr(backend, 'backend', None) or getattr(backend, 'wrapped', None)


def _roots(ref: object) -> Iterator[tuple[str, str]]:
    """Yield the local directories of a backend, each with the path at which it is mounted."""
    if not isinstance(ref, BackendRef):
        return
    if ref.provider != 'composite':
        parts: dict[str, object] = {'/': [ref.provider, ref.id]}
    else:
        parts = cast('dict[str, object]', json.loads(ref.id))
    for path, part in parts.items():
        match part:
            case [str(provider), str(directory)] if directory.startswith('/'):
                yield path + _TOP.get(provider, ''), directory
            case _:
                pass
