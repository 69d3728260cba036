"""Verbs about versions. They do what the commands of the same name do, in the directory and the store of the chat."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import get_args

from rich.text import Text

from pydantic_deep.cli.history._changes import (
    check_branch_name,
    check_out,
    merge_versions,
    parse_choices,
    rewind_to,
)
from pydantic_deep.cli.history._pending import check_pending, find_resumable
from pydantic_deep.cli.render._detail_view import render_difference
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._log import print_log
from pydantic_deep.cli.render._reports import describe_checkout, describe_merge, describe_unversioned
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.turn._runner import recover_turn, resume_turn
from pydantic_deep.store import VersionRecord
from pydantic_deep.versions import MergeSide, UnversionedChangesError
from pydantic_deep.views import TurnLineages

from ._picker import pick
from ._recap import recap
from ._session import ChatSession
from ._verbs import Verb, WrongVerbError

LOG_LIMIT = 30
"""Maximum number of versions that `/log` shows, as many as `log` does."""


async def _log(chat: ChatSession, arguments: Sequence[str]) -> None:
    if arguments:
        page = await chat.reader.lineage_log(arguments[0], limit=LOG_LIMIT)
    else:
        page = await chat.reader.log(limit=LOG_LIMIT)
    if page.versions:
        print_log(chat.console, page.versions, page.turn_bases, head_id=page.head_id, titles=page.titles)
    else:
        chat.print(Text('There is no version of this directory.'))


async def _diff(chat: ChatSession, arguments: Sequence[str]) -> None:
    before = arguments[0] if arguments else chat.last_turn().id
    after = arguments[1] if len(arguments) > 1 else None
    print_lines(chat.console, render_difference(await chat.reader.difference(before, after)))


async def _rewind(chat: ChatSession, arguments: Sequence[str]) -> None:
    await _rewind_to(chat, await chat.reader.revisions.find(arguments[0]))


async def _undo(chat: ChatSession, arguments: Sequence[str]) -> None:
    before = await chat.reader.revisions.find(f'{chat.last_turn().id}~')
    if chat.conversation.is_in_directory:
        await _rewind_to(chat, before)
    else:
        await _select(chat, before)


async def _rewind_to(chat: ChatSession, record: VersionRecord) -> None:
    done = await rewind_to(chat.reader, record)
    await chat.conversation.select(record)
    chat.print(*map(Text, describe_checkout(done)))


async def _branch(chat: ChatSession, arguments: Sequence[str]) -> None:
    name, *prompt = arguments
    await check_branch_name(chat.reader, name, chat.tip().record)
    chat.next_branch = name
    if prompt:
        await chat.prompt(prompt[0])
    else:
        chat.print(Text.assemble('The next prompt starts the branch ', (name, 'green'), '.'))


async def _switch(chat: ChatSession, arguments: Sequence[str]) -> None:
    if arguments:
        record = await chat.reader.revisions.find(arguments[0])
    else:
        entry = await pick(chat.reader, chat.console, chat.ask)
        if entry is None:
            return
        record = await chat.reader.store.version(entry.version.id)
    await _check_out(chat, record)
    await recap(chat, record)


async def _check_out(chat: ChatSession, record: VersionRecord) -> None:
    """Continue from a version, with its files in the directory."""
    if record.tree is None:
        await _select(chat, record)
        return
    try:
        done = await check_out(chat.reader, record, force=False)
    except UnversionedChangesError as error:
        advice = f'/rewind {short_id(record.id)} stores them as a version first.'
        raise WrongVerbError(describe_unversioned(error, advice)) from None
    await chat.conversation.select(record)
    chat.print(*map(Text, describe_checkout(done)))


async def _select(chat: ChatSession, record: VersionRecord) -> None:
    """Continue from a version without its files."""
    await chat.conversation.select(record)
    chat.print(Text(f'The next prompt continues from version {short_id(record.id)}. The directory is unchanged.'))


async def _merge(chat: ChatSession, arguments: Sequence[str]) -> None:
    name, *texts = arguments
    try:
        sides = shlex.split(''.join(texts))
    except ValueError as error:
        raise WrongVerbError(f'The sides cannot be read: {error}.') from None
    side = next((side for side in get_args(MergeSide) if f'--{side}' in sides), None)
    choices = parse_choices([text for text in sides if text != f'--{side}'])
    theirs = await chat.reader.revisions.find(name)
    merged = await merge_versions(chat.reader, chat.tip().record, theirs, side=side, choices=choices)
    chat.print(*map(Text, describe_merge(merged, command=' '.join(('/merge', *arguments)), choose='')))
    if merged.version is None:
        return
    record = await chat.reader.store.version(merged.version.id)
    if chat.conversation.is_in_directory:
        await _check_out(chat, record)
    else:
        await _select(chat, record)


async def _resume(chat: ChatSession, arguments: Sequence[str]) -> None:
    revisions = chat.reader.revisions
    record = await revisions.find(arguments[0]) if arguments else await find_resumable(revisions)
    chat.conversation.check_settings(record)
    suspended = await chat.conversation.select_suspended(record)
    if suspended is not None:
        await chat.present(partial(recover_turn, chat.conversation, suspended.id))
        return
    await check_pending(chat.reader.store, record)
    await chat.conversation.resume_from(record)
    task = await TurnLineages(store=chat.reader.store).prompt(record) or ''
    await chat.present(partial(resume_turn, chat.conversation, task))


VERSION_VERBS = (
    Verb(
        name='log',
        arguments='[VERSION]',
        summary='show the versions of the directory, or the past of one',
        run=_log,
        completion='version',
    ),
    Verb(
        name='diff',
        arguments='[A] [B]',
        summary='show the changes of the last turn, or from A to B',
        run=_diff,
        completion='version',
    ),
    Verb(name='undo', summary='go back to the version before the last turn', run=_undo),
    Verb(
        name='rewind',
        arguments='VERSION',
        summary='go back to a version: its files, and the next prompt',
        run=_rewind,
        completion='version',
    ),
    Verb(
        name='branch',
        arguments='NAME [PROMPT…]',
        summary='start a branch with this prompt, or the next one',
        run=_branch,
    ),
    Verb(
        name='switch',
        arguments='[VERSION]',
        summary='continue another branch or version, or pick one',
        run=_switch,
        completion='version',
    ),
    Verb(
        name='merge',
        arguments='VERSION [SIDE…]',
        summary='merge the files of a version into this conversation',
        run=_merge,
        completion='version',
    ),
    Verb(
        name='resume',
        arguments='[VERSION]',
        summary='finish a turn that paused or was killed',
        run=_resume,
        completion='version',
    ),
)
"""What the commands `log`, `diff`, `rewind`, `branch`, `checkout`, `merge` and `resume` do."""
