"""A directory is one run's, or one checkout's, from its claim until it is let go, whatever is cancelled or fails meanwhile.

What holds it knows also whether the directory is still the one that was noted: a path may lead to another one, on
another machine or because it was made anew, and what is not there was not removed then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic_deep._run_to_completion import run_to_completion
from pydantic_deep.store import Commit, Store, VersionNotFoundError, VersionRecord, WorkspaceRecord
from pydantic_deep_backends import BackendProtocol, SupportsIdentity


@dataclass(kw_only=True)
class DirectoryClaim:
    """What a run or a checkout has of a directory."""

    store: Store
    workspace: str
    """The directory, as `WorkspaceRecord.backend` names it."""
    run_id: str
    """The run, which the store need not know yet, or a `checkout_claim`."""
    backend: BackendProtocol | None = None
    """The directory; without it nobody looks there, and it keeps the identity that was noted."""
    noted: WorkspaceRecord | None = None
    """What is known of the directory: from before it was claimed, or from the last `note`."""
    is_held: bool = field(default=False, init=False)
    """Whether the directory is its now."""

    async def take(self, version_id: str | None) -> bool:
        """Claim the directory if it has the files of a version, and return whether it may be worked in.

        Raises:
            UnfinishedCheckoutError: See `Store.claim_workspace`.
        """
        return await run_to_completion(self._take(version_id))

    async def _take(self, version_id: str | None) -> bool:
        self.noted = await self.store.workspace(self.workspace)
        self.is_held = await self.store.claim_workspace(self.workspace, self.run_id, version_id)
        return self.is_held

    async def is_same_directory(self) -> bool | None:
        """Return whether the directory is the one that was noted; `None` if that cannot be told.

        One that was never noted is another one. A backend that has no identity has one directory for ever.
        """
        if not isinstance(self.backend, SupportsIdentity):
            return True
        if self.noted is None or self.noted.version_id is None:
            return False
        if self.noted.identity is None:  # by a release that knew none
            return None
        return await self.backend.has_identity(self.noted.identity)

    async def note(self, version_id: str, run_id: str | None = None) -> WorkspaceRecord:
        """Return what is true from now on: the directory is the one that is there, and has the files of a version.

        Args:
            version_id: The version.
            run_id: The run that works there from now on.
        """
        identity = None if self.noted is None else self.noted.identity
        if isinstance(self.backend, SupportsIdentity):
            identity = await self.backend.identity()
        self.noted = WorkspaceRecord(backend=self.workspace, version_id=version_id, run_id=run_id, identity=identity)
        return self.noted

    def record(self, version_id: str | None, run_id: str | None = None) -> WorkspaceRecord:
        """Return what is true from now on, by what was noted of the directory: it has the files of a version.

        Not if nothing ever was: then nobody knows what it has.
        """
        if self.noted is not None:
            return self.noted._replace(version_id=version_id, run_id=run_id)
        is_known = not isinstance(self.backend, SupportsIdentity)
        return WorkspaceRecord(backend=self.workspace, version_id=version_id if is_known else None, run_id=run_id)

    async def let_go(self, version_id: str | None, run_id: str | None = None) -> None:
        """Say which version the directory has now, if it is held; if the store does not take that, it is given up.

        Args:
            version_id: The version whose files it has.
            run_id: A `checkout_claim` if that is not known.
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
    """Make the directory of a backend if it is missing. Raises `ReadOnlyError` where the backend changes nothing."""
    if isinstance(backend, SupportsIdentity) and await backend.identity() is None:
        await backend.make_root()


async def find_noted(store: Store, id: str | None) -> VersionRecord | None:
    """Return a version that a directory was noted with; `None` if it was deleted since."""
    try:
        return None if id is None else await store.version(id)
    except VersionNotFoundError:
        return None
