"""A directory is one run's, or one checkout's, from its claim until it is let go, whatever is cancelled or fails meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_deep.store import Commit, Store, VersionNotFoundError, VersionRecord, WorkspaceRecord

from ._to_end import to_end


@dataclass(kw_only=True)
class Claim:
    """What a run or a checkout has of a directory."""

    store: Store
    workspace: str
    """The directory, as `WorkspaceRecord.backend` names it."""
    run_id: str
    """The run, which the store need not know yet, or a `checkout_claim`."""
    is_held: bool = field(default=False, init=False)
    """Whether the directory is its now."""

    async def take(self, version_id: str | None) -> bool:
        """Claim the directory if it has the files of a version, and return whether it may be worked in.

        Raises:
            UnfinishedCheckoutError: See `Store.claim_workspace`.
        """
        return await to_end(self._take(version_id))

    async def _take(self, version_id: str | None) -> bool:
        self.is_held = await self.store.claim_workspace(self.workspace, self.run_id, version_id)
        return self.is_held

    async def let_go(self, version_id: str | None, run_id: str | None = None) -> None:
        """Say what the directory has now, if it is held; if the store does not take that, the claim is given up.

        Args:
            version_id: The version whose files it has.
            run_id: A `checkout_claim` if that is not known.
        """
        if not self.is_held:
            return
        try:
            await to_end(self.store.commit(Commit(workspaces=[WorkspaceRecord(self.workspace, version_id, run_id)])))
        except BaseException:
            self.store.give_up(self.run_id)
            raise
        self.is_held = False


async def find_noted(store: Store, id: str | None) -> VersionRecord | None:
    """Return a version that a directory was noted with; `None` if it was deleted since."""
    try:
        return None if id is None else await store.version(id)
    except VersionNotFoundError:
        return None
