"""The command tree and its help texts. The work of each command is in `commands` and `turn`."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, TextIO

import anyio
import pydantic_ai
import typer
from pydantic_ai.models import Model
from typer.core import TyperGroup

from pydantic_deep._text.escapes import visible
from pydantic_deep.cli.approvals._policy import ApprovalMode
from pydantic_deep.cli.chat._chat import VERBS, chat
from pydantic_deep.cli.commands._acp import acp_app
from pydantic_deep.cli.commands._approvals import approvals_app
from pydantic_deep.cli.commands._branching import changes_app
from pydantic_deep.cli.commands._completion import complete_version
from pydantic_deep.cli.commands._config import config_app, mcp_app
from pydantic_deep.cli.commands._evals import evals_app
from pydantic_deep.cli.commands._history import history_app
from pydantic_deep.cli.commands._mcp import mcp_server_app
from pydantic_deep.cli.commands._memory import memory_app
from pydantic_deep.cli.commands._models import models_app
from pydantic_deep.cli.commands._options import (
    APPROVALS_HELP,
    BUDGET_HELP,
    MODEL_HELP,
    RUN_EXIT_CODE_HELP,
    VERSIONED_FILES_HELP,
    AgentOption,
    ApprovalsOption,
    AskUserOption,
    BudgetOption,
    ContinueOption,
    ConversationStart,
    CostOption,
    DirectoryOption,
    FromOption,
    InstructionsOption,
    JsonOption,
    McpConfigOption,
    MemoryOption,
    ModelOption,
    NoProjectConfigOption,
    NoProjectContextOption,
    NoStoreOption,
    NoUserSkillsOption,
    OutputFormatOption,
    PlanOption,
    SandboxOption,
    SkillsOption,
    StoreOption,
    WebOption,
    choice_parser,
    choose_output,
    choose_presenter,
    exit_on_error,
    read_task,
)
from pydantic_deep.cli.commands._resume import Resumption
from pydantic_deep.cli.commands._server import keys_app, serve_app
from pydantic_deep.cli.commands._skills import skills_app
from pydantic_deep.cli.commands._store import store_app
from pydantic_deep.cli.commands._task import AgentOptions, run_task
from pydantic_deep.cli.commands._webhooks import webhooks_app
from pydantic_deep.cli.commands._worker import worker_app
from pydantic_deep.cli.history._pending import find_resumable
from pydantic_deep.cli.history._revisions import Revisions
from pydantic_deep.cli.history._store import choose_store, open_chosen_store
from pydantic_deep.cli.render._next_command import keep_options
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._runtime import create_runtime

from ._environment import Environment


def _join_lines(command: Any) -> None:
    """Join the lines of each paragraph in the help of a command and its subcommands.

    Typer wraps lines of rich markup one by one, so the lines of a docstring would alternate in length.
    """
    command.help = '\n\n'.join(' '.join(part.split()) for part in (command.help or '').split('\n\n'))
    for subcommand in getattr(command, 'commands', {}).values():
        _join_lines(subcommand)


class _CommandGroup(TyperGroup):
    """The command group. It rejects arguments that are not valid UTF-8, except existing paths."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        _join_lines(self)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for arg in args:
            value = arg.partition('=')[2] if arg.startswith('--') else arg
            if value.encode(errors='replace') != value.encode(errors='surrogateescape') and not os.path.lexists(value):
                raise typer.BadParameter(f'{visible(arg, one_line=True)} is not valid UTF-8.', ctx=ctx)
        return super().parse_args(ctx, args)


app = typer.Typer(
    name='pydantic-deep',
    cls=_CommandGroup,
    rich_markup_mode='rich',
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, which may contain keys
    context_settings={'help_option_names': ['-h', '--help']},
    epilog=f'{MODEL_HELP}\n\n{RUN_EXIT_CODE_HELP}',
)


def run_app(argv: Sequence[str], models: Mapping[str, Model]) -> int:
    """Run the command line and return its exit code."""
    pydantic_ai.BANNER_ENABLED = False  # the banner would overwrite the progress display
    _open_closed_streams()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        _escape_invalid(stream)
    code = 0
    try:
        code = _run_command(argv, models)
        sys.stdout.flush()
    except OSError as error:
        if not code and not isinstance(error, BrokenPipeError):
            typer.echo(f'The output cannot be written: {error.strerror}.', err=True)
        _discard_output()
        return code or EXIT_CODES['failed']
    return code


