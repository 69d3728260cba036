"""The commands `approvals list` and `approvals answer`, for pending approvals of every agent in a store."""

from __future__ import annotations

import json as json_format
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, cast, get_args
from urllib.parse import unquote

import typer
from pydantic import JsonValue
from pydantic_ai import DeferredToolRequests
from rich.console import Console
from rich.text import Text

from pydantic_deep._messages.deferred_metadata import DelegationRequest, parse_request
from pydantic_deep.approvals import (
    ApprovalChangedError,
    ApprovalError,
    Approve,
    Decision,
    Deny,
    Edit,
    Respond,
    view_approval,
)
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._metadata import DIRECTORY
from pydantic_deep.cli.approvals._call_view import CallView
from pydantic_deep.cli.approvals._yaml_arguments import InvalidArgumentsError, find_schema_error, parse_json
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._log import describe_age
from pydantic_deep.cli.render._next_command import next_command
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.cli.turn._conversation import ForeignVersionError, settings_of
from pydantic_deep.store import (
    ApprovalNotFoundError,
    ApprovalRecord,
    ApprovalStatus,
    Store,
    VersionFilter,
    VersionRecord,
)
from pydantic_deep.versions import ApprovalInbox
from pydantic_deep.views import StoredApproval

from ._history import EXIT_CODE_HELP
from ._options import (
    USAGE_ERROR_CODE,
    DocumentOption,
    StoreOption,
    choice_parser,
    error_exit,
    parse_text,
    print_document,
    read,
)

MAX_ITEMS = 10_000
"""Maximum number of approvals searched for an id suffix."""

DIGEST_CHARS = 8
"""Number of digest characters that `list` shows."""

approvals_app = typer.Typer(
    name='approvals',
    no_args_is_help=True,
    help='List and answer the pending approvals of every agent in the store. `resume` continues the turns.',
    epilog=EXIT_CODE_HELP,
)


