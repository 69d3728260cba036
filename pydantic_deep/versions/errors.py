"""Errors of version control."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.errors import ValidationError as ValidationError
from pydantic_deep_backends import Conflict
from pydantic_deep_backends.paths import display_path


class ConversationNotFoundError(DeepAgentError, LookupError):
    """The store has no conversation, and no thread of a subagent, with this id.

    Attributes:
        conversation_id: The requested id.
    """

    def __init__(self, conversation_id: str) -> None:
        self.conversation_id = conversation_id
        super().__init__(
            f'There is no conversation {conversation_id!r} in this store. Pass the `conversation_id` of a version, '
            'or the `sub_agent_thread_id` of a delegation.'
        )


class ApprovalsPendingError(DeepAgentError, ValueError):
    """A version has pending approvals, so no other turn can start from it.

    Attributes:
        version_id: The id of the version.
        pending: The ids of its pending approvals.
    """

    def __init__(self, version_id: str, pending: Sequence[str]) -> None:
        self.version_id = version_id
        self.pending: tuple[str, ...] = tuple(pending)
        super().__init__(
            f'The version {version_id} has pending approvals: {", ".join(pending)}. '
            'Answer them with `resume` (without answers, if they are stored already), or continue from its parent.'
        )


class NothingAnsweredError(DeepAgentError, ValueError):
    """A turn cannot resume, because none of its pending approvals has an answer.

    Attributes:
        version_id: The id of the version.
    """

    def __init__(self, version_id: str) -> None:
        self.version_id = version_id
        super().__init__(
            f'No pending approval of the version {version_id} has an answer. Pass answers to `resume`, or answer '
            'in the inbox first.'
        )


class MergeConflictError(DeepAgentError):
    """Two versions have conflicting changes, which a person has to resolve.

    Attributes:
        conflicts: The conflicts, with the path of each.
    """

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        self.conflicts: tuple[Conflict, ...] = tuple(conflicts)
        named = ', '.join(f'{conflict.path} ({conflict.kind})' for conflict in self.conflicts[:10])
        more = f' and {len(conflicts) - 10} more' if len(conflicts) > 10 else ''
        super().__init__(
            f'Both versions changed {named}{more}. Choose a side for each with `choices`, or change one side '
            'with another turn and merge again. Nothing was stored.'
        )


class InvalidMergeChoiceError(DeepAgentError, ValueError):
    """A merge has choices for files without a conflict, or choices that are not a side.

    Attributes:
        paths: The paths of these choices.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths: tuple[str, ...] = tuple(paths)
        super().__init__(
            f'These choices have no side or no conflict: {", ".join(map(repr, paths))}. Choose `ours` or `theirs`, only '
            'for the conflicts that a merge without choices reports. Nothing was stored.'
        )


class NoCommonVersionError(DeepAgentError, ValueError):
    """Two versions cannot be merged, because they have no common ancestor.

    Attributes:
        ours: The id of the version to merge into.
        theirs: The id of the other version.
    """

    def __init__(self, ours: str, theirs: str) -> None:
        self.ours = ours
        self.theirs = theirs
        super().__init__(
            f'The versions {ours} and {theirs} have no common ancestor. Merge only versions that have one.'
        )


class NoFilesError(DeepAgentError, ValueError):
    """The files of a version cannot be checked out.

    Attributes:
        version_id: The id of the version.
    """

    def __init__(self, version_id: str, *, has_files: bool) -> None:
        self.version_id = version_id
        reason = 'the directory is unknown. Pass `backend=`.' if has_files else 'it has none: they were not versioned.'
        super().__init__(f'The files of the version {version_id} cannot be checked out: {reason}')


class WorkspaceBusyError(DeepAgentError):
    """A run works in the directory, so its files must not be changed.

    Attributes:
        workspace: The directory, as the store names it.
    """

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace
        id = json.loads(workspace)['id']
        super().__init__(f'A run works in {id} now. Wait until it has ended, then check out again.')


class WorkspaceReplacedError(DeepAgentError):
    """The directory was replaced by another one, which has files that the version does not have.

    It was recreated or is on another machine, so it is unknown whether its files are an edit of the version. Nothing
    was changed. A directory without files of its own receives the files of the version instead of this error.

    Attributes:
        workspace: The directory, as the store names it.
        version_id: The id of the version.
        paths: The files that the version lacks or has with other contents, as paths of trees.
        can_be_stored: Whether a checkout with `force=True` can store them as a version.
    """

    def __init__(self, workspace: str, version_id: str, paths: Sequence[str], *, can_be_stored: bool = True) -> None:
        self.workspace = workspace
        self.version_id = version_id
        self.paths: tuple[str, ...] = tuple(paths)
        self.can_be_stored = can_be_stored
        advice = (
            'Empty it, or call `checkout(force=True)` of the version, which stores them as another version first: '
            'check that one out to continue with them.'
            if can_be_stored
            else 'Move them away: some of them cannot be versioned.'
        )
        super().__init__(f'{self.describe()} {advice}')

    def describe(self) -> str:
        """Return the cause, without advice."""
        named = ', '.join(map(display_path, self.paths[:3]))
        more = f' and {len(self.paths) - 3} more' if len(self.paths) > 3 else ''
        return (
            f'{json.loads(self.workspace)["id"]} is not the directory that had the files of the version '
            f'{self.version_id}: it was recreated, or is on another machine. It has files that the version does not '
            f'have: {named}{more}.'
        )


class UnversionedBackendError(DeepAgentError, ValueError):
    """The files of a backend cannot be versioned."""

    def __init__(self, reason: str | None) -> None:
        super().__init__(reason or 'The files of this backend cannot be versioned.')


class UnversionedChangesError(DeepAgentError):
    """A checkout would overwrite changes that no version has. Nothing was changed.

    Attributes:
        paths: The changed files, as paths of trees.
        can_be_stored: Whether `force=True` can store them as a version; false if one is not a regular file, too large, or
            unreadable.
    """

    def __init__(self, paths: Sequence[str], *, can_be_stored: bool = True) -> None:
        self.paths: tuple[str, ...] = tuple(paths)
        self.can_be_stored = can_be_stored
        named = ', '.join(map(display_path, self.paths[:10]))
        more = f' and {len(paths) - 10} more' if len(paths) > 10 else ''
        advice = (
            'Pass `force=True` to store them as a version first.'
            if can_be_stored
            else 'Move them away: some of them cannot be versioned.'
        )
        super().__init__(f'The checkout would overwrite {named}{more}, with changes that no version has. {advice}')
