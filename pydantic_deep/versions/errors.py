"""What version control refuses or cannot do."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.errors import ValidationError as ValidationError
from pydantic_deep_backends import Conflict
from pydantic_deep_backends.paths import display_path


class ConversationNotFoundError(DeepAgentError, LookupError):
    """A store has no such conversation, nor a thread of a subagent with that id.

    Attributes:
        conversation_id: The id that was asked for.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'There is no conversation {conversation_id!r} in this store. Pass the `conversation_id` of a version, '
            'or the `sub_agent_thread_id` of a delegation.'
        )


class ApprovalsPendingError(DeepAgentError, ValueError):
    """A version waits for a person, so no other turn can begin there.

    Attributes:
        version_id: The version.
        pending: The ids of what waits in it.
    """

    def __init__(self, version_id: str, pending: Sequence[str]) -> None:
        self.version_id = version_id
        self.pending = tuple(pending)
        super().__init__(
            f'The version {version_id} waits for {len(pending)} approvals ({", ".join(pending)}). '
            'Answer them with `resume` (without answers, if they were given already), or go on from its parent.'
        )


class NothingAnsweredError(DeepAgentError, ValueError):
    """A turn cannot go on: of what it waits for, nothing has an answer.

    Attributes:
        version_id: The version.
    """

    def __init__(self, version_id: str) -> None:
        self.version_id = version_id
        super().__init__(
            f'Nothing that the version {version_id} waits for has an answer. Pass answers to `resume`, or give them '
            'in the inbox first.'
        )


class MergeConflictError(DeepAgentError):
    """Two versions changed the same, and only a person can say what is to be.

    Attributes:
        conflicts: Where, by path.
    """

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts = tuple(conflicts)
        named = ', '.join(f'{each.path} ({each.kind})' for each in self.conflicts[:10])
        more = f' and {len(conflicts) - 10} more' if len(conflicts) > 10 else ''
        super().__init__(
            f'Both versions changed {named}{more}. Change one side with another turn, then merge again. '
            'Nothing was made.'
        )


class NoCommonVersionError(DeepAgentError, ValueError):
    """Two versions cannot be merged, because they come from nothing common.

    Attributes:
        ours: The id of the one.
        theirs: The id of the other.
    """

    def __init__(self, ours: str, theirs: str) -> None:
        self.ours = ours
        self.theirs = theirs
        super().__init__(f'The versions {ours} and {theirs} come from no common one. Merge versions of one line.')


class NoFilesError(DeepAgentError, ValueError):
    """The files of a version cannot be put anywhere.

    Attributes:
        version_id: The version.
    """

    def __init__(self, version_id: str, *, has_files: bool) -> None:
        self.version_id = version_id
        reason = (
            'it is not known where they go. Pass `backend=`.' if has_files else 'it has none: they were not versioned.'
        )
        super().__init__(f'The files of the version {version_id} cannot be checked out: {reason}')


class WorkspaceBusyError(DeepAgentError):
    """A run works in a directory, whose files must not be changed under it.

    Attributes:
        workspace: The directory, as the store names it.
    """

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        id = json.loads(workspace)['id']
        super().__init__(f'A run works in {id} now. Wait until it has ended, then check out again.')


class WorkspaceReplacedError(DeepAgentError):
    """A directory is not the one that had the files of a version, and has files that the version does not have.

    It was made anew or is on another machine, so nobody knows whether its files are an edit of the version. Nothing was
    changed. A directory without files of its own is given those of the version instead.

    Attributes:
        workspace: The directory, as the store names it.
        version_id: The version.
        paths: The files that the version does not have, or has otherwise, as paths of trees.
        can_be_kept: Whether a checkout with `force=True` can make a version of them.
    """

    def __init__(self, workspace: str, version_id: str, paths: Sequence[str], *, can_be_kept: bool = True) -> None:
        self.workspace = workspace
        self.version_id = version_id
        self.paths = tuple(paths)
        self.can_be_kept = can_be_kept
        advice = (
            'Empty it, or call `checkout(force=True)` of the version, which keeps them as a version of their own first: '
            'check that out afterwards to go on with them.'
            if can_be_kept
            else 'Move them away: some of them no version can hold.'
        )
        super().__init__(f'{self.describe()} {advice}')

    def describe(self) -> str:
        """Return what happened, without what to do."""
        named = ', '.join(map(display_path, self.paths[:3]))
        more = f' and {len(self.paths) - 3} more' if len(self.paths) > 3 else ''
        return (
            f'{json.loads(self.workspace)["id"]} is not the directory that had the files of the version '
            f'{self.version_id}: it was made anew, or is on another machine. It has files that the version does not '
            f'have: {named}{more}.'
        )


class UnversionedBackendError(DeepAgentError, ValueError):
    """The files of a backend cannot be versioned."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or 'The files of this backend cannot be versioned.')


class UnversionedChangesError(DeepAgentError):
    """A checkout would overwrite what no version has. Nothing was changed.

    Attributes:
        paths: The files, as paths of trees.
        can_be_kept: Whether `force=True` can make a version of them; not so for what is no regular file, too large, or
            unreadable.
    """

    def __init__(self, paths: Sequence[str], *, can_be_kept: bool = True) -> None:
        self.paths = tuple(paths)
        self.can_be_kept = can_be_kept
        named = ', '.join(map(display_path, self.paths[:10]))
        more = f' and {len(paths) - 10} more' if len(paths) > 10 else ''
        advice = (
            'Pass `force=True` to keep them as a version first.'
            if can_be_kept
            else 'Move them away: some of them no version can hold.'
        )
        super().__init__(f'No version has the changes of {named}{more}, and the checkout would lose them. {advice}')
