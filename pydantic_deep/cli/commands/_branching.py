"""The commands that go somewhere from a version: `rewind`, `checkout`, `merge`, `branch`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio
import typer

from pydantic_deep.cli._environment import Surroundings
from pydantic_deep.cli._schemas import CheckedOut, MergeConflict, Merged, VersionRow
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.approvals._prompter import Asker
from pydantic_deep.cli.history._reader import VISIBLE, Reader
from pydantic_deep.cli.history._revisions import HEAD, UnknownVersionError, shown_id
from pydantic_deep.cli.render._log import count_files, summarize
from pydantic_deep.cli.render._printable import first_line, printable
from pydantic_deep.cli.terminal._deferred_warnings import warned_at_end
from pydantic_deep.cli.turn._conversation import Conversation
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._models import choose_model
from pydantic_deep.cli.turn._runner import run_turn
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, Settings, open_worker
from pydantic_deep.cli.turn._turn_presenter import decide_by
from pydantic_deep.store import BranchExistsError, VersionFilter, VersionRecord
from pydantic_deep.versions import MergeConflictError, UnversionedChangesError
from pydantic_deep.versions._file_backends import workspace_key
from pydantic_deep_backends import LocalBackend

from ._history import EXIT_CODE_HELP, VERSION_HELP
from ._options import (
    APPROVALS_HELP,
    RUN_EXIT_CODE_HELP,
    WRONG_USAGE,
    ApprovalsOption,
    BudgetOption,
    CostOption,
    DirectoryOption,
    DocumentOption,
    HereOption,
    JsonOption,
    MadeOption,
    ModelOption,
    NoUserSkillsOption,
    SandboxOption,
    SkillsOption,
    Start,
    StoreOption,
    fail,
    failing,
    presenting,
    print_document,
    read,
    read_task,
)

changes_app = typer.Typer()


@changes_app.command('rewind', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _rewind(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help='The version to go back to.')],
    directory: MadeOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Go back to a version: the files of the directory become its files, and the next turn goes on from there.

    Nothing is lost: later turns stay in the store, and edits that no version has become one first.
    """

    async def work(reader: Reader) -> CheckedOut:
        record = await reader.names.find(version)
        head = await reader.names.find_head()
        kept = await _check_out(reader, record, force=True) if record.tree is not None else None
        await reader.versions.conversation(record.conversation_id).move_to(await reader.versions.load(record.id))
        return CheckedOut(
            version=await reader.row(await reader.store.version(record.id)),
            kept=kept,
            left=[] if head is None else await _left(reader, head, record),
        )

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
        return
    _say_checked_out(done)
    if done.left:
        ids = ', '.join(shown_id(id) for id in done.left[:5]) + (', …' if len(done.left) > 5 else '')
        stay = '1 version after it stays' if len(done.left) == 1 else f'{len(done.left)} versions after it stay'
        typer.echo(f'{stay} in the store: {ids}')


@changes_app.command('checkout', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _checkout(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help='The version whose files the directory shall have.')],
    directory: MadeOption = Path(),
    force: Annotated[
        bool, typer.Option('--force', help='Keep edits that no version has as a version of their own, and go on.')
    ] = False,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Make the files of the directory those of a version. Edits that no version has are never overwritten.

    What `.gitignore` names stays as it is. The head of the conversation stays where it is: see `rewind`.
    """

    async def work(reader: Reader) -> CheckedOut:
        record = await reader.names.find(version)
        try:
            kept = await _check_out(reader, record, force=force)
        except UnversionedChangesError as error:
            raise fail(_describe(error), 1) from None
        return CheckedOut(version=await reader.row(record), kept=kept, left=[])

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
    else:
        _say_checked_out(done)


@changes_app.command('merge', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _merge(
    context: typer.Context,
    ours: Annotated[str, typer.Argument(metavar='A', help='The version whose conversation goes on.')],
    theirs: Annotated[str, typer.Argument(metavar='B', help='The version whose files are brought in.')],
    directory: HereOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Make a version with the files of both: what each changed since they parted. The directory stays as it is.

    Where A has all of B already, nothing is made. Where both changed the same, nothing is made and the exit code is 1.
    """

    async def work(reader: Reader) -> Merged:
        one, other = [await reader.versions.load((await reader.names.find(name)).id) for name in (ours, theirs)]
        if await reader.came_from(one.record, other.record):
            return Merged(version=None, conflicts=[])
        try:
            merged = await one.merge(other)
        except MergeConflictError as error:
            return Merged(
                version=None, conflicts=[MergeConflict(path=each.path, kind=each.kind) for each in error.conflicts]
            )
        return Merged(version=await reader.row(merged.record), conflicts=[])

    merged = read(context, directory, store, work, writes=True)
    if json:
        print_document(merged)
    elif merged.version is not None:
        short = shown_id(merged.version.id)
        brought = count_files(merged.version.files_changed) or 'no file'
        typer.echo(f'version {short} has the files of both: {brought} brought in.')
        typer.echo(f'To put the files into the directory: pydantic-deep checkout {short}')
    elif not merged.conflicts:
        typer.echo('Already up to date.')
    else:
        for conflict in merged.conflicts:
            typer.echo(printable(f'conflict {conflict.path}: {conflict.kind}'), err=True)
        typer.echo(
            'Both changed the same. Change one side with another turn, then merge again. Nothing was made.', err=True
        )
    raise typer.Exit(1 if merged.conflicts else 0)


