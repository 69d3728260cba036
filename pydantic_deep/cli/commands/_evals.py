"""The commands `evals record` and `evals run`. Their extra is imported when they are called."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer
from rich.console import Console

from pydantic_deep._agent_imports import AnyAgent, InvalidAgentsError, import_agents
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.approvals._policy import GATED_TOOLS, ApprovalMode
from pydantic_deep.cli.configuration._recorded_agent import RecordedAgent
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._score_table import render_scores
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.turn._conversation import ForeignVersionError, settings_of
from pydantic_deep.cli.turn._models import UnusableModelError, choose_model, open_model
from pydantic_deep.cli.turn._providers import PROVIDERS
from pydantic_deep.cli.turn._runtime import Settings
from pydantic_deep.memory import Memories
from pydantic_deep.store import VersionRecord, open_store
from pydantic_deep.versions import VersionedAgent
from pydantic_deep_backends import BackendProtocol

from ._history import EXIT_CODE_HELP, VERSION_HELP
from ._options import (
    USAGE_ERROR_CODE,
    DocumentOption,
    McpConfigOption,
    NoProjectConfigOption,
    StoreOption,
    VersionsDirectoryOption,
    error_exit,
    exit_on_error,
    parse_text,
    print_document,
    read,
)

if TYPE_CHECKING:
    from pydantic_deep.evals import CaseScore, CaseTask, Comparison, TurnCase, TurnResult

evals_app = typer.Typer(
    name='evals',
    no_args_is_help=True,
    help='Turn recorded turns into cases, and run agents over them. Needs the extra `evals`.',
    epilog=EXIT_CODE_HELP,
)

AgentsOption = Annotated[
    list[str] | None,
    typer.Option(
        '--agents',
        metavar='MODULE:NAME',
        help='An agent, or a dictionary of agents by name, in a module that can be imported from the working directory. '
        'Repeatable. Default: the agent of this command line, with the options of the recorded turn.',
    ),
]


@evals_app.command('record', epilog=f'{VERSION_HELP}\n\n{EXIT_CODE_HELP}')
def _record(
    context: typer.Context,
    version: Annotated[str, typer.Argument(help='The version that the turn ended with.')],
    to: Annotated[
        Path, typer.Option('--to', file_okay=False, metavar='DIR', help='The directory to write the case to.')
    ] = Path('evals'),
    name: Annotated[
        str | None,
        typer.Option(
            '--name',
            metavar='NAME',
            parser=parse_text,
            help='The name of the case and of its folder. Default: made from the prompt.',
        ),
    ] = None,
    agents: AgentsOption = None,
    no_verify: Annotated[
        bool,
        typer.Option(
            '--no-verify',
            help='Write the case without replaying it first, which needs its agent. Replays of it then run no tools.',
        ),
    ] = False,
    allow_secrets: Annotated[
        bool,
        typer.Option('--allow-secrets', help='Write the case even if it contains what looks like keys or passwords.'),
    ] = False,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    directory: VersionsDirectoryOption = Path(),
    store: StoreOption = None,
) -> None:
    """Turn a recorded turn into a case: a folder with the prompt, the files before it, and its result.

    A turn that was paused and resumed is one case, with its answers. The case contains the history before the turn and
    all files before it, so read it before you commit it. If it contains what looks like a secret, nothing is written.
    """
    environment = context.find_object(Environment) or Environment()
    recorded = RecordedAgent(environment=environment, mcp_config=mcp_config or (), no_project_config=no_project_config)

    async def work(reader: VersionReader) -> tuple[VersionRecord, Path, int]:
        from pydantic_deep.evals import record_case, write_case

        record = await reader.revisions.find(version)
        agent = await _agent_of(record, reader, recorded, _import_all(agents)) if not no_verify else None
        versions = reader.versions if agent is None else VersionedAgent(agent, reader.store)
        has_memory = not agents and _has_memory(record)
        memories = await Memories.open(reader.store, environment.person) if has_memory else None
        case = await record_case(versions, record.id, name=name, memories=memories, is_verified=not no_verify)
        try:
            return record, write_case(case, to, allow_secrets=allow_secrets), len(case.unrepeatable or ())
        except FileExistsError as error:
            raise error_exit(f'{error.filename} exists already. Choose another --name.', USAGE_ERROR_CODE) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise error_exit(
                f'{error.filename} cannot be written: {reason}. Choose another --to or --name.', 1
            ) from None

    with _usage_errors(), _without_keys():
        record, folder, skipped = read(context, directory, store, work)
    note = f' Replays do not compare {skipped} results, which differed at once.' if skipped else ''
    typer.echo(escape_invisible(f'Recorded the turn of version {short_id(record.id)} in {folder}.{note}'))


@evals_app.command(
    'run',
    epilog='Exit codes: 0 all cases are solved, 1 some are not, 2 wrong usage, 3 no usable model, 130 interrupted.',
)
def _run(
    context: typer.Context,
    directory: Annotated[
        Path,
        typer.Argument(metavar='DIR', exists=True, file_okay=False, help='The directory of the cases, or one case.'),
    ] = Path('evals'),
    agents: AgentsOption = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            '--model',
            '-m',
            metavar='PROVIDER:NAME',
            help='A model to use. Repeatable: each is compared. Default: the model of the agent.',
        ),
    ] = None,
    is_replay: Annotated[
        bool,
        typer.Option(
            '--replay',
            help='Replay the recorded responses, without a model or a key, and name the first request or result that '
            'differs.',
        ),
    ] = False,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    sandbox: Annotated[
        bool,
        typer.Option(
            '--sandbox', help='Give each case a temporary directory in a sandbox, for agents that run commands.'
        ),
    ] = False,
    json: DocumentOption = False,
) -> None:
    """Run agents over cases, and compare them with the recorded turns in one table.

    Each case starts with the history and a copy of the files that its turn started with. Calls that need approval get
    the recorded answers; others are denied. The tools of the agents run: pass agents for tests if theirs act elsewhere.
    """
    environment = context.find_object(Environment) or Environment()
    if is_replay and models:
        raise typer.BadParameter('--replay calls no model. Choose one of --model and --replay.')
    keys = _without_keys() if is_replay else nullcontext()
    with exit_on_error(), deferred_warnings(), _usage_errors(), keys:
        from pydantic_deep.evals import CaseError, CaseFormatError, Comparison, compare, load_cases

        try:
            cases = load_cases(directory, is_replay=is_replay)
        except CaseFormatError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        recorded = RecordedAgent(
            environment=environment, mcp_config=mcp_config or (), no_project_config=no_project_config
        )
        tasks = _tasks(_import_all(agents), models or [], recorded, is_replay=is_replay, sandbox=sandbox)
        total = len(tasks) * len(cases.cases)
        ended: list[CaseScore] = []

        def report(score: CaseScore) -> None:
            ended.append(score)
            typer.echo(escape_invisible(f'{len(ended)}/{total} {score.agent}: {score.case}'), err=True)

        if not (agents or is_replay):
            _check_models([case.inputs for case in cases.cases], models or [], recorded)
        try:
            comparison = anyio.run(partial(compare, cases, tasks, on_result=report))
        except CaseError as error:
            raise error_exit(str(error), USAGE_ERROR_CODE) from None
        except KeyboardInterrupt:
            typer.echo(f'Interrupted: {len(ended)} of {total} runs ended.', err=True)
            _show(Comparison(scores=sorted(ended, key=lambda score: score.case)), json=json, is_complete=False)
            raise
    _show(comparison, json=json)
    raise typer.Exit(0 if comparison else 1)


def _show(comparison: Comparison, *, json: bool, is_complete: bool = True) -> None:
    if json:
        is_solved = is_complete and bool(comparison)
        print_document({'scores': comparison.scores, 'totals': comparison.totals, 'is_solved': is_solved})
    elif comparison.scores:
        render_scores(Console(), comparison)


@contextmanager
def _usage_errors() -> Generator[None]:
    """Exit if the extra is missing, or a module that the agents need."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None


