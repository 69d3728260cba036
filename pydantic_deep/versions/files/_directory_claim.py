"""The claim of a directory by one run or one checkout, held until it is released, even if the run or checkout is
cancelled or fails.

A claim also detects whether the path still leads to the recorded directory. It may lead to another one, which is on
another machine or was recreated. Files that are missing there were not removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.store import Commit, Store, VersionNotFoundError, VersionRecord, WorkspaceRecord
from pydantic_deep_backends import BackendProtocol, SupportsIdentity


@dataclass(kw_only=True)
class DirectoryClaim:
    """The claim of a directory by a run or a checkout."""

    store: Store
    workspace: str
    """The key of the directory, the `backend` of its `WorkspaceRecord`."""
    run_id: str
    """The id of the run, which need not be stored yet, or a `checkout_claim`."""
    backend: BackendProtocol | None = None
    """The directory; `None` to never inspect it and keep the recorded identity."""
    noted: WorkspaceRecord | None = None
    """The record of the directory, from before the claim or from the last `note`."""
    is_held: bool = field(default=False, init=False)
    """Whether the directory is claimed now."""

    async def take(self, version_id: str | None) -> bool:
        """Claim the directory if it has the files of a version, and return whether the claim succeeded.

        Raises:
            UnfinishedCheckoutError: A checkout was interrupted; see `Store.claim_workspace`.
        """
        return await run_to_completion(self._take(version_id))

    async def _take(self, version_id: str | None) -> bool:
        self.noted = await self.store.workspace(self.workspace)
        self.is_held = await self.store.claim_workspace(self.workspace, self.run_id, version_id)
        return self.is_held

    async def is_same_directory(self) -> bool | None:
        """Return whether the path leads to the recorded directory; `None` if this is unknown.

        A directory without a record is another one. A backend without an identity always has the same directory.
        """
        if not isinstance(self.backend, SupportsIdentity):
            return True
        if self.noted is None or self.noted.version_id is None:
            return False
        if self.noted.identity is None:  # recorded by a release without identities
            return None
        return await self.backend.has_identity(self.noted.identity)

    async def note(self, version_id: str, run_id: str | None = None) -> WorkspaceRecord:
        """Return the new record of the directory: its present identity, with the files of a version.

        Args:
            version_id: The version whose files the directory has.
            run_id: The run that works there from now on.
        """
        identity = None if self.noted is None else self.noted.identity
        if isinstance(self.backend, SupportsIdentity):
            identity = await self.backend.identity()
        self.noted = WorkspaceRecord(backend=self.workspace, version_id=version_id, run_id=run_id, identity=identity)
        return self.noted

    def record(self, version_id: str | None, run_id: str | None = None) -> WorkspaceRecord:
        """Return the new record of the directory with the files of a version, keeping the recorded identity.

        Without an earlier record it is unknown which version a directory with an identity has, and the record names
        none.
        """
        if self.noted is not None:
            return self.noted._replace(version_id=version_id, run_id=run_id)
        is_known = not isinstance(self.backend, SupportsIdentity)
        return WorkspaceRecord(backend=self.workspace, version_id=version_id if is_known else None, run_id=run_id)

    async def release(self, version_id: str | None, run_id: str | None = None) -> None:
        """Release the directory if it is claimed, and store which version it has. If the store fails, mark the claim
        orphaned.

        Args:
            version_id: The version whose files the directory has.
            run_id: A `checkout_claim` if its files are unknown.
        """
        if not self.is_held:
            return
        try:
            await run_to_completion(self.store.commit(Commit(workspaces=[self.record(version_id, run_id)])))
        except BaseException:
            self.store.mark_orphaned(self.run_id)
            raise
        self.is_held = False


async def make_missing(backend: BackendProtocol | None) -> None:
    """Create the directory of a backend if it is missing. Raises `ReadOnlyError` if the backend is read-only."""
    if isinstance(backend, SupportsIdentity) and await backend.identity() is None:
        await backend.make_root()


async def find_noted(store: Store, id: str | None) -> VersionRecord | None:
    """Return the recorded version of a directory; `None` if it was deleted."""
    try:
        return None if id is None else await store.version(id)
    except VersionNotFoundError:
        return None