def _run_command(argv: Sequence[str], models: Mapping[str, Model]) -> int:
    code: object = 0
    try:
        app(list(argv), obj=Environment(models=models), prog_name='pydantic-deep')
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = EXIT_CODES['interrupted']
    return code if isinstance(code, int) else 0


def _discard_output() -> None:
    """Discard buffered output: Python flushes it again at exit, which would fail a second time."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'pydantic-deep {importlib.metadata.version("versioned-deep-agents")}')
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option('--version', callback=_print_version, is_eager=True, help='Show the version and exit.')
    ] = False,
) -> None:
    """Run a deep agent in a directory: it plans with todos, and reads, searches, writes and edits files there."""
    keep_options(context)


@app.command(
    'run',
    epilog='Examples:\n\n'
    '  pydantic-deep run "Summarise sales.csv into report.md" --dir ./data\n\n'
    '  git diff | pydantic-deep run - > review.md\n\n'
    '  pydantic-deep run "Count the TODOs" --json | jq -r \'select(.type == "tool_call").name\'\n\n'
    '  pydantic-deep run "Count the TODOs" --output-format json | jq -r .end.output\n\n'
    'The answer goes to standard output, progress to standard error. Ctrl-C stops the turn; completed work is not '
    'undone. A second Ctrl-C ends the process at once.\n\n'
    + '\n\n'.join((APPROVALS_HELP, BUDGET_HELP, VERSIONED_FILES_HELP, RUN_EXIT_CODE_HELP)),
)
def _run(
    context: typer.Context,
    task: Annotated[
        str | None, typer.Argument(help='The task. `-`, or a pipe and no task: read it from standard input.')
    ] = None,
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
    continues: ContinueOption = False,
    base: FromOption = None,
    instructions: InstructionsOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    output_format: OutputFormatOption = None,
    json: JsonOption = False,
    max_tokens: BudgetOption = None,
    max_cost: CostOption = None,
) -> None:
    """Run one task, show its progress, and print the answer.

    The turn ends with a version: the dialogue, the todos and the files of the directory. Standard error names the
    version and its store. If another turn is working in the directory, this one works on a copy of the files. With
    --sandbox, changes by commands are found by a scan of the directory. A scan of more than three seconds is not
    repeated, and a message at the end of the turn reports that the list of files may be incomplete.
    """
    environment = context.find_object(Environment) or Environment()
    text = read_task(task)
    start = ConversationStart(
        environment, store, no_store=no_store, continues=continues, base=base, instructions=instructions
    )
    if no_store and approvals is ApprovalMode.pause:
        raise typer.BadParameter('a paused turn has to be stored. Omit --no-store.')
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
    raise run_task(start, options, text, approvals=approvals, output=choose_output(output_format, json=json))


@app.command(
    'resume',
    epilog='\n\n'.join((APPROVALS_HELP, BUDGET_HELP, RUN_EXIT_CODE_HELP)),
)
def _resume(
    context: typer.Context,
    version: Annotated[
        str | None,
        typer.Argument(
            help='The version. Default: the newest of the directory with pending approvals, else the last step of a turn '
            'whose process stopped.',
            autocompletion=complete_version,
        ),
    ] = None,
    directory: DirectoryOption = Path(),
    agent: AgentOption = None,
    model: ModelOption = None,
    approvals: ApprovalsOption = ApprovalMode.ask,
    mcp_config: McpConfigOption = None,
    no_project_config: NoProjectConfigOption = False,
    store: StoreOption = None,
    json: JsonOption = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, metavar='N', help='Replace the token budget of the whole turn, including tokens already used.'
        ),
    ] = None,
    max_cost: CostOption = None,
) -> None:
    """Answer the pending approvals of a version and resume its turn, or finish a turn whose process stopped.

    A call that may have run before the process stopped needs your approval to run again, unless it only reads.
    The turn resumes in the same directory, with the same model and the remaining budget. You are not asked about calls
    that `approvals answer` has answered. `--approvals=allow` and `deny` also decide the calls that are pending now.
    Without a terminal, `ask` and `pause` refuse to start if calls are pending, and `ask` also if a turn has to be
    finished: exit code 2. With `--approvals=pause`, you are asked about the pending calls, and later calls pause the
    turn again; an answer of `a` does not apply to them.

    Each call is answered once, and the first answer counts: if another person answers a call while you are asked, that
    answer is used. If another process has resumed the turn, this command ends and names the newest version. If you press
    Ctrl-C at a prompt, no call is answered and the approvals stay pending. If the turn fails after your answers,
    continue with `run --continue TASK`. The files listed at the end are those that changed since you resumed.
    """
    environment = context.find_object(Environment) or Environment()
    output = choose_output(None, json=json)
    resumption = Resumption(
        approvals=approvals,
        agent=agent,
        model=model,
        max_tokens=max_tokens,
        max_cost=max_cost,
        mcp_config=mcp_config or (),
        no_project_config=no_project_config,
    )

    async def work() -> int:
        async with open_chosen_store(choose_store(store, environment), environment, must_exist=True) as opened:
            revisions = Revisions(store=opened, directory=str(directory.resolve()))
            record = await find_resumable(revisions) if version is None else await revisions.find(version)
            notify = partial(typer.echo, err=True)
            return await resumption.run(record, opened, environment, choose_presenter(output), notify=notify)

    with exit_on_error(output), deferred_warnings():
        raise typer.Exit(anyio.run(work))


@app.command(
    'chat',
    epilog='Ctrl-C stops the turn, not the chat; a second one ends the process at once. Ctrl-D ends the chat. Arrow up '
    'recalls earlier prompts, which are stored in ~/.local/state/pydantic-deep/chat_history with access for you only. '
    f'In the chat: {", ".join(f"/{verb.name}" for verb in VERBS.listed)}, /NAME for a skill, @PATH for a file, '
    '!COMMAND for the sandbox. /help explains them.\n\n'
    'If standard input is not a terminal, each line of it is a turn, answers go to standard output, and the exit code '
    'is that of the last turn. At a terminal it is 0, or 2 or 3 if the chat cannot start.\n\n'
    + '\n\n'.join((APPROVALS_HELP, BUDGET_HELP, VERSIONED_FILES_HELP, RUN_EXIT_CODE_HELP)),
)
def _chat(
    context: typer.Context,
    directory: DirectoryOption = Path(),
    agent: AgentOption = None,
    model: ModelOption = None,
    approvals: Annotated[
        ApprovalMode,
        typer.Option(
            '--approvals',
            metavar='MODE',
            parser=choice_parser(ApprovalMode.ask, ApprovalMode.deny, ApprovalMode.allow),
            help='How to handle calls that need approval: `ask` at the terminal, `deny`, or `allow`. Without a terminal, '
            '`ask` denies.',
        ),
    ] = ApprovalMode.ask,
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
    continues: ContinueOption = False,
    base: FromOption = None,
    instructions: InstructionsOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    pick: Annotated[
        bool, typer.Option('--pick', help='Choose the conversation to continue from a list, as /switch does.')
    ] = False,
    no_bell: Annotated[
        bool, typer.Option('--no-bell', help='Do not ring the terminal at approvals and at the end of long turns.')
    ] = False,
    max_tokens: BudgetOption = None,
    max_cost: CostOption = None,
) -> None:
    """Talk to the agent turn by turn.

    The agent remembers earlier turns until you exit or say /new. A turn that fails or is stopped does not end the chat,
    and the next turn knows its messages. If the connection breaks during an answer, a line marks the text above as
    void, and the answer starts again.
    """
    environment = context.find_object(Environment) or Environment()
    start = ConversationStart(
        environment, store, no_store=no_store, continues=continues, base=base, instructions=instructions
    )
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
    with exit_on_error():
        settings, extras = options.configure(environment)
        runtime = create_runtime(environment, settings, approvals=approvals, own_agent=agent, extras=extras)

        async def work() -> int:
            async with start.open(runtime, settings, is_chat=True) as conversation:
                return await chat(conversation, environment, approvals, picks=pick, has_bell=not no_bell)

        raise typer.Exit(anyio.run(work))


app.add_typer(models_app)
app.add_typer(config_app)
app.add_typer(mcp_app)
app.add_typer(history_app)
app.add_typer(changes_app)
app.add_typer(approvals_app)
app.add_typer(memory_app)
app.add_typer(store_app)
app.add_typer(evals_app)
app.add_typer(skills_app)
app.add_typer(serve_app)
app.add_typer(mcp_server_app)
app.add_typer(acp_app)
app.add_typer(worker_app)
app.add_typer(keys_app)
app.add_typer(webhooks_app)


def _open_closed_streams() -> None:
    """Use the null device for standard streams that the caller has closed, so that no other file gets their number."""
    for name, mode in (('stdin', 'r'), ('stdout', 'w'), ('stderr', 'w')):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding='utf-8'))  # noqa: PTH123, SIM115 - until the process ends


def _escape_invalid(stream: TextIO) -> None:
    """Print characters that the encoding of a stream lacks as escapes, and read invalid bytes as such."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors='backslashreplace')
