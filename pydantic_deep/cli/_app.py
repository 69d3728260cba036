"""The commands and what they say of themselves. What they do is in the modules beside this one."""

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
from rich.console import Console
from typer.core import TyperGroup

from pydantic_deep._escapes import visible
from pydantic_deep.cli.approvals._policy import ApprovalMode, ChatApprovalMode
from pydantic_deep.cli.approvals._prompter import Asker
from pydantic_deep.cli.commands._approvals import approvals_app
from pydantic_deep.cli.commands._branching import changes_app
from pydantic_deep.cli.commands._chat import chat
from pydantic_deep.cli.commands._history import history_app
from pydantic_deep.cli.commands._models import render_provider_table, render_providers_json, select_providers
from pydantic_deep.cli.commands._options import (
    APPROVALS_HELP,
    MODEL_HELP,
    RUN_EXIT_CODE_HELP,
    ApprovalsOption,
    BudgetOption,
    ContinueOption,
    CostOption,
    DirectoryOption,
    FromOption,
    InstructionsOption,
    JsonOption,
    ModelOption,
    NoStoreOption,
    NoUserSkillsOption,
    SandboxOption,
    SkillsOption,
    Start,
    StoreOption,
    choice_of,
    failing,
    presenting,
    read_task,
)
from pydantic_deep.cli.commands._resume import Resumption, find_waiting
from pydantic_deep.cli.commands._server import keys_app, serve_app
from pydantic_deep.cli.commands._skills import skills_app
from pydantic_deep.cli.commands._store import store_app
from pydantic_deep.cli.history._revisions import Names
from pydantic_deep.cli.history._store import choose_store, open_kept
from pydantic_deep.cli.terminal._deferred_warnings import warned_at_end
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.cli.turn._models import choose_model
from pydantic_deep.cli.turn._providers import list_providers
from pydantic_deep.cli.turn._runner import run_turn
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, Settings, open_worker
from pydantic_deep.cli.turn._turn_presenter import decide_by

from ._environment import Surroundings


class _Commands(TyperGroup):
    """The commands, none of which takes what is no text."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for arg in args:
            value = arg.partition('=')[2] if arg.startswith('--') else arg
            if value.encode(errors='replace') != value.encode(errors='surrogateescape') and not os.path.lexists(value):
                raise typer.BadParameter(f'{visible(arg, one_line=True)} is no text in UTF-8.', ctx=ctx)
        return super().parse_args(ctx, args)


app = typer.Typer(
    name='pydantic-deep',
    cls=_Commands,
    rich_markup_mode='rich',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # their boxes print local variables, and those hold keys
    context_settings={'help_option_names': ['-h', '--help']},
    epilog=f'{MODEL_HELP}\n\n{RUN_EXIT_CODE_HELP}',
)


def run_app(argv: Sequence[str], models: Mapping[str, Model]) -> int:
    """Run the command line and return its exit code."""
    pydantic_ai.BANNER_ENABLED = False  # it would be drawn across the progress
    for stream in (sys.stdout, sys.stderr):
        _replace_what_cannot_be_encoded(stream)
    code = 0
    try:
        code = _run_command(argv, models)
        sys.stdout.flush()
    except OSError as error:
        if not code and not isinstance(error, BrokenPipeError):
            typer.echo(f'The output cannot be written: {error.strerror}.', err=True)
        _drop_output()
        return code or EXIT_CODES['failed']
    return code


def _run_command(argv: Sequence[str], models: Mapping[str, Model]) -> int:
    code: object = 0
    try:
        app(list(argv), obj=Surroundings(models=models), prog_name='pydantic-deep')
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = EXIT_CODES['interrupted']
    return code if isinstance(code, int) else 0


def _drop_output() -> None:
    """Let what is left to be printed go nowhere: Python writes it once more when it ends, and would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f'pydantic-deep {importlib.metadata.version("pydantic-deep")}')
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option('--version', callback=_print_version, is_eager=True, help='Print the version and leave.')
    ] = False,
) -> None:
    """A deep agent in a directory: it plans with todos, and reads, searches, writes and edits files there."""


