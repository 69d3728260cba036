"""The commands and what they say of themselves. What they do is in the modules beside this one."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, TextIO

import anyio
import pydantic_ai
import typer
from pydantic_ai.models import Model
from rich.console import Console

from pydantic_deep_backends import BackendUnavailableError

from ._approvals import ApprovalMode, ChatApprovalMode
from ._ask import Asker
from ._chat import chat
from ._conversation import Conversation, ForeignVersionError, WaitingVersionError, open_conversation
from ._events import ResultEvent, Usage, render_json
from ._failures import EXIT_CODES
from ._listing import render_provider_table, render_providers_json, select_providers
from ._models import UnusableModelError, choose_model
from ._names import HEAD, Names, UnknownVersionError
from ._present import decide_by, present_to_person, present_to_program
from ._printable import printable
from ._providers import list_providers
from ._resume import NotWaitingError, Present, Resumption, find_waiting
from ._run import run_turn
from ._skills import skills_app
from ._store import NO_STORE, UnusableStoreError, choose_store, open_kept
from ._surroundings import Surroundings
from ._worker import MAX_TOKENS, Settings, Worker, check_worker, open_worker

EXIT_CODE_HELP = (
    'Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no usable model (none named, unknown, or its key or '
    'package is missing), 4 the budget is used up, 5 paused for approvals, 130 interrupted.'
)

APPROVALS_HELP = (
    'Approvals: writing and editing files and running commands ask first, with the diff or the command line; y lets '
    'the call run, n does not, e changes its arguments, a does not ask again. A script has nobody to ask: it needs '
    '--approvals=allow, or each of these calls is denied.'
)

MODEL_HELP = (
    'The model: --model, else PYDANTIC_DEEP_MODEL, else a default for the first of ANTHROPIC_API_KEY, OPENAI_API_KEY, '
    'GOOGLE_API_KEY that is set. A server on this machine that speaks the API of OpenAI works too: '
    'OPENAI_BASE_URL=http://127.0.0.1:8080/v1 pydantic-deep run --model openai-chat:NAME "…"'
)

WRONG_USAGE = 2
"""The exit code of what cannot be done as it was asked for, whatever the agent would do."""

WRONGLY_USED = (
    BackendUnavailableError,
    ForeignVersionError,
    NotWaitingError,
    UnknownVersionError,
    UnusableStoreError,
    WaitingVersionError,
)
"""What says so."""

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
SkillsOption = Annotated[
    list[Path] | None,
    typer.Option(
        '--skills',
        exists=True,
        file_okay=False,
        metavar='DIR',
        help='A directory with skills; naming it is to trust them. May be given several times.',
    ),
]
NoUserSkillsOption = Annotated[bool, typer.Option('--no-user-skills', help='Leave out the skills in ~/.agents/skills.')]
SandboxOption = Annotated[
    bool, typer.Option('--sandbox', help='Let the agent run commands, isolated by bubblewrap: without network. Linux.')
]
ApprovalsOption = Annotated[
    ApprovalMode,
    typer.Option(
        '--approvals',
        metavar='MODE',
        help='Calls that need an approval: `ask` at the terminal, `deny`, `pause` to answer them later, or `allow`. '
        'Scripts that change files need `allow`: where nobody can be asked, `ask` denies.',
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        '--store',
        metavar='URL',
        help='Where versions are, such as sqlite:///agents.db. Else PYDANTIC_DEEP_STORE, else your own store.',
    ),
]
NoStoreOption = Annotated[bool, typer.Option('--no-store', help='Keep nothing.')]
ContinueOption = Annotated[
    bool, typer.Option('--continue', '-c', help='Go on from the version that the directory has.')
]
FromOption = Annotated[
    str | None,
    typer.Option(
        '--from',
        metavar='VERSION',
        help='Go on from this version. Unless the directory has its files, the agent works on a copy of them.',
    ),
]
JsonOption = Annotated[bool, typer.Option('--json', help='Print events, one JSON object a line.')]


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
    'approval, approval_answer, todos, file, usage, and at last result with status, output, error, usage, files, '
    'todos, pending, version, store and seconds.\n\n' + APPROVALS_HELP + '\n\n' + EXIT_CODE_HELP,
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
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    json: JsonOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
) -> None:
    """Do one task, show the work, print the answer."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    text = sys.stdin.read() if task == '-' else task
    if not text.strip():
        raise typer.BadParameter('it is empty. Say what the agent shall do.', param_hint="'TASK'")
    start = _Start(surroundings, store, no_store=no_store, continues=continues, base=base)
    if no_store and approvals is ApprovalMode.pause:
        raise typer.BadParameter('a turn can wait only where it is kept. Leave out --no-store.')
    with _failing(json=json):
        settings = Settings(
            directory=str(directory),
            model=choose_model(model, surroundings.environment),
            max_tokens=max_tokens,
            skills=tuple(map(str, skills or ())),
            user_skills=not no_user_skills,
            sandbox=sandbox,
        )
        worker = open_worker(surroundings, settings, approvals=approvals)

        async def work() -> int:
            async with start.open(worker, settings) as conversation:
                turn = await _presenting(json=json)(
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
    'not asked again.\n\n' + APPROVALS_HELP + '\n\n' + EXIT_CODE_HELP,
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
) -> None:
    """Answer the approvals that a version waits for, and let the agent go on."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    resumption = Resumption(approvals=approvals, model=model, max_tokens=max_tokens)

    async def work() -> int:
        async with open_kept(choose_store(store, surroundings), surroundings, must_exist=True) as opened:
            names = Names(store=opened, directory=str(directory.resolve()))
            record = await find_waiting(names) if version is None else await names.find(version)
            notify = partial(typer.echo, err=True)
            return await resumption.run(record, opened, surroundings, _presenting(json=json), notify=notify)

    with _failing(json=json):
        raise typer.Exit(anyio.run(work))


@app.command(
    'chat',
    epilog='Ctrl-C stops what the agent is doing and not the chat; Ctrl-D ends it. What you type is kept for the next '
    'time (arrow up). In the chat: /help, /todos, /files, /skills, /new, /quit.\n\n'
    'When standard input is not a terminal, each line of it is a turn.\n\n' + APPROVALS_HELP + '\n\n' + EXIT_CODE_HELP,
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
            help='Calls that need an approval: `ask` at the terminal, `deny`, or `allow`. Where nobody can be asked, '
            '`ask` denies.',
        ),
    ] = ChatApprovalMode.ask,
    sandbox: SandboxOption = False,
    skills: SkillsOption = None,
    no_user_skills: NoUserSkillsOption = False,
    continues: ContinueOption = False,
    base: FromOption = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    max_tokens: BudgetOption = MAX_TOKENS,
) -> None:
    """Work with the agent turn by turn."""
    surroundings = context.find_object(Surroundings) or Surroundings()
    start = _Start(surroundings, store, no_store=no_store, continues=continues, base=base)
    with _failing(json=False):
        settings = Settings(
            directory=str(directory),
            model=choose_model(model, surroundings.environment),
            max_tokens=max_tokens,
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


app.add_typer(skills_app)


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


@dataclass(frozen=True)
class _Start:
    """Where a conversation is kept, and what it begins with."""

    surroundings: Surroundings
    store: str | None
    no_store: bool = field(kw_only=True)
    continues: bool = field(kw_only=True)
    base: str | None = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.continues and self.base is not None:
            raise typer.BadParameter('--continue is --from HEAD. Choose one of both.')
        if self.no_store and self.store is not None:
            raise typer.BadParameter('--no-store keeps nothing. Choose one of --store and --no-store.')

    @asynccontextmanager
    async def open(self, worker: Worker, settings: Settings) -> AsyncGenerator[Conversation]:
        """Open the store, and yield the conversation that goes on."""
        await check_worker(worker)
        url = NO_STORE if self.no_store else choose_store(self.store, self.surroundings)
        async with open_kept(url, self.surroundings) as store:
            conversation = open_conversation(worker, settings, store, is_kept=url != NO_STORE)
            if self.continues or self.base is not None:
                await conversation.go_on_from(self.base or HEAD)
            yield conversation


def _presenting(*, json: bool) -> Present:
    return present_to_program if json else present_to_person


@contextmanager
def _failing(*, json: bool) -> Generator[None]:
    """Say why a command could not begin, in a sentence, and leave with the exit code for it."""
    try:
        yield
    except UnusableModelError as error:
        if json:
            typer.echo(render_json(_no_model(str(error))))
        raise _fail(str(error), EXIT_CODES['no_model']) from None
    except WRONGLY_USED as error:
        raise _fail(str(error), WRONG_USAGE) from None


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