@changes_app.command('branch', epilog=f'{VERSION_HELP}\n\n{APPROVALS_HELP}\n\n{RUN_EXIT_CODE_HELP}')
def _branch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='The name of the branch.')],
    task: Annotated[str, typer.Argument(help='What the agent shall do; `-` reads it from standard input.')],
    base: Annotated[str, typer.Option('--from', metavar='VERSION', help='Where the branch begins.')] = HEAD,
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    approvals: ApprovalsOption = ApprovalMode.ask,
    sandbox: SandboxOption = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
    max_cost: CostOption = None,
) -> None:
    """Do one task on a branch of its own, which begins with it.

    From HEAD it works in the directory, from any other version on a copy of its files.
    """
    surroundings = context.find_object(Surroundings) or Surroundings()
    start = Start(surroundings, store, no_store=False, continues=False, base=base)
    text = read_task(task)
    with failing(json=json), warned_at_end():
        settings = Settings(
            directory=str(directory),
            model=choose_model(model, surroundings.environment),
            max_tokens=max_tokens,
            max_cost=max_cost,
            skills=tuple(map(str, skills or ())),
            user_skills=not no_user_skills,
            sandbox=sandbox,
        )
        worker = open_worker(surroundings, settings, approvals=approvals)

        async def work() -> int:
            async with start.open(worker, settings) as conversation:
                await _refuse_if_taken(conversation, name, base)
                turn = await presenting(json=json)(
                    worker,
                    partial(run_turn, conversation, text, branch=name),
                    decide_on=decide_by(approvals, Asker(surroundings=surroundings)),
                )
            return EXIT_CODES[turn.result.status]

        raise typer.Exit(anyio.run(work))


async def _refuse_if_taken(conversation: Conversation, name: str, base: str) -> None:
    """Refuse the name of a branch that the conversation of a version has already."""
    conversation_id = (await conversation.names.find(base)).conversation_id
    if name in {branch.name for branch in await conversation.store.branches(conversation_id)}:
        raise fail(str(BranchExistsError(name)), WRONG_USAGE)


async def _check_out(reader: Reader, record: VersionRecord, *, force: bool) -> VersionRow | None:
    """Put the files of a version into the directory; return the version that edits became, if there were any."""
    names = reader.names
    if record.backend is not None and workspace_key(record.backend) != names.workspace:
        raise UnknownVersionError(
            f'The version {shown_id(record.id)} is of another directory: {record.backend}. Name that with --dir.'
        )
    newest = await reader.store.versions(VersionFilter(kinds=['edit']), limit=1)
    version = await reader.versions.load(record.id)
    try:
        await version.checkout(force=force, backend=LocalBackend(names.directory))
    except OSError as error:
        place = f'{names.directory}{error.filename or ""}'.rstrip('/')
        raise fail(
            f'Not all files of the version {shown_id(record.id)} are in the directory: {place}: {error.strerror}. Do '
            'the same again when that is mended.',
            1,
        ) from None
    after = await reader.store.versions(VersionFilter(kinds=['edit']), limit=1)
    return await reader.row(after[0]) if after != newest else None


async def _left(reader: Reader, head: VersionRecord, record: VersionRecord) -> list[str]:
    """Return the versions that were before the head and are not before another, newest first."""
    before = {each.id for each in (await reader.store.lineage(record.id)).versions}
    line = (await reader.store.lineage(head.id)).versions
    return [each.id for each in reversed(line) if each.id not in before and each.kind in VISIBLE]


def _describe(error: UnversionedChangesError) -> str:
    named = ', '.join(error.paths[:10]) + (f' and {len(error.paths) - 10} more' if len(error.paths) > 10 else '')
    advice = (
        'Use --force to keep them as a version first.'
        if error.can_be_kept
        else 'Move them away: some of them no version can hold.'
    )
    return f'No version has the changes of {named}, and the checkout would lose them. {advice}'


def _say_checked_out(done: CheckedOut) -> None:
    about = first_line(summarize(done.version), 60)
    typer.echo(f'HEAD is {shown_id(done.version.id)}: {about}')
    if done.version.files_changed is None:
        typer.echo('It has no files; those of the directory are as they were.')
    if done.kept is not None:
        typer.echo(f'What was edited in the directory is kept as version {shown_id(done.kept.id)}')