@app.command(
    'run',
    epilog='Examples:\n\n'
    '  pydantic-deep run "Summarise sales.csv into report.md" --dir ./data\n\n'
    '  git diff | pydantic-deep run - > review.md\n\n'
    '  pydantic-deep run "Count the TODOs" --json | jq -r \'select(.type == "tool_call").tool\'\n\n'
    'The answer goes to standard output, what happens meanwhile to standard error.\n\n'
    'With --json, standard output is one JSON object a line; its "type" is start, text, tool_call, tool_result, '
    'approval, approval_answer, todos, file, usage, summarized, retried, budget, and at last result with status, output, error, usage, files, '
    'todos, pending, version, store and seconds.\n\n' + APPROVALS_HELP + '\n\n' + RUN_EXIT_CODE_HELP,
)
def _run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help='What the agent shall do; `-` reads it from standard input.')],
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    approvals: ApprovalsOption = ApprovalMode.ask,
    sandbox: SandboxOption = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    continues: ContinueOption = False,
    base: FromOption = None,
    instructions: InstructionsOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    json: JsonOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
    max_cost: CostOption = None,
) -> None:
    """Do one task, show the work, print the answer."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    text = read_task(task)
    start = Start(surroundings, store, no_store=no_store, continues=continues, base=base, instructions=instructions)
    if no_store and approvals is ApprovalMode.pause:
        raise typer.BadParameter('a turn can wait only where it is kept. Leave out --no-store.')
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
                turn = await presenting(json=json)(
                    worker,
                    partial(run_turn, conversation, text),
                    decide_on=decide_by(approvals, Asker(surroundings=surroundings)),
                )
            return EXIT_CODES[turn.result.status]

        raise typer.Exit(anyio.run(work))


@app.command(
    'resume',
    epilog='A version is answered once, by whoever is first. If nothing was answered it waits on. The agent goes on in '
    'the same directory, with the same model and what is left of the budget. What `approvals answer` has answered is '
    'not asked again.\n\n' + APPROVALS_HELP + '\n\n' + RUN_EXIT_CODE_HELP,
)
def _resume(
    context: typer.Context,
    version: Annotated[
        str | None, typer.Argument(help='The version; without one, the newest of the directory that waits.')
    ] = None,
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    approvals: ApprovalsOption = ApprovalMode.ask,
    store: StoreOption = None,
    json: JsonOption = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar='N', help='Another budget for the turn, what it has used included.')
    ] = None,
    max_cost: CostOption = None,
) -> None:
    """Answer the approvals that a version waits for, and let the agent go on."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    resumption = Resumption(approvals=approvals, model=model, max_tokens=max_tokens, max_cost=max_cost)

    async def work() -> int:
        async with open_kept(choose_store(store, surroundings), surroundings, must_exist=True) as opened:
            names = Names(store=opened, directory=str(directory.resolve()))
            record = await find_waiting(names) if version is None else await names.find(version)
            notify = partial(typer.echo, err=True)
            return await resumption.run(record, opened, surroundings, presenting(json=json), notify=notify)

    with failing(json=json), warned_at_end():
        raise typer.Exit(anyio.run(work))


@app.command(
    'chat',
    epilog='Ctrl-C stops what the agent is doing and not the chat; Ctrl-D ends it. What you type is kept for the next '
    'time (arrow up). In the chat: /help, /todos, /files, /context, /skills, /new, /quit.\n\n'
    'When standard input is not a terminal, each line of it is a turn.\n\n'
    + APPROVALS_HELP
    + '\n\n'
    + RUN_EXIT_CODE_HELP,
)
def _chat(
    context: typer.Context,
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    approvals: Annotated[
        ChatApprovalMode,
        typer.Option(
            '--approvals',
            metavar='MODE',
            parser=choice_of(ChatApprovalMode),
            help='Calls that need an approval: `ask` at the terminal, `deny`, or `allow`. Where nobody can be asked, '
            '`ask` denies.',
        ),
    ] = ChatApprovalMode.ask,
    sandbox: SandboxOption = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    continues: ContinueOption = False,
    base: FromOption = None,
    instructions: InstructionsOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
    max_cost: CostOption = None,
) -> None:
    """Work with the agent turn by turn."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    start = Start(surroundings, store, no_store=no_store, continues=continues, base=base, instructions=instructions)
    with failing(json=False):
        settings = Settings(
            directory=str(directory),
            model=choose_model(model, surroundings.environment),
            max_tokens=max_tokens,
            max_cost=max_cost,
            skills=tuple(map(str, skills or ())),
            user_skills=not no_user_skills,
            sandbox=sandbox,
        )
        mode = ApprovalMode(approvals.value)
        worker = open_worker(surroundings, settings, approvals=mode)

        async def work() -> int:
            async with start.open(worker, settings) as conversation:
                return await chat(conversation, surroundings, mode)

        raise typer.Exit(anyio.run(work))


app.add_typer(history_app)
app.add_typer(changes_app)
app.add_typer(approvals_app)
app.add_typer(store_app)
app.add_typer(skills_app)
app.add_typer(serve_app)
app.add_typer(keys_app)


@app.command('models', epilog=MODEL_HELP)
def _models(
    context: typer.Context,
    provider: Annotated[str | None, typer.Argument(help='Show the names of this provider, such as anthropic.')] = None,
    json: Annotated[bool, typer.Option('--json', help='Print one JSON array.')] = False,
) -> None:
    """List who can answer: providers, whether key and package are there, and the names pydantic-ai knows.

    A provider takes names that are not listed as well; newer models come out all the time.
    """
    surroundings = context.find_object(Surroundings) or Surroundings()
    known = list_providers(surroundings.environment)
    chosen = select_providers(known, provider)
    if not chosen:
        raise typer.BadParameter(
            f'there is no provider {provider!r}. Known: {", ".join(state.name for state in known)}.',
            param_hint="'PROVIDER'",
        )
    if json:
        typer.echo(render_providers_json(chosen))
    elif provider:
        typer.echo('\n'.join(model for state in chosen for model in state.models))
    else:
        Console().print(render_provider_table(chosen))


def _replace_what_cannot_be_encoded(stream: TextIO) -> None:
    """Let a terminal that cannot show a character show its number instead of ending the program."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors='backslashreplace')
