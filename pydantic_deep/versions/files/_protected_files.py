"""Changes of a turn to protected files, such as `.git/config`, which no version contains.

The states of the files are stored with the run when it begins, so that a run that recovers it, or resumes it after a
pause, compares with the same moment. The changes are part of the version that the run ends with.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_deep.store import Store
from pydantic_deep.versions._run_options import load_options
from pydantic_deep_backends import ProtectedChange, ScanLimitError, SupportsProtection, digest_of
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import display_path, path_parts
from pydantic_deep_backends.protection import compare_protected, is_git_name

PROTECTED: Final = 'protected'
"""The key of the changes in the deps state of a version."""

MAX_WARNED = 10
"""Maximum number of files that a warning names."""


class ProtectedFilesWarning(UserWarning):
    """A turn or a checkout added, changed or removed files that programs of the host run or obey."""


async def protected_states(backend: object) -> dict[str, str] | None:
    """Return a short digest of the state of each protected file of a backend; `None` if the files are in no directory.

    This includes backends without commands: user tools and subagents write there without approval.
    """
    if not isinstance(backend, SupportsProtection):
        return None
    try:
        states = await backend.protected_files()
    except ScanLimitError:  # a capture omits ignored files, and may not reach the limit
        raise
    except (OSError, BackendError):  # the files are gone, which the next capture reports
        return None
    return {path: digest_of(state.encode(errors='surrogateescape'))[-16:] for path, state in states.items()}


async def states_before(
    store: Store, run_id: str | None, backend: object, *, in_place: bool, states: Mapping[str, str] | None = None
) -> Mapping[str, str] | None:
    """Return the states of protected files at the beginning of a turn.

    Args:
        store: The store.
        run_id: The run that the turn began with; `None` if it begins now.
        backend: The files.
        in_place: Whether these are the files themselves, and not a view of them.
        states: The states before the turn opened the files, if opening has changed them.
    """
    now = await protected_states(backend) if states is None else states
    run = None if now is None or run_id is None else await store.run(run_id)
    if run is None or now is None:
        return now
    options = load_options(run)
    stored = options.protected if in_place else options.protected_in_view
    if stored is None and not in_place and options.protected is not None:
        # A view has only the versioned files of the directory.
        stored = {path: state for path, state in options.protected.items() if path in now}
    return now if stored is None else stored


async def protected_changes(
    before: Mapping[str, str] | None, backend: object, *, in_place: bool
) -> tuple[ProtectedChange, ...]:
    """Return the changes to protected files since `before` that persist.

    Args:
        before: The earlier states; `None` if they are unknown.
        backend: The present files.
        in_place: Whether these are the files themselves. A view is removed after the run, with all files that no
            version has.
    """
    now = None if before is None else await protected_states(backend)
    if before is None or now is None:
        return ()
    changes = compare_protected(before, now)
    return tuple(
        change for change in changes if in_place or not any(is_git_name(name) for name in path_parts(change.path))
    )


def dump_changes(changes: Sequence[ProtectedChange], run_id: str | None) -> dict[str, object]:
    """Return the changes of a run as JSON."""
    dumped = [{'path': display_path(change.path), 'change': change.change} for change in changes]
    return {'run_id': run_id, 'changes': dumped}


def load_changes(document: Mapping[str, Any], run_id: str | None) -> tuple[ProtectedChange, ...]:
    """Return the changes of a run from the deps state of a version."""
    dumped = document.get(PROTECTED)
    if dumped is None or dumped['run_id'] != run_id:
        return ()
    return tuple(ProtectedChange(**change) for change in dumped['changes'])


def warn_of_protected(changes: Sequence[ProtectedChange], *, by: str = 'This turn') -> None:
    """Warn of changes to protected files, if there are any."""
    if changes:
        named = ', '.join(f'{display_path(change.path)} ({change.change})' for change in changes[:MAX_WARNED])
        more = f' and {len(changes) - MAX_WARNED} more' if len(changes) > MAX_WARNED else ''
        text = (
            f'{by} changed files that programs of this machine run or obey: {named}{more}. '
            'Look at them before you use git, an editor or a shell there.'
        )
        warnings.warn(text, ProtectedFilesWarning, stacklevel=2)
