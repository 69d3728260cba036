"""The commands and what they say of themselves. What they do is in the modules beside this one."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, TextIO

import anyio
import pydantic_ai
import typer
from pydantic_ai.models import Model
from rich.console import Console

from ._answer import print_answer
from ._chat import chat
from ._events import ResultEvent, Usage, render_json
from ._failures import EXIT_CODES
from ._interrupts import stop_on_interrupt
from ._listing import render_provider_table, render_providers_json, select_providers
from ._models import UnusableModelError
from ._printable import printable
from ._progress import Progress
from ._providers import list_providers
from ._run import Worker, run_turn
from ._surroundings import Surroundings
from ._worker import MAX_TOKENS, open_worker

EXIT_CODE_HELP = (
    'Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no usable model (none named, unknown, or its key or '
    'package is missing), 4 the budget is used up, 130 interrupted.'
)

MODEL_HELP = (
    'The model: --model, else PYDANTIC_DEEP_MODEL, else a default for the first of ANTHROPIC_API_KEY, OPENAI_API_KEY, '
    'GOOGLE_API_KEY that is set. A server on this machine that speaks the API of OpenAI works too: '
    'OPENAI_BASE_URL=http://127.0.0.1:8080/v1 pydantic-deep run --model openai-chat:NAME "…"'
)

app = typer.Typer(
    name='pydantic-deep',
    rich_markup_mode='rich',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # their boxes print local variables, and those hold keys
    context_settings={'help_option_names': ['-h', '--help']},
    epilog=f'{MODEL_HELP}\n\n{EXIT_CODE_HELP}',
)

DirectoryOption = Annotated[
    Path,
    typer.Option(
        '--dir', '-d', exists=True, file_okay=False, help='Where the agent works. It cannot leave this directory.'
    ),
]
ModelOption = Annotated[
    str | None, typer.Option('--model', '-m', help='Who answers, as PROVIDER:NAME. `pydantic-deep models` lists them.')
]
BudgetOption = Annotated[
    int, typer.Option(min=1, metavar='N', help='Stop a turn that has used so many tokens, sent and written together.')
]


def run_app(argv: Sequence[str], models: Mapping[str, Model]) -> int:
    """Run the command line and return its exit code."""
    pydantic_ai.BANNER_ENABLED = False  # it would be drawn across the progress
    for stream in (sys.stdout, sys.stderr):
        _replace_what_cannot_be_encoded(stream)
    code: object = 0
    try:
        app(list(argv), obj=Surroundings(models=models), prog_name='pydantic-deep')
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = EXIT_CODES['interrupted']
    return code if isinstance(code, int) else 0


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
    'todos, file, usage, and at last result with status, output, error, usage, files, todos and seconds.\n\n'
    + EXIT_CODE_HELP,
)
def _run(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help='What the agent shall do; `-` reads it from standard input.')],
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    json: Annotated[bool, typer.Option('--json', help='Print events, one JSON object a line.')] = False,
    max_tokens: BudgetOption = MAX_TOKENS,
) -> None:
    """Do one task, show the work, print the answer."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    text = sys.stdin.read() if task == '-' else task
    if not text.strip():
        raise typer.BadParameter('it is empty. Say what the agent shall do.', param_hint="'TASK'")
    try:
        worker = open_worker(surroundings, directory=directory, model=model, max_tokens=max_tokens)
    except UnusableModelError as error:
        if json:
            typer.echo(render_json(_no_model(str(error))))
        raise _fail(str(error), EXIT_CODES['no_model']) from None
    raise typer.Exit(anyio.run(_run_and_print if not json else _run_and_print_events, worker, text))


@app.command(
    'chat',
    epilog='Ctrl-C stops what the agent is doing and not the chat; Ctrl-D ends it. What you type is kept for the next '
    'time (arrow up). In the chat: /help, /todos, /files, /new, /quit.\n\n'
    'When standard input is not a terminal, each line of it is a turn.\n\n' + EXIT_CODE_HELP,
)
def _chat(
    context: typer.Context,
    directory: DirectoryOption = Path(),
    model: ModelOption = None,
    max_tokens: BudgetOption = MAX_TOKENS,
) -> None:
    """Work with the agent turn by turn."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    try:
        worker = open_worker(surroundings, directory=directory, model=model, max_tokens=max_tokens)
    except UnusableModelError as error:
        raise _fail(str(error), EXIT_CODES['no_model']) from None
    raise typer.Exit(anyio.run(chat, worker, surroundings))


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


async def _run_and_print(worker: Worker, task: str) -> int:
    """Run a turn with progress on standard error and the answer on standard output."""
    progress = Progress(Console(stderr=True), clock=worker.clock, keeps_answer=False)
    with stop_on_interrupt() as stop, progress:
        async with worker.agent:
            turn = await run_turn(worker, task, stop=stop, show=progress.show)
    if turn.result.output is not None:
        print_answer(turn.result.output)
    return EXIT_CODES[turn.result.status]


async def _run_and_print_events(worker: Worker, task: str) -> int:
    """Run a turn with one JSON object a line on standard output, each as soon as it is known."""
    with stop_on_interrupt() as stop:
        async with worker.agent:
            turn = await run_turn(
                worker,
                task,
                stop=stop,
                show=lambda event: print(render_json(event), flush=True),  # noqa: T201
            )
    return EXIT_CODES[turn.result.status]


def _no_model(sentence: str) -> ResultEvent:
    """Return the one event of a run that could not begin."""
    return ResultEvent(status='no_model', output=None, error=sentence, usage=Usage(), files=[], todos=[], seconds=0.0)


def _fail(sentence: str, code: int) -> typer.Exit:
    typer.echo(printable(sentence), err=True)
    return typer.Exit(code)


def _replace_what_cannot_be_encoded(stream: TextIO) -> None:
    """Let a terminal that cannot show a character show its number instead of ending the program."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors='backslashreplace')
