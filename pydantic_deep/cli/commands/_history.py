"""The commands `log`, `show`, `context`, `diff`, `replay` and `sql`, which read a store, and `gc`, which cleans it up."""

from __future__ import annotations

import csv
import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import ContextUsage, GarbageCollectionReport, ReplayReport
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.configuration._recorded_agent import RecordedAgent
from pydantic_deep.cli.history._context_report import load_context_usage, render_context
from pydantic_deep.cli.history._reader import LogPage, VersionReader
from pydantic_deep.cli.render._detail_view import render_details, render_difference
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._log import print_log
from pydantic_deep.cli.render._query_table import render_table, value_of, values_of
from pydantic_deep.cli.render._table_names import summarize_rows
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.turn._conversation import settings_of
from pydantic_deep.store import QueryError, SqlLimits, SqlStore, VersionRecord
from pydantic_deep.versions import Replay, VersionedAgent
from pydantic_deep.views import Difference, VersionDetails

from ._completion import complete_version
from ._options import (
    USAGE_ERROR_CODE,
    AgentOption,
    DocumentOption,
    McpConfigOption,
    ModelOption,
    NoProjectConfigOption,
    StoreOption,
    VersionsDirectoryOption,
    error_exit,
    parse_text,
    print_document,
    read,
)

if TYPE_CHECKING:
    from pydantic_deep.store.analytics import Table

VERSION_HELP = (
    'Versions: HEAD is the version whose files the directory has, HEAD~2 the version two before it; edits and merges '
    'count, pauses and steps within turns do not. An id can be shortened to its end, as `log` shows it, or to an unambiguous '
    'beginning. A branch name refers to its newest version, in the conversation of HEAD, else in the only other one of '
    'the directory that has it; '
    'a name that a program has set on versions refers to the newest of them. Ids take precedence over branches, '
    'branches over such names.'
)

EXIT_CODE_HELP = 'Exit codes: 0 done, 1 it failed, 2 wrong usage.'

VersionArgument = Annotated[
    str, typer.Argument(metavar='VERSION', help='The version.', autocompletion=complete_version)
]

history_app = typer.Typer()


