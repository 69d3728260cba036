"""What the backend of a run calls a place of this machine: it is told to the model, and guarded. Pure but for `ref`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

from pydantic_deep_backends import BackendRef

from ._scan import is_inside

MAX_LAYERS = 4
"""How many adapters around a backend are looked through: pydantic-ai's, ours, and one of somebody else."""


_TOP = {'sandbox': '/workspace'}
"""Where a backend shows its directory, if that is not `/`, by the provider in its `ref`."""


def mounted_path(host_path: str, backend: object) -> str | None:
    """Return where the commands of a run see a directory of this machine; `None` if they do not.

    A sandbox tells by `path_of`. Its file tools need not see that path.
    """
    for part in _layers(backend):
        path_of = getattr(part, 'path_of', None)  # by name: a sandbox has it
        path: object = path_of(host_path) if callable(path_of) else None
        if isinstance(path, str):
            return path
    return None


def file_paths(host_path: str, backend: object) -> Iterator[str]:
    """Yield the paths by which the file tools of a run reach a real path of this machine, and could change it.

    Known are backends of a directory, which say so in their `ref`, and composites of them.
    """
    for part in _layers(backend):
        for prefix, directory in _roots(getattr(part, 'ref', None)):
            if is_inside(host_path, directory):
                names = f'{prefix}/{host_path[len(directory) :]}'.split('/')
                yield '/' + '/'.join(name for name in names if name)


def _layers(backend: object) -> Iterator[object]:
    """Yield a backend and what it is an adapter of."""
    for _ in range(MAX_LAYERS):
        if backend is None:
            return
        yield backend
        backend = getattr(backend, 'backend', None)


def _roots(ref: object) -> Iterator[tuple[str, str]]:
    """Yield the directories of this machine that a backend holds, each after the path at which it does."""
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
