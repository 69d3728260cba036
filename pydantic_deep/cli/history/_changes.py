"""Operations that restore files or create versions without a run, for commands of the shell and of the chat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from pydantic_deep.cli._schemas import CheckoutReport, MergeConflict, MergeReport
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import BranchExistsError, VersionFilter, VersionRecord
from pydantic_deep.versions import VISIBLE_KINDS, MergeConflictError, MergeSide, workspace_key
from pydantic_deep.views import Version
from pydantic_deep_backends import LocalBackend

from ._reader import VersionReader
from ._revisions import UnknownVersionError


class IncompleteCheckoutError(DeepAgentError):
    """The operating system refused to write some files of a version."""


class InvalidBranchNameError(DeepAgentError, ValueError):
    """The name of a new branch could not be used as a revision."""


class WrongMergeSideError(DeepAgentError, ValueError):
    """A choice of the side of a conflict is not of the form `PATH=SIDE`."""


async def rewind_to(reader: VersionReader, record: VersionRecord) -> CheckoutReport:
    """Restore the files of a version in the directory, and move the head of its conversation to it.

    Raises:
        UnknownVersionError: The version belongs to another directory.
        IncompleteCheckoutError: Some files were not restored.
    """
    head = await reader.revisions.find_head()
    edit = await _restore_files(reader, record, force=True) if record.tree is not None else None
    await reader.versions.conversation(record.conversation_id).move_to(await reader.versions.load(record.id))
    return CheckoutReport(
        version=await reader.views.version(await reader.store.version(record.id)),
        edits=edit,
        detached=[] if head is None else await _versions_left_behind(reader, head, record),
    )


async def check_out(reader: VersionReader, record: VersionRecord, *, force: bool) -> CheckoutReport:
    """Restore the files of a version in the directory. The head of its conversation does not move.

    Args:
        reader: The store, and the directory.
        record: The version.
        force: Whether to store edits that no version has as a version first.

    Raises:
        UnversionedChangesError: The directory has such edits, and `force` is not set. Nothing was changed.
        UnknownVersionError: The version belongs to another directory.
        IncompleteCheckoutError: Some files were not restored.
    """
    edit = await _restore_files(reader, record, force=force)
    return CheckoutReport(version=await reader.views.version(record), edits=edit, detached=[])


def parse_choices(texts: Sequence[str]) -> dict[str, MergeSide]:
    """Return the sides of conflicting files, by path.

    Args:
        texts: Texts such as `/title.md=theirs`.

    Raises:
        WrongMergeSideError: A text has another form.
    """
    sides: dict[str, MergeSide] = {side: side for side in get_args(MergeSide)}
    choices: dict[str, MergeSide] = {}
    for text in texts:
        path, _, side = text.rpartition('=')
        if not path or side not in sides:
            raise WrongMergeSideError(f'{text!r} chooses no side. Write PATH=ours or PATH=theirs.')
        choices[f'/{path.lstrip("/")}'] = sides[side]
    return choices


async def merge_versions(
    reader: VersionReader,
    ours: VersionRecord,
    theirs: VersionRecord,
    *,
    side: MergeSide | None = None,
    choices: Mapping[str, MergeSide],
) -> MergeReport:
    """Create a version with the changes that both made since their common ancestor, unless they conflict.

    Args:
        reader: The store.
        ours: The version whose conversation continues.
        theirs: The version whose files are merged in.
        side: The side whose files to keep of conflicts without a choice; `None` to report them.
        choices: The sides of conflicts, by path.

    Raises:
        InvalidMergeChoiceError: `choices` contains a path without a conflict.
    """
    one, other = [await reader.versions.load(record.id) for record in (ours, theirs)]
    try:
        merged = await one.merge(other, choices=choices)
    except MergeConflictError as error:
        if side is None:
            conflicts = [MergeConflict(path=conflict.path, kind=conflict.kind) for conflict in error.conflicts]
            return MergeReport(version=None, conflicts=conflicts)
        choices = {**choices, **{conflict.path: side for conflict in error.conflicts}}
        merged = await one.merge(other, choices=choices)
    if merged.id == one.id:  # it contains the other version already
        return MergeReport(version=None, conflicts=[])
    return MergeReport(version=await reader.views.version(merged.record), conflicts=[], choices=dict(choices))


async def check_branch_name(reader: VersionReader, name: str, base: VersionRecord) -> None:
    """Check the name of a new branch.

    Raises:
        BranchExistsError: The conversation of the version has a branch of this name.
        InvalidBranchNameError: The name is blank, or means another version as a revision.
    """
    if not name.strip() or name == HEAD or '~' in name:
        raise InvalidBranchNameError(
            f'{name!r} cannot be the name of a branch: use a name that is not blank, not {HEAD}, and without `~`.'
        )
    if name in {branch.name for branch in await reader.store.branches(base.conversation_id)}:
        raise BranchExistsError(name)


async def _restore_files(reader: VersionReader, record: VersionRecord, *, force: bool) -> Version | None:
    """Check out the files of a version. Return the version in which unversioned edits were stored, if there were any."""
    revisions = reader.revisions
    if record.backend is not None and workspace_key(record.backend) != revisions.workspace:
        raise UnknownVersionError(
            f'The version {short_id(record.id)} belongs to another directory: {record.backend}. Pass that one as --dir.'
        )
    newest = await reader.store.versions(VersionFilter(kinds=['edit']), limit=1)
    version = await reader.versions.load(record.id)
    try:
        await version.checkout(force=force, backend=LocalBackend(revisions.directory))
    except OSError as error:
        place = f'{revisions.directory}{error.filename or ""}'.rstrip('/')
        raise IncompleteCheckoutError(
            f'Some files of the version {short_id(record.id)} were not restored: {place}: {error.strerror}. '
            'Fix the cause and run the command again.'
        ) from error
    after = await reader.store.versions(VersionFilter(kinds=['edit']), limit=1)
    return await reader.views.version(after[0]) if after != newest else None


async def _versions_left_behind(reader: VersionReader, head: VersionRecord, record: VersionRecord) -> list[str]:
    """Return the ancestors of the head that are not ancestors of a version, newest first."""
    ancestors = {ancestor.id for ancestor in (await reader.store.lineage(record.id)).versions}
    line = (await reader.store.lineage(head.id)).versions
    return [version.id for version in reversed(line) if version.id not in ancestors and version.kind in VISIBLE_KINDS]
