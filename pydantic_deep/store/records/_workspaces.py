"""Directories in which runs work, and claims of them."""

from __future__ import annotations

from typing import Final, NamedTuple

from pydantic_deep.store._ids import new_id

from ._basics import Json

_CHECKOUT: Final = 'checkout:'


def checkout_claim(*version_ids: str) -> str:
    """Return what stands as `run_id` for a checkout, which is no run: another text each time.

    Args:
        version_ids: The version, and those whose checkouts before it were cut off.
    """
    return f'{_CHECKOUT}{",".join(dict.fromkeys(version_ids))}:{new_id()}'


def claimed_checkouts(run_id: str | None) -> tuple[str, ...]:
    """Return the versions of which it is the claim; none if it is a run, or nothing."""
    if run_id is None or not run_id.startswith(_CHECKOUT):
        return ()
    return tuple(run_id.removeprefix(_CHECKOUT).partition(':')[0].split(','))


class WorkspaceRecord(NamedTuple):
    """Which version the files of a directory are."""

    backend: Json
    """An object with `provider` and `id`, canonical: sorted keys, no spaces."""
    version_id: str | None
    """The version; `None` if it is not known."""
    run_id: str | None
    """The run that works in it now; for a checkout what `checkout_claim` returns."""
    identity: str | None = None
    """What told the directory from others when it held the version (`SupportsIdentity`); `None` if it is not known."""

    @property
    def checkouts(self) -> tuple[str, ...]:
        """The version that is put there now, or was to be when that was cut off, and others before it that were."""
        return claimed_checkouts(self.run_id)