@approvals_app.command('list', epilog=EXIT_CODE_HELP)
def _list(
    context: typer.Context,
    status: Annotated[
        str,
        typer.Option(
            '--status',
            metavar='STATUS',
            parser=choice_parser(*get_args(ApprovalStatus), 'all'),
            help='List approvals with this status: `pending`, `approved`, `edited`, `denied`, `responded`, `expired`, '
            '`superseded`, or `all`.',
        ),
    ] = 'pending',
    agent: Annotated[
        str | None,
        typer.Option('--agent', metavar='NAME', parser=parse_text, help='List only the approvals of one agent.'),
    ] = None,
    limit: Annotated[
        int, typer.Option('--limit', '-n', min=1, metavar='N', help='The maximum number of approvals.')
    ] = 100,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """List approvals, oldest first, with everything that each call would do.

    Each starts with the end of its id and, after a colon, the beginning of the digest of the call as shown. Suspended
    runs are listed on standard error.
    """

    async def work(reader: VersionReader) -> tuple[list[StoredApproval], dict[str, str | None]]:
        await reader.print_suspended_runs(agent_name=agent)
        wanted = None if status == 'all' else cast('ApprovalStatus', status)
        records = await reader.store.approvals(status=wanted, agent_name=agent, limit=limit)
        approvals = await reader.views.approvals(records)
        return approvals, {} if json else await _load_places(reader, approvals)

    approvals, places = read(context, Path(), store, work)
    if json:
        print_document(approvals)
    elif approvals:
        for number, approval in enumerate(approvals):
            if number:
                typer.echo()
            _print_approval(Console(), approval, places.get(approval.version_id))
    else:
        typer.echo('No approvals are pending.' if status == 'pending' else 'No approvals found.', err=True)


@approvals_app.command('answer', epilog=EXIT_CODE_HELP)
def _answer(
    context: typer.Context,
    id: Annotated[
        str,
        typer.Argument(
            help='The approval, as `list` shows it. With the digest after the colon, the answer is refused if the call '
            'has changed.'
        ),
    ],
    approve: Annotated[bool, typer.Option('--approve', help='Run the call as shown.')] = False,
    deny: Annotated[
        str | None,
        typer.Option(
            '--deny', metavar='REASON', help='Do not run the call; the model gets the reason, which may be empty.'
        ),
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            '--edit', metavar='JSON', help='Run the call with these arguments, a JSON object with all of them.'
        ),
    ] = None,
    respond: Annotated[
        str | None,
        typer.Option(
            '--respond',
            metavar='TEXT',
            parser=parse_text,
            help='Do not run the call; the model gets this text as its result.',
        ),
    ] = None,
    respond_json: Annotated[
        str | None,
        typer.Option(
            '--respond-json', metavar='JSON', help='Do not run the call; the model gets this JSON value as its result.'
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            '--by', metavar='NAME', parser=parse_text, help='The person who answers. Default: USER, else LOGNAME.'
        ),
    ] = None,
    store: StoreOption = None,
    json: DocumentOption = False,
) -> None:
    """Answer a pending call. Nothing runs before `resume`, which asks about unanswered calls only.

    A call is answered once: a second answer fails with exit code 1 and names the first person. Arguments of
    --edit are validated before they are stored.
    """
    environment = context.find_object(Environment) or Environment()
    decision = _parse_decision(approve=approve, deny=deny, edit=edit, respond=respond, respond_json=respond_json)

    async def work(reader: VersionReader) -> tuple[StoredApproval, int, VersionRecord]:
        try:
            id_text, colon, shown = id.partition(':')
            record = await reader.store.approval(await _find_approval_id(reader.store, id_text))
            digest = (await ApprovalInbox(reader.store).get(record.id)).digest
            if colon and (len(shown) < DIGEST_CHARS or not digest.startswith(shown.lower())):
                raise ApprovalChangedError(record.id, shown=shown, digest=digest)
            if isinstance(decision, Edit):
                await _check_edit(reader, record, decision)
            await ApprovalInbox(reader.store).answer(
                record.id, replace(decision, digest=digest), by=by or environment.person, reason=deny
            )
        except (ApprovalError, ApprovalNotFoundError) as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        (approval,) = await reader.views.approvals([await reader.store.approval(record.id)])
        version = await reader.store.version(record.version_id)
        return approval, len(await reader.store.approvals(version_id=version.id)), version

    row, left, record = read(context, Path(), store, work, writes=True)
    if json:
        print_document(row)
        return
    version = short_id(row.version_id)
    typer.echo(escape_invisible(f'{row.status} {row.tool} by {row.decided_by}'))
    if left:
        typer.echo(f'Version {version} has {left} more to answer.')
    else:
        typer.echo(f'All approvals are answered. {_next_step(record)}')


def _next_step(record: VersionRecord) -> str:
    """Return how the turn of a version continues."""
    try:
        place = {'--agent': settings_of(record).agent}
    except ForeignVersionError as error:
        return str(error)
    return f'Resume with: {next_command("resume", short_id(record.id), instead=place)}'


def _parse_decision(
    *, approve: bool, deny: str | None, edit: str | None, respond: str | None, respond_json: str | None
) -> Decision:
    """Return the decision of the options, of which exactly one must be set."""
    decisions: list[Decision] = []
    if approve:
        decisions.append(Approve())
    if deny is not None:
        decisions.append(Deny.because(deny))
    if edit is not None:
        decisions.append(Edit(_parse_arguments(edit)))
    if respond is not None:
        decisions.append(Respond(respond))
    if respond_json is not None:
        decisions.append(Respond(_parse_option('--respond-json', respond_json)))
    if len(decisions) != 1:
        raise typer.BadParameter('use exactly one of --approve, --deny, --edit, --respond and --respond-json.')
    return decisions[0]


def _parse_arguments(text: str) -> dict[str, JsonValue]:
    arguments = _parse_option('--edit', text)
    if not isinstance(arguments, dict):
        raise typer.BadParameter('the arguments must be a JSON object.', param_hint="'--edit'")
    return arguments