def _import_all(references: list[str] | None) -> Mapping[str, AnyAgent]:
    """Return the agents by name. Those with the same name, such as agents without one, are told apart by references."""
    found = [(reference, import_agents(reference)) for reference in dict.fromkeys(references or ())]
    counts = Counter(name for _, agents in found for name in agents)
    return {
        name if counts[name] == 1 else reference if len(agents) == 1 else f'{reference} {name}': agent
        for reference, agents in found
        for name, agent in agents.items()
    }


def _check_models(cases: Sequence[TurnCase], models: list[str], recorded: RecordedAgent) -> None:
    """Raise `UnusableModelError` before anything runs if a model of `--model`, or that of each case, cannot be used."""
    environment = recorded.environment
    for name in models:
        open_model(name, environment.models)
    errors: list[UnusableModelError] = []
    for case in cases if not models else ():
        try:
            settings = _settings(case, None, recorded)
            open_model(choose_model(settings.model, environment.variables), environment.models)
        except UnusableModelError as error:
            errors.append(error)
        except ForeignVersionError:
            pass  # its run reports it
    if errors and len(errors) == len(cases):
        raise errors[0]


def _has_memory(record: VersionRecord) -> bool:
    try:
        return settings_of(record).memory
    except ForeignVersionError:
        return False


