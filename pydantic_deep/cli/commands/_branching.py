"""The commands `rewind`, `checkout`, `merge` and `branch`, which restore files or create versions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import CheckoutReport, MergeReport
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.history._changes import check_out, merge_versions, parse_choices, rewind_to
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.cli.render._reports import describe_checkout, describe_merge, describe_unversioned
from pydantic_deep.versions import UnversionedChangesError

from ._completion import complete_version
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
    McpConfigOption,
    MemoryOption,
    ModelOption,
    NoProjectConfigOption,
    NoProjectContextOption,
    NoUserSkillsOption,
    PlanOption,
    SandboxOption,
    SkillsOption,
    StoreOption,
    TargetDirectoryOption,
    VersionsDirectoryOption,
    WebOption,
    choose_output,
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
    version: Annotated[str, typer.Argument(help='The version to go back to.', autocompletion=complete_version)],
    directory: TargetDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Go back to a version: restore its files in the directory, and continue from it with the next turn.

    Nothing is lost: later versions stay in the store, and unversioned edits are stored as a version first. The head of
    the conversation moves to the version too, so other programs continue from there.
    """

    async def work(reader: VersionReader) -> CheckoutReport:
        return await rewind_to(reader, await reader.revisions.find(version))

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
    else:
        _print_lines(describe_checkout(done))


@changes_app.command('checkout', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _checkout(
    context: typer.Context,
    version: Annotated[
        str, typer.Argument(help='The version whose files to restore.', autocompletion=complete_version)
    ],
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
        try:
            return await check_out(reader, await reader.revisions.find(version), force=force)
        except UnversionedChangesError as error:
            advice = 'Use --force to store them as a version first.'
            raise error_exit(describe_unversioned(error, advice), 1) from None

    done = read(context, directory, store, work, writes=True)
    if json:
        print_document(done)
    else:
        _print_lines(describe_checkout(done))


@changes_app.command('merge', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _merge(
    context: typer.Context,
    ours: Annotated[
        str,
        typer.Argument(metavar='A', help='The version whose conversation continues.', autocompletion=complete_version),
    ],
    theirs: Annotated[
        str, typer.Argument(metavar='B', help='The version whose files are merged in.', autocompletion=complete_version)
    ],
    keep_ours: Annotated[bool, typer.Option('--ours', help='Keep the files of A where the changes conflict.')] = False,
    keep_theirs: Annotated[
        bool, typer.Option('--theirs', help='Take the files of B where the changes conflict.')
    ] = False,
    choose: Annotated[
        list[str] | None,
        typer.Option(
            '--choose',
            metavar='PATH=SIDE',
            help='Decide the conflict of one file, such as `/title.md=theirs`. The side is `ours` or `theirs`. Can be '
            'repeated, and takes precedence over --ours and --theirs.',
        ),
    ] = None,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Create a version with the changes that both made since their common ancestor. The directory does not change.

    If A contains B already, no version is created. If their changes conflict and you choose no side, the conflicts are
    listed, no version is created, and the exit code is 1.
    """
    if keep_ours and keep_theirs:
        raise typer.BadParameter('choose one of --ours and --theirs.')
    side = 'ours' if keep_ours else 'theirs' if keep_theirs else None

    async def work(reader: VersionReader) -> MergeReport:
        choices = parse_choices(choose or ())
        one, other = [await reader.revisions.find(name) for name in (ours, theirs)]
        return await merge_versions(reader, one, other, side=side, choices=choices)

    merged = read(context, directory, store, work, writes=True)
    if json:
        print_document(merged)
    else:
        command = shlex.join(['pydantic-deep', 'merge', ours, theirs, *(f'--choose={text}' for text in choose or ())])
        _print_lines(describe_merge(merged, command=command, choose='--choose '), err=bool(merged.conflicts))
        if merged.version is not None:
            typer.echo(f'To check out its files: {next_command("checkout", short_id(merged.version.id))}')
    raise typer.Exit(1 if merged.conflicts else 0)


@changes_app.command('branch', epilog='\n\n'.join((VERSION_HELP, APPROVALS_HELP, BUDGET_HELP, RUN_EXIT_CODE_HELP)))
def _branch(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help='The name of the branch, unique in its conversation.')],
    task: Annotated[str, typer.Argument(help='The task; `-` reads it from standard input.')],
    base: Annotated[
        str,
        typer.Option('--from', metavar='VERSION', help='The version to branch from.', autocompletion=complete_version),
    ] = HEAD,
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
    web: WebOption = None,
    memory: MemoryOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    max_tokens: BudgetOption = None,
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
        web,
        memory,
        max_tokens,
        max_cost,
        mcp_config,
        no_project_config,
    )
    raise run_task(start, options, text, approvals=approvals, output=choose_output(None, json=json), branch=name)


def _print_lines(lines: Sequence[str], *, err: bool = False) -> None:
    for line in lines:
        typer.echo(line, err=err)
