"""Options, the start of a conversation and error handling that several commands share."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, TypeVar, cast

import anyio
import typer
from pydantic_core import to_jsonable_python

from pydantic_deep._agent_imports import InvalidAgentsError
from pydantic_deep._text.escapes import is_blank
from pydantic_deep.budgets import Budget
from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import TaskResult
from pydantic_deep.cli.approvals._policy import ApprovalMode, NotPendingError
from pydantic_deep.cli.configuration._schema import ConfigurationError
from pydantic_deep.cli.history._changes import InvalidBranchNameError, WrongMergeSideError
from pydantic_deep.cli.history._reader import VersionReader
from pydantic_deep.cli.history._revisions import Revisions, UnknownVersionError
from pydantic_deep.cli.history._store import NO_STORE, UnusableStoreError, choose_store, open_chosen_store
from pydantic_deep.cli.render._ids import HEAD
from pydantic_deep.cli.render._next_command import keep_option
from pydantic_deep.cli.render._terminal_text import describe_error, escape_invisible
from pydantic_deep.cli.terminal._deferred_warnings import deferred_warnings
from pydantic_deep.cli.turn._conversation import (
    Conversation,
    ForeignVersionError,
    PendingVersionError,
    open_conversation,
)
from pydantic_deep.cli.turn._failures import ERROR_EXIT_CODES, EXIT_CODES
from pydantic_deep.cli.turn._memory import UnusableMemoryError, check_memory, with_memory
from pydantic_deep.cli.turn._models import UnusableModelError
from pydantic_deep.cli.turn._runtime import MAX_TOKENS, AgentRuntime, Settings, UnusableWebError, check_runtime
from pydantic_deep.cli.turn._turn_presenter import (
    OutputFormat,
    present_as_document,
    present_as_json,
    present_as_text,
    print_event,
    print_result,
)
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.mcp import McpConfigError
from pydantic_deep.memory import UnknownMemoryError
from pydantic_deep.store import BranchExistsError
from pydantic_deep.streaming import EndEvent, ErrorEvent
from pydantic_deep.versions import InvalidMergeChoiceError
from pydantic_deep_backends import BackendUnavailableError, ScanLimitError

from ._completion import complete_model, complete_version
from ._resume import Presenter

T = TypeVar('T')
ChoiceT = TypeVar('ChoiceT', bound=str)

RUN_EXIT_CODE_HELP = (
    'Exit codes: 0 done, 1 the run failed, 2 wrong usage, 3 no usable model (none named, unknown, or its key or '
    'package is missing), 4 the budget is used up, 5 paused for approvals, 6 suspended, 130 interrupted.'
)

APPROVALS_HELP = (
    'Approvals: the agent asks before it writes or edits a file, runs a command, or calls a tool of an MCP server that '
    'may change something, and shows the diff, the command line or the arguments. Answer y to run the call, n to deny '
    'it, e to edit its arguments, a to stop asking about this tool in this conversation (for a command: about this exact '
    'command line). Of several pending calls, none runs until all are answered. If standard input is a pipe, the terminal '
    'that controls the process asks. Without a terminal, these calls '
    'are denied unless you pass --approvals=allow.'
)

BUDGET_HELP = (
    'Budget: each turn has its own, which its subagents share. Every request counts the whole conversation that it '
    'sends. At four fifths, the model is asked to finish. When about one answer fits, it is informed that the next '
    'answer is the last and cannot call tools. A request that has started is completed, so an answer can exceed the '
    'budget. If the task is not done then, the exit code is 4, and files and the version remain. There is no limit on '
    'the number of requests. If the price of a model is unknown, only tokens count.'
)

VERSIONED_FILES_HELP = (
    'Files that .gitignore names are in no version. A directory with more than 50,000 files or 500 MB is not versioned: '
    'its versions contain the dialogue only, and the end of the turn reports this.'
)

MODEL_HELP = (
    'Model: --model, else PYDANTIC_DEEP_MODEL, else that of a configuration file, else a default for the first of ANTHROPIC_API_KEY, OPENAI_API_KEY, '
    'GOOGLE_API_KEY and GEMINI_API_KEY that is set. A local server with the API of OpenAI needs no key: '
    '`OPENAI_BASE_URL=http://127.0.0.1:8080/v1 pydantic-deep run --model openai-chat:NAME "…"` '
    '(`openai-chat:` is the chat completions API, `openai:` the responses API).'
)

USAGE_ERROR_CODE = 2
"""The exit code for wrong usage."""

USAGE_ERRORS = (
    BackendUnavailableError,
    BranchExistsError,
    ConfigurationError,
    ForeignVersionError,
    InvalidAgentsError,
    InvalidBranchNameError,
    InvalidMergeChoiceError,
    McpConfigError,
    NotPendingError,
    UnknownVersionError,
    UnknownMemoryError,
    UnusableMemoryError,
    UnusableStoreError,
    UnusableWebError,
    WrongMergeSideError,
    PendingVersionError,
)
"""Errors that exit with `USAGE_ERROR_CODE`."""

DirectoryOption = Annotated[
    Path,
    typer.Option(
        '--dir',
        '-d',
        exists=True,
        file_okay=False,
        callback=keep_option,
        help='The working directory of the agent, which it cannot leave.',
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        '--model',
        '-m',
        metavar='PROVIDER:NAME',
        help='The model to use. `pydantic-deep models` lists names.',
        autocompletion=complete_model,
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar='N',
        help=f'The budget of a turn in tokens, input and output together. Default: {MAX_TOKENS:,}.',
    ),
]


def choice_parser(*choices: ChoiceT) -> Callable[[str], ChoiceT]:
    """Return an option parser for fixed choices. Typer's own parser of an enum puts `Value error` before the message."""

    def parse(text: str) -> ChoiceT:
        if text not in choices:
            raise typer.BadParameter(f'{str(text)!r} is not one of {", ".join(choices)}.')
        return choices[choices.index(text)]

    return parse


