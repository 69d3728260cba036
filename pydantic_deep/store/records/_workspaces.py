"""Directories that runs work in, and claims on them."""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic_deep.store._ids import new_id

from ._basics import Json

_CHECKOUT: Final = 'checkout:'


def checkout_claim(*version_ids: str) -> str:
    """Return a unique `run_id` for the claim of a checkout, which is not a run.

    Args:
        version_ids: The version to check out, and those of interrupted checkouts before it.
    """
    return f'{_CHECKOUT}{",".join(dict.fromkeys(version_ids))}:{new_id()}'


def claimed_checkouts(run_id: str | None) -> tuple[str, ...]:
    """Return the versions that a checkout claims; empty for a run or `None`."""
    if run_id is None or not run_id.startswith(_CHECKOUT):
        return ()
    return tuple(run_id.removeprefix(_CHECKOUT).partition(':')[0].split(','))


class WorkspaceRecord(NamedTuple):
    """The version that the files of a directory belong to."""

    backend: Json
    """A JSON object with `provider` and `id`, canonical: sorted keys, no spaces."""
    version_id: str | None
    """The version of the files; `None` if unknown."""
    run_id: str | None
    """The run that works in the directory, or the `checkout_claim` of a checkout."""
    identity: str | None = None
    """Identity of the directory when its files were those of the version (`SupportsIdentity`); `None` if unknown."""

    @property
    def checkouts(self) -> tuple[str, ...]:
        """The version of the current or interrupted checkout, and those of interrupted checkouts before it."""
        return claimed_checkouts(self.run_id)
