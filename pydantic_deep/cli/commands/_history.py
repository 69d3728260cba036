"""The commands `log`, `show`, `context`, `diff`, `replay` and `sql`, which read a store, and `gc`, which cleans it up."""

from __future__ import annotations

import csv
import json as json_format
import sys
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer
from rich.console import Console

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import Difference, GarbageCollectionReport, ReplayReport, VersionDetails, VersionRow
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.history._context_report import (
    ContextReport,
    context_document,
    load_context_report,
    render_context,
)
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._detail_view import render_details, render_difference
from pydantic_deep.cli.render._ids import HEAD, short_id
from pydantic_deep.cli.render._log import print_log
from pydantic_deep.cli.render._query_table import Table, render_table, value_of, values_of
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.turn._conversation import settings_of
from pydantic_deep.cli.turn._runtime import create_runtime
from pydantic_deep.store import QueryError, SqlLimits, VersionRecord
from pydantic_deep.versions import Replay, VersionedAgent

from ._options import (
    USAGE_ERROR_CODE,
    DocumentOption,
    ModelOption,
    StoreOption,
    VersionsDirectoryOption,
    error_exit,
    print_document,
    read,
)

VERSION_HELP = (
    'Versions: HEAD is the one whose files the directory has, HEAD~2 the one two turns before it. Of an id its end is '
    'enough, as `log` shows it, or its beginning; a branch is its newest version.'
)

EXIT_CODE_HELP = 'Exit codes: 0 done, 1 it failed, 2 wrong usage.'

VersionArgument = Annotated[str, typer.Argument(metavar='[VERSION]', help='The version.')]

history_app = typer.Typer()