@history_app.command('log', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _log(
    context: typer.Context,
    version: Annotated[
        str | None, typer.Argument(help='Show only this version and its ancestors.', autocompletion=complete_version)
    ] = None,
    directory: VersionsDirectoryOption = Path(),
    conversation: Annotated[
        str | None,
        typer.Option(
            '--conversation', metavar='ID', parser=parse_text, help='Show only the versions of one conversation.'
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option('--all', help='Show the versions of all directories and agents, subagents included.')
    ] = False,
    steps: Annotated[bool, typer.Option('--steps', help='Also show the versions within turns.')] = False,
    search: Annotated[
        str | None,
        typer.Option(
            '--search',
            parser=parse_text,
            metavar='TEXT',
            help='Show only conversations with this text, in any case, in their name, a prompt or an answer. It looks '
            'through the newest 1,000 versions.',
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option('--limit', '-n', min=1, metavar='N', help='The maximum number of versions.')
    ] = 30,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show the versions of the directory as a graph, newest first.

    Marks: ○ root of a conversation, ● turn, ◌ pause for approvals, ✎ edit of files or settings without the agent,
    ◆ merge, · step within a turn (with --steps, or if a turn ended or started there or it was merged). A column
    that ends with … continues with versions that are not shown. Branches of other conversations than that of HEAD are
    followed by the first prompt. Each line has the number of files that differ from the version before. In a pipe,
    prompts are cut to 200 characters. Suspended runs are listed on standard error.
    """

    async def work(reader: VersionReader) -> LogPage:
        await reader.print_suspended_runs(everything=everything)
        if version is not None:
            return await reader.lineage_log(version, limit=limit)
        return await reader.log(
            conversation_id=conversation, everything=everything, steps=steps, search=search, limit=limit
        )

    if version is not None and search is not None:
        raise error_exit(
            '--search looks through all conversations. Leave out the version, or --search.', USAGE_ERROR_CODE
        )
    page = read(context, directory, store, work)
    if json:
        print_document(page.versions)
    elif page.versions:
        print_log(Console(), page.versions, page.turn_bases, head_id=page.head_id, titles=page.titles)
    elif search is not None:
        typer.echo(escape_invisible(f'No conversation contains {search!r}. --all searches all directories.'), err=True)
    else:
        typer.echo('There is no version of this directory. --all shows those of other directories.', err=True)


@history_app.command('show', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _show(
    context: typer.Context,
    version: VersionArgument = HEAD,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show the turn of a version: prompt, calls, answer, files, todos, requests with their settings, subagents."""

    async def work(reader: VersionReader) -> tuple[VersionDetails, str | None]:
        return await reader.views.details(await reader.revisions.find(version)), await reader.head_id()

    details, head_id = read(context, directory, store, work)
    if json:
        print_document(details)
    else:
        print_lines(Console(), render_details(details, is_head=details.id == head_id))


@history_app.command('context', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _context(
    context: typer.Context,
    version: VersionArgument = HEAD,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show the tokens of the conversation of a version, by kind.

    Tokens are counted with the tokenizer of an OpenAI model if the extra `tokenizers` is installed, and estimated
    otherwise. The usage that the provider reported for the last request is shown beside them.
    """

    async def work(reader: VersionReader) -> ContextUsage:
        record = await reader.revisions.find(version)
        return await load_context_usage(await reader.versions.load(record.id))

    usage = read(context, directory, store, work)
    if json:
        print_document(usage)
    else:
        console = Console()
        print_lines(console, render_context(usage, width=console.width if console.is_terminal else None))


@history_app.command('diff', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar='A', help='A version.', autocompletion=complete_version)] = HEAD,
    after: Annotated[
        str | None,
        typer.Argument(
            metavar='B',
            help='Another version. Default: A is compared with the start of its turn.',
            autocompletion=complete_version,
        ),
    ] = None,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show the changes from A to B: messages, todos, and files as unified diffs.

    At most ten lines of each message are shown; --json has all of it.
    """

    async def work(reader: VersionReader) -> Difference:
        return await reader.difference(before, after)

    difference = read(context, directory, store, work)
    if json:
        print_document(difference)
    else:
        print_lines(Console(), render_difference(difference))


@history_app.command(
    'replay', epilog=f'{VERSION_HELP}\n\nExit codes: 0 exact, 1 not exact, 2 wrong usage, 3 no usable model.'
)
def _replay(
    context: typer.Context,
    version: VersionArgument = HEAD,
    directory: VersionsDirectoryOption = Path(),
    agent: AgentOption = None,
    model: ModelOption = None,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Replay a turn from its recorded responses and results, and compare each request with the recorded one.

    Only turns of this command line can be replayed; in a program, use `version.replay()`. No model is called and no tool
    runs, but the MCP servers of the turn start, as requests contain the definitions of their tools. The original model,
    or --model, is needed to prepare the requests, so its key must be set.
    """
    environment = context.find_object(Environment) or Environment()

    async def work(reader: VersionReader) -> tuple[VersionRecord, Replay]:
        record = await reader.revisions.find(version)
        settings = settings_of(record)
        settings = settings if model is None else settings.model_copy(update={'model': model})
        approvals = ApprovalMode.allow if await reader.ran_without_approvals(record) else ApprovalMode.ask
        recorded = RecordedAgent(
            environment=environment, mcp_config=mcp_config or (), no_project_config=no_project_config, own_agent=agent
        )
        runtime = await recorded.runtime(settings, approvals, reader.store)
        versions = VersionedAgent(runtime.agent, reader.store)
        try:
            return record, await (await versions.wrap([record]))[0].replay()
        except ValueError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None

    record, replay = read(context, directory, store, work)
    _print_replay(record.id, replay, json=json)
    raise typer.Exit(0 if replay else 1)


@history_app.command(
    'sql',
    epilog='The tables are versions, messages, runs, requests, tool_calls, conversations, branches, delegations, '
    'approvals, file_changes and todos; the guide on analytics has sample queries. Needs the extra `duckdb`.\n\n'
    + EXIT_CODE_HELP,
)
def _sql(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(help='One read-only statement in DuckDB SQL; `-` reads it from standard input.'),
    ],
    store: StoreOption = None,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array, an object for each row.')] = False,
    as_csv: Annotated[bool, typer.Option('--csv', help='Print comma-separated values.')] = False,
    timeout_seconds: Annotated[
        float, typer.Option('--timeout', min=0.1, metavar='SECONDS', help='The time limit of the query.')
    ] = SqlLimits.timeout_seconds,
) -> None:
    """Query the history of every agent in the store."""
    if json and as_csv:
        raise typer.BadParameter('choose one of --json and --csv.')
    text = sys.stdin.read() if query == '-' else query

    async def work(reader: VersionReader) -> Table:
        try:
            return await cast('SqlStore', reader.store).sql(text, limits=SqlLimits(timeout_seconds=timeout_seconds))
        except ImportError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        except QueryError as error:
            raise error_exit(str(error), 1) from None

    table = read(context, Path(), store, work)
    if json:
        typer.echo(json_format.dumps(values_of(table), indent=2))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator='\n')
        writer.writerow(table.columns)
        writer.writerows([[_cell(value) for value in row] for row in table.rows])
    else:
        render_table(Console(), table)


@history_app.command('gc', epilog=EXIT_CODE_HELP)
def _gc(
    context: typer.Context,
    grace_seconds: Annotated[
        float,
        typer.Option(
            '--grace',
            min=0,
            metavar='SECONDS',
            help='How long an object must have been unreachable before it is removed. 0 is safe only while nothing else uses '
            'the store.',
        ),
    ] = 3600,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Remove objects that no version reaches: the first call marks them, a call after the grace period removes them."""

    async def work(reader: VersionReader) -> GarbageCollectionReport:
        report = await reader.store.gc(grace_seconds)
        return GarbageCollectionReport(
            removed=dict(report.removed), condemned=report.condemned, freed_bytes=report.freed_bytes
        )

    collected = read(context, Path(), store, work, writes=True)
    if json:
        print_document(collected)
    else:
        removed = summarize_rows(collected.removed)
        sizes = f': {collected.freed_bytes} bytes' if collected.freed_bytes else ''
        typer.echo(f'Removed {removed}{sizes}. Marked {collected.condemned} to be removed by a later call.')


def _print_replay(version: str, replay: Replay, *, json: bool) -> None:
    difference = replay.difference
    if json:
        print_document(
            ReplayReport(
                version=version,
                is_exact=difference is None,
                requests=replay.requests,
                difference_number=None if difference is None else difference.number,
                difference_part=None if difference is None else difference.part,
                difference=None if difference is None else difference.detail,
            )
        )
    elif difference is None:
        typer.echo(f'{short_id(version)}: {_describe_requests(replay.requests)} the recording.')
    else:
        typer.echo(
            f'{short_id(version)}: request {difference.number} differs from the recorded one in its {difference.part}:'
        )
        typer.echo(escape_invisible(difference.detail))


def _cell(value: object) -> object:
    """Return the CSV cell of a value. Nested values become JSON."""
    plain = value_of(value)
    return json_format.dumps(plain) if isinstance(plain, dict | list) else plain


def _describe_requests(requests: int) -> str:
    return 'the request matches' if requests == 1 else f'all {requests} requests match'
