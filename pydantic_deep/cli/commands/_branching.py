"""The commands `rewind`, `checkout`, `merge` and `branch`, which restore files or create versions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import CheckoutReport, MergeConflict, MergeReport
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._revisions import UnknownVersionError
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._log import count_files, summarize
from pydantic_deep.cli.render._terminal_text import escape_invisible, first_line
from pydantic_deep.cli.turn._runtime import MAX_TOKENS
from pydantic_deep.store import VersionFilter, VersionRecord
from pydantic_deep.versions import VISIBLE_KINDS, MergeConflictError, UnversionedChangesError, workspace_key
from pydantic_deep.views import Version
from pydantic_deep_backends import LocalBackend

from ._history import EXIT_CODE_HELP, VERSION_HELP
from ._options import (
    APPROVALS_HELP,
    BUDGET_HELP,
    RUN_EXIT_CODE_HELP,
    AgentOption,
    ApprovalsOption,
    AskUserOption,
    BudgetOption,
    ConversationStart,
    CostOption,
    DirectoryOption,
    DocumentOption,
    JsonOption,
    ModelOption,
    NoProjectContextOption,
    NoUserSkillsOption,
    PlanOption,
    SandboxOption,
    SkillsOption,
    StoreOption,
    TargetDirectoryOption,
    VersionsDirectoryOption,
    error_exit,
    print_document,
    read,
    read_task,
)
from ._task import AgentOptions, run_task

changes_app = typer.Typer()


@changes_app.command('rewind', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _rewind(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help='The version to go back to.')],
    directory: TargetDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Go back to a version: restore its files in the directory, and continue from it with the next turn.

    Nothing is lost: later versions stay in the store, and unversioned edits are stored as a version first. The head of
    the conversation moves to the version too, so other programs continue from there.
    """

    async def work(reader: VersionReader) -> CheckoutReport:
        record = await reader.revisions.find(version)
        head = await reader.revisions.find_head()
        edit = await _restore_files(reader, record, force=True) if record.tree is not None else None
        await reader.versions.conversation(record.conversation_id).move_to(await reader.versions.load(record.id))
        return CheckoutReport(
            version=await reader.views.version(await reader.store.version(record.id)),
            edits=edit,
            detached=[] if head is None else await _versions_left_behind(reader, head, record),
        )

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
        return
    _print_checkout(done)
    if done.detached:
        ids = ', '.join(short_id(id) for id in done.detached[:5]) + (', …' if len(done.detached) > 5 else '')
        stay = '1 version after it stays' if len(done.detached) == 1 else f'{len(done.detached)} versions after it stay'
        typer.echo(f'{stay} in the store: {ids}')


@changes_app.command('checkout', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _checkout(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help='The version whose files to restore.')],
    directory: TargetDirectoryOption = Path(),
    force: Annotated[
        bool, typer.Option('--force', help='Store unversioned edits as a version of their own first.')
    ] = False,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Restore the files of a version in the directory. Unversioned edits are never overwritten.

    Files that `.gitignore` names are not changed. The head of the conversation does not move: see `rewind`. An empty
    directory, such as one on another machine, is filled with the files of the version; an unknown directory with
    other files is refused.
    """

    async def work(reader: VersionReader) -> CheckoutReport:
        record = await reader.revisions.find(version)
        try:
            edit = await _restore_files(reader, record, force=force)
        except UnversionedChangesError as error:
            raise error_exit(_describe_unversioned(error), 1) from None
        return CheckoutReport(version=await reader.views.version(record), edits=edit, detached=[])

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
    else:
        _print_checkout(done)


@changes_app.command('merge', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _merge(
    context: typer.Context,
    ours: Annotated[str, typer.Argument(metavar='A', help='The version whose conversation continues.')],
    theirs: Annotated[str, typer.Argument(metavar='B', help='The version whose files are merged in.')],
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Create a version with the changes that both made since their common ancestor. The directory does not change.

    If A contains B already, no version is created. If their changes conflict, no version is created and the exit
    code is 1.
    """

    async def work(reader: VersionReader) -> MergeReport:
        one, other = [await reader.versions.load((await reader.revisions.find(name)).id) for name in (ours, theirs)]
        if await reader.contains(one.record, other.record):
            return MergeReport(version=None, conflicts=[])
        try:
            merged = await one.merge(other)
        except MergeConflictError as error:
            return MergeReport(
                version=None,
                conflicts=[MergeConflict(path=conflict.path, kind=conflict.kind) for conflict in error.conflicts],
            )
        return MergeReport(version=await reader.views.version(merged.record), conflicts=[])

    merged = read(context, directory, store, work, writes=True)
    if json:
        print_document(merged)
    elif merged.version is not None:
        short = short_id(merged.version.id)
        changed = count_files(merged.version.files_changed) or 'no file'
        typer.echo(f'version {short} has the changes of both: {changed} merged in.')
        typer.echo(f'To check out its files: pydantic-deep checkout {short}')
    elif not merged.conflicts:
        typer.echo('Already up to date.')
    else:
        for conflict in merged.conflicts:
            typer.echo(escape_invisible(f'conflict {conflict.path}: {conflict.kind}'), err=True)
        typer.echo(
            'Both made conflicting changes, and no version was created. Change one side with another turn, then merge again.',
            err=True,
        )
    raise typer.Exit(1 if merged.conflicts else 0)