@history_app.command('log', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _log(
    context: typer.Context,
    version: Annotated[str | None, typer.Argument(help='Only this version and those that it came from.')] = None,
    directory: VersionsDirectoryOption = Path(),
    conversation: Annotated[
        str | None, typer.Option('--conversation', metavar='ID', help='Only the versions of one conversation.')
    ] = None,
    everything: Annotated[bool, typer.Option('--all', help='Versions of all directories and agents.')] = False,
    steps: Annotated[bool, typer.Option('--steps', help='Also the versions in the middle of turns.')] = False,
    limit: Annotated[int, typer.Option('--limit', '-n', min=1, metavar='N', help='At most how many.')] = 30,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show the versions of the directory as a graph, newest first. Suspended runs are named on standard error."""

    async def work(reader: VersionReader) -> tuple[list[VersionRow], dict[str, str]]:
        await reader.print_suspended_runs(everything=everything)
        if version is not None:
            record = await reader.revisions.find(version)
            records = (await reader.store.lineage(record.id)).versions[::-1][:limit]
            return await reader.rows(records), {}
        page = await reader.page(conversation_id=conversation, everything=everything, steps=steps, limit=limit)
        return await reader.rows(page), {} if steps else await reader.turn_bases(page)

    rows, turn_bases = read(context, directory, store, work)
    if json:
        print_document(rows)
    elif rows:
        print_log(Console(), rows, turn_bases)
    else:
        typer.echo('There is no version of this directory. --all shows those of others.', err=True)


@history_app.command('show', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _show(
    context: typer.Context,
    version: VersionArgument = HEAD,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show what happened in the turn of a version: prompt, calls, answer, files, todos, requests, subagents."""

    async def work(reader: VersionReader) -> VersionDetails:
        return await reader.details(await reader.revisions.find(version))

    details = read(context, directory, store, work)
    if json:
        print_document(details)
    else:
        print_lines(Console(), render_details(details))


@history_app.command('context', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _context(
    context: typer.Context,
    version: VersionArgument = HEAD,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show how many tokens the conversation of a version takes, and for what."""

    async def work(reader: VersionReader) -> ContextReport:
        record = await reader.revisions.find(version)
        return await load_context_report(await reader.versions.load(record.id))

    report = read(context, directory, store, work)
    if json:
        print_document(context_document(report))
    else:
        console = Console()
        print_lines(console, render_context(report, width=console.width if console.is_terminal else None))


@history_app.command('diff', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _diff(
    context: typer.Context,
    before: Annotated[str, typer.Argument(metavar='[A]', help='A version.')] = HEAD,
    after: Annotated[
        str | None, typer.Argument(metavar='[B]', help='Another; without it, the whole turn of A is shown.')
    ] = None,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Show what is different in B: messages, todos, and files as unified diffs."""

    async def work(reader: VersionReader) -> Difference:
        names = (f'{before}~', before) if after is None else (before, after)
        one, other = [await reader.revisions.find(name) for name in names]
        return await reader.difference(one, other)

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
    model: ModelOption = None,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Run a turn again on the answers and results that were recorded, and compare each request with what it was.

    No model is asked and no tool runs. The model of then is needed to prepare the requests, or --model.
    """
    environment = context.find_object(Environment) or Environment()

    async def work(reader: VersionReader) -> tuple[VersionRecord, Replay]:
        record = await reader.revisions.find(version)
        settings = settings_of(record)
        settings = settings if model is None else settings.model_copy(update={'model': model})
        approvals = ApprovalMode.allow if await reader.ran_without_approvals(record) else ApprovalMode.ask
        runtime = create_runtime(environment, settings, approvals=approvals)
        versions = VersionedAgent(runtime.agent, reader.store)
        try:
            return record, await (await versions.session.handle(record)).replay()
        except ValueError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None

    record, replay = read(context, directory, store, work)
    _print_replay(record.id, replay, json=json)
    raise typer.Exit(0 if replay else 1)


@history_app.command(
    'sql',
    epilog='The tables are versions, messages, runs, requests, tool_calls, conversations, branches, delegations, '
    'approvals, file_changes and todos; the guide on analytics has queries to begin with. Needs the extra `duckdb`.\n\n'
    + EXIT_CODE_HELP,
)
def _sql(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(help='One statement that only reads, in the SQL of DuckDB; `-` reads it from standard input.'),
    ],
    store: StoreOption = None,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array, an object for each row.')] = False,
    as_csv: Annotated[bool, typer.Option('--csv', help='Print comma-separated values.')] = False,
    timeout_seconds: Annotated[
        float, typer.Option('--timeout', min=0.1, metavar='SECONDS', help='End the query after this long.')
    ] = SqlLimits.timeout_seconds,
) -> None:
    """Ask a question about the history of every agent in the store."""
    if json and as_csv:
        raise typer.BadParameter('choose one of --json and --csv.')
    text = sys.stdin.read() if query == '-' else query

    async def work(reader: VersionReader) -> Table:
        try:
            return await cast('_SupportsSql', reader.store).sql(text, limits=SqlLimits(timeout_seconds=timeout_seconds))
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
        typer.Option('--grace', min=0, metavar='SECONDS', help='How long something must have been unreached to go.'),
    ] = 3600,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Remove what no version reaches any more: the first call marks it, one after the grace removes it."""

    async def work(reader: VersionReader) -> GarbageCollectionReport:
        report = await reader.store.gc(grace_seconds)
        return GarbageCollectionReport(
            removed=dict(report.removed), condemned=report.condemned, freed_bytes=report.freed_bytes
        )

    collected = read(context, Path(), store, work, writes=True)
    if json:
        print_document(collected)
    else:
        removed = ', '.join(f'{count} {kind}' for kind, count in collected.removed.items() if count) or 'nothing'
        typer.echo(f'Removed {removed}: {collected.freed_bytes} bytes. Marked {collected.condemned}.')


def _print_replay(version: str, replay: Replay, *, json: bool) -> None:
    found = replay.difference
    if json:
        print_document(
            ReplayReport(
                version=version,
                is_exact=found is None,
                requests=replay.requests,
                difference_number=None if found is None else found.number,
                difference_part=None if found is None else found.part,
                difference=None if found is None else found.detail,
            )
        )
    elif found is None:
        typer.echo(f'{short_id(version)}: {_describe_requests(replay.requests)} the same as then.')
    else:
        typer.echo(f'{short_id(version)}: request {found.number} is not what it was, in its {found.part}:')
        typer.echo(escape_invisible(found.detail))


class _SupportsSql(Protocol):
    async def sql(self, query: str, *, limits: SqlLimits) -> Table:
        """Return what a query returns."""
        ...


def _cell(value: object) -> object:
    """Return a value as CSV has it: nested ones as JSON."""
    plain = value_of(value)
    return json_format.dumps(plain) if isinstance(plain, dict | list) else plain


def _describe_requests(requests: int) -> str:
    return 'the one request is' if requests == 1 else f'all {requests} requests are'