def _parse_option(option: str, text: str) -> JsonValue:
    try:
        return parse_json(text)
    except InvalidArgumentsError as error:
        raise typer.BadParameter(f'{error}', param_hint=f"'{option}'") from None


async def _find_approval_id(store: Store, text: str) -> str:
    """Return the only id with this suffix, if there is one. Otherwise return the text, which may be a prefix."""
    approvals: list[ApprovalRecord] = await store.approvals(status=None, limit=MAX_ITEMS)
    matches = [approval.id for approval in approvals if text and approval.id.endswith(text.lower())]
    return matches[0] if len(matches) == 1 else text


async def _check_edit(reader: VersionReader, approval: ApprovalRecord, decision: Edit) -> None:
    """Reject edited arguments that do not match the schema of the tool, if the store has it."""
    version = await reader.versions.load(approval.version_id)
    asking = [version.record]
    for conversation_id in delegation_path(approval, version.deferred_tool_requests):
        asking = await reader.store.versions(VersionFilter(conversation_id=conversation_id), limit=1)
    parameters = [await (await reader.versions.load(record.id)).request_parameters() for record in asking]
    tools = [tool for known in parameters if known is not None for tool in cast('list[dict[str, Any]]', known['tools'])]
    schemas = [tool['parameters'] for tool in tools if tool['name'] == approval.tool_name]
    errors = [error for schema in schemas if (error := find_schema_error(decision.args, schema))]
    if errors:
        raise typer.BadParameter(
            f'{approval.tool_name} does not accept these arguments. {errors[0]}', param_hint="'--edit'"
        )


def delegation_path(approval: ApprovalRecord, requests: DeferredToolRequests | None) -> Iterator[str]:
    """Yield the subagent conversations on the path to a call, outermost first, as far as they are recorded."""
    for part in approval.pending_id.split('/')[:-1]:
        request = None if requests is None else parse_request(requests.metadata.get(unquote(part)))
        if not isinstance(request, DelegationRequest):
            return
        yield request.conversation_id
        requests = request.requests


async def _load_places(reader: VersionReader, approvals: Sequence[StoredApproval]) -> dict[str, str | None]:
    """Return the location of the files of each version with approvals, by version id."""
    places: dict[str, str | None] = {}
    for id in {approval.version_id for approval in approvals if approval.decisions}:
        places[id] = _describe_backend(await reader.store.version(id))
    return places


def _describe_backend(record: VersionRecord) -> str | None:
    """Return the location of the files of a version, if it is recorded."""
    directory: object = json_format.loads(record.metadata).get(DIRECTORY)
    if isinstance(directory, str):
        return directory
    described = json_format.loads(record.backend or '{}')
    id: str | None = described.get('id')
    return id if id is None or id.startswith('/') else f'{described["provider"]}:{id}'


def _print_approval(console: Console, row: StoredApproval, place: str | None) -> None:
    by = f' by {escape_invisible(row.decided_by)}' if row.decided_by else ''
    age = describe_age(row.created_at, datetime.now(UTC))
    head = Text.assemble(
        (f'{short_id(row.id)}:{row.view.digest[:DIGEST_CHARS]}', 'yellow'),
        f' {row.status}{by} {age}',
        (f'  version {short_id(row.version_id)} of {escape_invisible(row.agent)}', 'dim'),
    )
    question = CallView(view=row.view, number=1, count=1)
    print_lines(console, [head, *([] if place is None else [Text(f'in {escape_invisible(place)}', 'dim')])])
    console.print(question.title)
    console.print(question, end='')
    if row.edited_args is not None:
        console.print(Text('edited to', 'bold'))
        edited = view_approval(id=row.pending_id, path=(), tool=row.tool, arguments=row.edited_args, preview=None)
        console.print(CallView(view=edited, number=1, count=1), end='')
    elif row.reason:
        print_lines(console, [Text.assemble(('because ', 'bold'), escape_invisible(row.reason))])
    if row.status == 'responded':
        text = row.response if isinstance(row.response, str) else json_format.dumps(row.response, ensure_ascii=False)
        print_lines(console, [Text.assemble(('result ', 'bold'), escape_invisible(text))])
