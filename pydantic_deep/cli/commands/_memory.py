"""The commands `memory show`, `memory history` and `memory undo`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated

import anyio
import typer
from rich.console import Console
from rich.text import Text

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli.history._store import choose_store, open_chosen_store
from pydantic_deep.cli.render._memory import render_memory, render_restored, render_revisions
from pydantic_deep.cli.render._wrapping import print_lines
from pydantic_deep.memory import MAIN_FILE, Memories

from ._history import EXIT_CODE_HELP
from ._options import StoreOption, exit_on_error

FileArgument = Annotated[str, typer.Argument(metavar='FILE', help='The file of the memory.')]

memory_app = typer.Typer(
    name='memory',
    no_args_is_help=True,
    help='Show what the agent remembers across conversations (--memory), who taught it what, and undo it.',
    epilog=EXIT_CODE_HELP,
)


@memory_app.command('show', epilog=EXIT_CODE_HELP)
def _show(context: typer.Context, store: StoreOption = None) -> None:
    """Show the files of your memory."""

    async def work(memories: Memories) -> Iterable[Text]:
        return render_memory({memories.name_of(each): each for each in await memories.current()})

    _print(context, store, work)


@memory_app.command('history', epilog=EXIT_CODE_HELP)
def _history(context: typer.Context, file: FileArgument = MAIN_FILE, store: StoreOption = None) -> None:
    """Show the revisions of a file, newest first, with the conversation and the run that wrote them."""

    async def work(memories: Memories) -> Iterable[Text]:
        return render_revisions(await memories.history(file))

    _print(context, store, work)


@memory_app.command('undo', epilog=EXIT_CODE_HELP)
def _undo(
    context: typer.Context,
    file: FileArgument = MAIN_FILE,
    to: Annotated[
        int | None,
        typer.Option('--to', metavar='N', min=0, help='The revision to restore; 0 is the state before the first.'),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Restore the revision of a file before the latest one. It becomes a revision too, so this can be undone."""

    async def work(memories: Memories) -> Iterable[Text]:
        return [render_restored(file, await memories.undo(file, to))]

    _print(context, store, work)


def _print(context: typer.Context, store: str | None, work: Callable[[Memories], Awaitable[Iterable[Text]]]) -> None:
    """Print the lines that a function of the memory returns."""
    environment = context.find_object(Environment) or Environment()

    async def lines() -> Iterable[Text]:
        async with open_chosen_store(choose_store(store, environment), environment, must_exist=True) as opened:
            return [*await work(await Memories.open(opened, environment.person))]

    with exit_on_error():
        print_lines(Console(), [*anyio.run(lines)])