def parse_text(text: str) -> str:
    """Return the text of an option or argument. An empty one, such as that of an unset variable of a shell, is wrong usage."""
    if is_blank(text):
        raise typer.BadParameter('it is empty. Pass a text.')
    return text


def _parse_dollars(text: str) -> Decimal:
    try:
        return cast('Decimal', Budget(cost=text).cost)
    except ValueError:
        raise typer.BadParameter(f'{text!r} is not an amount of US dollars above 0, such as 0.50.') from None


CostOption = Annotated[
    Decimal | None,
    typer.Option(
        '--max-cost', metavar='USD', parser=_parse_dollars, help='The budget of a turn in US dollars, such as 0.50.'
    ),
]
SkillsOption = Annotated[
    list[Path] | None,
    typer.Option(
        '--skills',
        exists=True,
        file_okay=False,
        metavar='DIR',
        help='A directory of skills (DIR/NAME/SKILL.md) that you trust. Repeatable; the first directory with a name wins, '
        'before ~/.agents/skills.',
    ),
]
NoUserSkillsOption = Annotated[bool, typer.Option('--no-user-skills', help='Ignore the skills in ~/.agents/skills.')]
AgentOption = Annotated[
    str | None,
    typer.Option(
        '--agent',
        metavar='MODULE:NAME',
        callback=keep_option,
        help='Your own agent, with its own model, skills and approvals, instead of that of the command line. Its deps are '
        '`DeepAgentDeps` with the directory.',
    ),
]
NoProjectContextOption = Annotated[
    bool, typer.Option('--no-project-context', help='Ignore the instructions in AGENTS.md and CLAUDE.md.')
]
PlanOption = Annotated[
    bool, typer.Option('--plan', help='Plan first: the agent changes nothing until you have accepted its plan.')
]
AskUserOption = Annotated[bool, typer.Option('--ask-user', help='Let the agent ask you questions.')]
WebOption = Annotated[
    bool | None,
    typer.Option(
        '--web/--no-web',
        help='Let the agent search the web and read pages. You are asked about pages of domains that no rule allows. '
        'Default: the key `web` of the configuration, else off.',
        show_default=False,
    ),
]
MemoryOption = Annotated[
    bool | None,
    typer.Option(
        '--memory/--no-memory',
        help='Let the agent remember across conversations and directories, in the store. Needs pydantic-ai-harness. '
        'Default: the key `memory` of the configuration, else off.',
        show_default=False,
    ),
]
McpConfigOption = Annotated[
    list[Path] | None,
    typer.Option(
        '--mcp-config',
        exists=True,
        dir_okay=False,
        metavar='FILE',
        help='A file with MCP servers, like .mcp.json, that you trust. Repeatable; the first file with a name wins.',
    ),
]
NoProjectConfigOption = Annotated[
    bool,
    typer.Option('--no-project-config', help='Ignore the configuration files and .mcp.json of the directory.'),
]
SandboxOption = Annotated[
    bool,
    typer.Option(
        '--sandbox',
        help='Let the agent run commands, isolated by bubblewrap (Linux): no network, only the directory is writable. The '
        'directory is /workspace there, directories of skills are /skills/1, /skills/2, … Without isolation the command '
        'exits with code 2.',
    ),
]
ApprovalsOption = Annotated[
    ApprovalMode,
    typer.Option(
        '--approvals',
        metavar='MODE',
        parser=choice_parser(*ApprovalMode),
        help='How to handle calls that need approval: `ask` at the terminal, `deny`, `pause` and answer later with '
        '`resume`, or `allow`. Without a terminal, `ask` denies, so scripts that change files need `allow`.',
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        '--store',
        metavar='URL',
        callback=keep_option,
        help='The store of versions: sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/database. '
        'Default: PYDANTIC_DEEP_STORE, else ~/.local/state/pydantic-deep/agents.db.',
    ),
]
NoStoreOption = Annotated[
    bool, typer.Option('--no-store', help='Store nothing: the conversation ends with the process.')
]
ContinueOption = Annotated[
    bool,
    typer.Option('--continue', '-c', help='Continue from the version whose files the directory has (--from HEAD).'),
]
FromOption = Annotated[
    str | None,
    typer.Option(
        '--from',
        metavar='VERSION',
        autocompletion=complete_version,
        help='Continue from this version. Unless the directory has its files, the agent works on a copy of them, and the '
        'last line says how to check it out.',
    ),
]
InstructionsOption = Annotated[
    str | None,
    typer.Option(
        '--instructions',
        metavar='TEXT',
        parser=parse_text,
        help='Additional instructions for all turns of a new conversation, later ones included, and after /new of a '
        'chat. Not with --continue or --from: that conversation has its own.',
    ),
]
OutputFormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        '--output-format',
        metavar='FORMAT',
        parser=choice_parser(*OutputFormat),
        help='What to print: `text` (the answer, with progress on standard error), `json` (one document at the end), or '
        '`stream-json` (events, one JSON object a line). Default: text.',
    ),
]
JsonOption = Annotated[bool, typer.Option('--json', help='Print events to standard output, one JSON object a line.')]