async def _agent_of(
    record: VersionRecord, reader: VersionReader, recorded: RecordedAgent, agents: Mapping[str, AnyAgent]
) -> Any:
    """Return the agent that a version is replayed with."""
    if agents:
        named = agents.get(record.agent_name, next(iter(agents.values())))
        return named.agent if isinstance(named, VersionedAgent) else named
    try:
        settings = settings_of(record)
    except ForeignVersionError as error:
        raise InvalidAgentsError(f'{error} Name its agent with --agents, or use --no-verify.') from None
    approvals = ApprovalMode.allow if await reader.ran_without_approvals(record) else ApprovalMode.ask
    return (await recorded.runtime(settings, approvals, reader.store)).agent


@contextmanager
def _without_keys() -> Generator[None]:
    """Set the missing keys of all providers to a word, so that models can be created that only prepare requests."""
    variables = {variable for provider in PROVIDERS.values() for variable in provider.variables}
    missing = [variable for variable in variables - os.environ.keys() if not variable.endswith('_URL')]
    os.environ.update(dict.fromkeys(missing, 'none'))
    try:
        yield
    finally:
        for variable in missing:
            del os.environ[variable]


def _tasks(
    agents: Mapping[str, AnyAgent], models: list[str], recorded: RecordedAgent, *, is_replay: bool, sandbox: bool
) -> dict[str, CaseTask]:
    """Return the tasks to compare: each agent with each model."""
    from pydantic_deep.evals import replay_case, run_case

    make_backend = _make_sandbox if sandbox else None
    if not agents:
        names = models or ['command-line']
        return {
            name: partial(
                _run_here, model=name if models else None, recorded=recorded, is_replay=is_replay, sandbox=sandbox
            )
            for name in names
        }
    if is_replay:
        return {name: replay_case(agent) for name, agent in agents.items()}
    return {
        ' '.join([*([name] if len(agents) > 1 or not models else []), *([model] if model else [])]): run_case(
            agent, model=open_model(model, recorded.environment.models) if model else None, make_backend=make_backend
        )
        for name, agent in agents.items()
        for model in (models or [None])
    }


async def _run_here(
    case: TurnCase, *, model: str | None, recorded: RecordedAgent, is_replay: bool, sandbox: bool
) -> TurnResult:
    """Run a case with the agent of the command line, as it was configured in the recorded turn."""
    from pydantic_deep.evals import replay_case, run_case

    rows, settings = case.rows, _settings(case, model, recorded)
    settings = settings.model_copy(update={'sandbox': sandbox or settings.sandbox})
    has_run = any(call.tool_name in GATED_TOOLS and call.status != 'deferred' for call in rows.calls) if rows else False
    approvals = ApprovalMode.allow if has_run and rows is not None and not rows.approvals else ApprovalMode.ask
    async with open_store('memory:') as store:
        if case.memory_owner is not None:
            await (await Memories.open(store, case.memory_owner)).fill(case.memory)
        agent = (await recorded.runtime(settings, approvals, store, owner=case.memory_owner)).agent
        if is_replay:
            return await replay_case(agent)(case)
        return await run_case(agent, make_backend=_make_sandbox if settings.sandbox else None)(case)


def _settings(case: TurnCase, model: str | None, recorded: RecordedAgent) -> Settings:
    """Return the settings of the recorded turn with another model, or those of this command line without a recording."""
    if case.rows is None:
        return Settings(
            directory='.',
            model=model or choose_model(None, recorded.environment.variables),
            memory=case.memory_owner is not None,
            mcp_servers=recorded.given_servers(),
        )
    settings = settings_of(case.rows.end)
    return settings.model_copy(update={'model': model or settings.model})


def _make_sandbox(directory: Path) -> BackendProtocol:
    from pydantic_deep_backends.sandbox import SandboxBackend

    return SandboxBackend(directory)
