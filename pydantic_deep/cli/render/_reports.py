"""Sentences about checkouts and merges. Pure."""

from __future__ import annotations

import shlex

from pydantic_deep.cli._schemas import CheckoutReport, MergeReport
from pydantic_deep.versions import UnversionedChangesError

from ._ids import short_id
from ._log import count_files, summarize
from ._terminal_text import escape_invisible, first_line_of_prose


def describe_checkout(done: CheckoutReport) -> list[str]:
    """Return the lines that report a checkout or a rewind."""
    lines = [f'HEAD is {short_id(done.version.id)}: {first_line_of_prose(summarize(done.version), 60)}']
    if done.version.files_changed is None:
        lines.append('The version has no files; the directory is unchanged.')
    if done.edits is not None:
        lines.append(f'Edits in the directory were stored as version {short_id(done.edits.id)}')
    if done.detached:
        ids = ', '.join(short_id(id) for id in done.detached[:5]) + (', …' if len(done.detached) > 5 else '')
        stay = '1 version after it stays' if len(done.detached) == 1 else f'{len(done.detached)} versions after it stay'
        lines.append(f'{stay} in the store: {ids}')
    return lines


def describe_merge(merged: MergeReport, *, command: str, choose: str) -> list[str]:
    """Return the lines that report a merge or its conflicts.

    Args:
        merged: The report.
        command: The command of the merge, to which the sides of conflicts can be added.
        choose: What the command needs before the side of one file.
    """
    if merged.version is not None:
        changed = count_files(merged.version.files_changed) or 'no file'
        return [
            *(escape_invisible(f'kept {side}: {path}') for path, side in sorted(merged.choices.items())),
            f'version {short_id(merged.version.id)} has the changes of both: {changed} merged in.',
        ]
    if not merged.conflicts:
        return ['Already up to date.']
    one = shlex.quote(f'{merged.conflicts[0].path}=theirs')
    return [
        *(escape_invisible(f'conflict {conflict.path}: {conflict.kind}') for conflict in merged.conflicts),
        'Both made conflicting changes, and no version was created. Choose a side for all conflicts, or file by file:',
        *(escape_invisible(f'  {command} {side}') for side in ('--ours', '--theirs', f'{choose}{one}')),
    ]


def describe_unversioned(error: UnversionedChangesError, advice: str) -> str:
    """Return why a checkout was refused.

    Args:
        error: The edits that no version has.
        advice: The sentence that says how to store them, if that is possible.
    """
    named = ', '.join(error.paths[:10]) + (f' and {len(error.paths) - 10} more' if len(error.paths) > 10 else '')
    advice = advice if error.can_be_stored else 'Move them away: some of them cannot be stored in a version.'
    return f'The changes of {named} are in no version, and the checkout would lose them. {advice}'