VersionsDirectoryOption = Annotated[
    Path,
    typer.Option(
        '--dir', '-d', exists=True, file_okay=False, callback=keep_option, help='The directory whose versions to use.'
    ),
]
TargetDirectoryOption = Annotated[
    Path,
    typer.Option(
        '--dir', '-d', file_okay=False, help='The directory to write the files to. It is created if it does not exist.'
    ),
]
DocumentOption = Annotated[bool, typer.Option('--json', help='Print one JSON document.')]


@dataclass(frozen=True)
class ConversationStart:
    """The options that decide which store a conversation is in and which version it continues."""

    environment: Environment
    store: str | None
    no_store: bool = field(kw_only=True)
    continues: bool = field(kw_only=True)
    base: str | None = field(kw_only=True)
    instructions: str | None = field(kw_only=True, default=None)
    """Additional instructions for a new conversation."""

    def __post_init__(self) -> None:
        if self.continues and self.base is not None:
            raise typer.BadParameter('--continue is --from HEAD. Choose one of both.')
        if self.no_store and self.store is not None:
            raise typer.BadParameter('--no-store stores nothing. Choose one of --store and --no-store.')
        if self.no_store and (self.continues or self.base is not None):
            option = '--continue' if self.continues else '--from'
            raise typer.BadParameter(f'--no-store has nothing to continue. Choose one of {option} and --no-store.')
        if self.instructions is not None and (self.continues or self.base is not None):
            option = '--continue' if self.continues else '--from'
            raise typer.BadParameter(
                f'--instructions are for a new conversation, and {option} continues one that has its own. '
                f'Choose one of {option} and --instructions.'
            )

    @asynccontextmanager
    async def open(
        self, runtime: AgentRuntime, settings: Settings, *, is_chat: bool = False
    ) -> AsyncGenerator[Conversation]:
        """Open the store, and yield a new conversation or the one to continue.

        Args:
            runtime: The agent.
            settings: The settings of the agent.
            is_chat: Whether the user can finish a turn that has not ended, instead of continuing after it; one with
                pending approvals only at a terminal.
        """
        await check_runtime(runtime)
        url = NO_STORE if self.no_store else choose_store(self.store, self.environment)
        check_memory(settings, is_persistent=url != NO_STORE)
        async with open_chosen_store(url, self.environment) as store:
            conversation = open_conversation(
                await with_memory(runtime, settings, store),
                settings,
                store,
                is_persistent=url != NO_STORE,
                instructions=self.instructions,
            )
            if self.continues or self.base is not None:
                with deferred_warnings():
                    name = self.base or HEAD
                    record = await conversation.revisions.find(name)
                    if is_chat and (sys.stdin.isatty() or record.state != 'awaiting_approval'):
                        await conversation.select(record)
                    else:  # without a terminal, the next line of the input would abandon calls that nobody has seen
                        await conversation.continue_from(name)
            yield conversation