@changes_app.command('branch', epilog='\n\n'.join((VERSION_HELP, APPROVALS_HELP, BUDGET_HELP, RUN_EXIT_CODE_HELP)))
def _branch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='The name of the branch, unique in its conversation.')],
    task: Annotated[str, typer.Argument(help='The task; `-` reads it from standard input.')],
    base: Annotated[str, typer.Option('--from', metavar='VERSION', help='The version to branch from.')] = HEAD,
    directory: DirectoryOption = Path(),
    agent: AgentOption = None,
    model: ModelOption = None,
    approvals: ApprovalsOption = ApprovalMode.ask,
    sandbox: SandboxOption = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    no_project_context: NoProjectContextOption = False,
    ask_user: AskUserOption = False,
    plan: PlanOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
    max_cost: CostOption = None,
) -> None:
    """Create a branch and run one task on it.

    From HEAD the agent works in the directory, from any other version on a copy of its files; the last line says how to
    check them out.
    """
    environment = context.find_object(Environment) or Environment()
    start = ConversationStart(environment, store, no_store=False, continues=False, base=base)
    text = read_task(task)
    options = AgentOptions(
        directory,
        agent,
        model,
        sandbox,
        skills,
        no_user_skills,
        no_project_context,
        ask_user,
        plan,
        max_tokens,
        max_cost,
    )
    raise run_task(start, options, text, approvals=approvals, json=json, branch=name)


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
        raise error_exit(
            f'Some files of the version {short_id(record.id)} were not restored: {place}: {error.strerror}. '
            'Fix the cause and run the command again.',
            1,
        ) from None
    after = await reader.store.versions(VersionFilter(kinds=['edit']), limit=1)
    return await reader.views.version(after[0]) if after != newest else None


async def _versions_left_behind(reader: VersionReader, head: VersionRecord, record: VersionRecord) -> list[str]:
    """Return the ancestors of the head that are not ancestors of a version, newest first."""
    ancestors = {ancestor.id for ancestor in (await reader.store.lineage(record.id)).versions}
    line = (await reader.store.lineage(head.id)).versions
    return [version.id for version in reversed(line) if version.id not in ancestors and version.kind in VISIBLE_KINDS]


def _describe_unversioned(error: UnversionedChangesError) -> str:
    named = ', '.join(error.paths[:10]) + (f' and {len(error.paths) - 10} more' if len(error.paths) > 10 else '')
    advice = (
        'Use --force to store them as a version first.'
        if error.can_be_stored
        else 'Move them away: some of them cannot be stored in a version.'
    )
    return f'The changes of {named} are in no version, and the checkout would lose them. {advice}'


def _print_checkout(done: CheckoutReport) -> None:
    about = first_line(summarize(done.version), 60)
    typer.echo(f'HEAD is {short_id(done.version.id)}: {about}')
    if done.version.files_changed is None:
        typer.echo('The version has no files; the directory is unchanged.')
    if done.edits is not None:
        typer.echo(f'Edits in the directory were stored as version {short_id(done.edits.id)}')