def choose_presenter(output: OutputFormat) -> Presenter:
    return {
        OutputFormat.text: present_as_text,
        OutputFormat.json: present_as_document,
        OutputFormat.stream_json: present_as_json,
    }[output]


def choose_output(output: OutputFormat | None, *, json: bool) -> OutputFormat:
    """Return the format for `--output-format` and `--json`, which is short for `stream-json`."""
    if json and output not in (None, OutputFormat.stream_json):
        raise typer.BadParameter(
            f'--json is --output-format=stream-json. Choose one of it and --output-format={output}.'
        )
    return OutputFormat.stream_json if json else output or OutputFormat.text


@contextmanager
def exit_on_error(output: OutputFormat = OutputFormat.text) -> Generator[None]:
    """Print an error that ends a command as one sentence, and exit with its code.

    Args:
        output: The format of standard output, which has the error too unless it is text.
    """
    try:
        yield
    except UnusableModelError as error:
        event = ErrorEvent(kind='unusable_model', message=str(error))
        end = EndEvent(finish_reason='error', status='failed')
        if output is OutputFormat.stream_json:
            print_event(event)
            print_event(end)
        elif output is OutputFormat.json:
            print_result(TaskResult(error=event, end=end))
        raise error_exit(str(error), ERROR_EXIT_CODES['unusable_model']) from None
    except USAGE_ERRORS as error:
        raise error_exit(str(error), USAGE_ERROR_CODE) from None
    except BrokenPipeError:  # the reader of the output is gone: `run_app` exits without a message
        raise
    except (DeepAgentError, ScanLimitError, OSError) as error:
        raise error_exit(describe_error(error), EXIT_CODES['failed']) from None


def read(
    context: typer.Context,
    directory: Path,
    store: str | None,
    work: Callable[[VersionReader], Awaitable[T]],
    *,
    writes: bool = False,
) -> T:
    """Open an existing store and return the result of a function of its reader.

    Args:
        context: The context of the command.
        directory: The directory to which `HEAD` and other names refer.
        store: The value of `--store`.
        work: The function to call.
        writes: Whether the function changes the store. Otherwise the store is opened read-only.
    """
    environment = context.find_object(Environment) or Environment()
    here = str(directory.resolve())

    async def run() -> T:
        async with open_chosen_store(
            choose_store(store, environment), environment, must_exist=True, read_only=not writes
        ) as opened:
            return await work(VersionReader(revisions=Revisions(store=opened, directory=here)))

    with exit_on_error(), deferred_warnings():
        return anyio.run(run)


def read_task(task: str | None) -> str:
    """Return the task. `-`, and no task if standard input is not a terminal, reads it from there."""
    if task is None and sys.stdin.isatty():
        raise typer.BadParameter('describe a task, or pipe it to standard input.', param_hint="'TASK'")
    text = sys.stdin.read() if task in (None, '-') else task
    if is_blank(text):
        raise typer.BadParameter('it is empty. Describe a task.', param_hint="'TASK'")
    return text


def print_document(value: object) -> None:
    """Print a value as one JSON document, in ASCII, so that no text in it can control a terminal or fail to encode."""
    typer.echo(json_format.dumps(to_jsonable_python(value), indent=2))


def error_exit(sentence: str, code: int) -> typer.Exit:
    typer.echo(escape_invisible(sentence), err=True)
    return typer.Exit(code)
