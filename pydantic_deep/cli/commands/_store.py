"""The commands `store check`, `store backup` and `store restore`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final, cast

import anyio
import typer

from pydantic_deep.cli._environment import Environment
from pydantic_deep.cli._schemas import DamageRow
from pydantic_deep.cli.history._store import (
    BLOBS_VARIABLE,
    UnusableStoreError,
    choose_store,
    open_chosen_store,
    prepare_directory,
    store_label,
)
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._table_names import name_rows, summarize_rows
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.turn._failures import EXIT_CODES
from pydantic_deep.store import BackupError, Damage, StoreCorruptedError, SupportsBackup, restore_store

from ._history import EXIT_CODE_HELP
from ._options import USAGE_ERROR_CODE, DocumentOption, StoreOption, error_exit, exit_on_error, print_document

_REPORTED_OBJECTS: Final = 100
"""After how many stored objects of a backup their number is printed."""

_MAX_IDS: Final = 5
"""Maximum number of dependent versions or conversations listed per row; --json lists all."""

store_app = typer.Typer(
    name='store',
    no_args_is_help=True,
    help='Check a store for damage, back it up, and restore it, also to another database.',
    epilog=EXIT_CODE_HELP,
)


@store_app.command('check', epilog=EXIT_CODE_HELP)
def _check(context: typer.Context, store: StoreOption = None, json: DocumentOption = False) -> None:
    """Read everything in the store and list all damage. The exit code is 1 if there is damage."""
    environment = context.find_object(Environment) or Environment()
    url = choose_store(store, environment)

    async def work() -> list[Damage]:
        try:
            async with open_chosen_store(url, environment, must_exist=True, read_only=True) as opened:
                return await cast('SupportsBackup', opened).check()
        except UnusableStoreError as error:
            if isinstance(damage := error.__cause__, StoreCorruptedError):
                return [Damage(table=damage.table, row=damage.row, problem=damage.problem)]
            raise

    with exit_on_error():
        damages = anyio.run(work)
    if json:
        print_document([DamageRow(**asdict(damage)) for damage in damages])
    else:
        for damage in damages:
            typer.echo(escape_invisible(_describe_damage(damage)))
        where = store_label(url, environment)
        count = f'{len(damages)} damaged rows' if len(damages) != 1 else '1 damaged row'
        typer.echo(escape_invisible(f'{where}: {count if damages else "no damage"}.'))
    if damages:
        raise typer.Exit(EXIT_CODES['failed'])


@store_app.command('backup', epilog=EXIT_CODE_HELP)
def _backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar='FILE', help='The file to write. It must not exist.')],
    store: StoreOption = None,
) -> None:
    """Write the whole store to one file, with the contents in object storage. Others can use the store meanwhile."""
    environment = context.find_object(Environment) or Environment()
    url = choose_store(store, environment)

    progress = _TableProgress()

    async def work() -> None:
        async with open_chosen_store(url, environment, must_exist=True, read_only=True) as opened:
            await cast('SupportsBackup', opened).backup(file, on_progress=progress)

    with exit_on_error():
        anyio.run(work)
    typer.echo(escape_invisible(f'{file} has {summarize_rows(progress.rows)} of {store_label(url, environment)}.'))


@store_app.command('restore', epilog=EXIT_CODE_HELP)
def _restore(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(metavar='FILE', exists=True, dir_okay=False, help='A file that `store backup` wrote.'),
    ],
    store: StoreOption = None,
) -> None:
    """Restore a backup into a new store: SQLite or PostgreSQL, with or without object storage, independent of the store
    that was backed up.
    """
    environment = context.find_object(Environment) or Environment()
    url = choose_store(store, environment)
    if url.startswith('memory:'):
        raise error_exit(
            f'The store {url} is lost when this command ends. Use sqlite:///… or postgresql://….', USAGE_ERROR_CODE
        )

    progress = _TableProgress()

    async def work() -> None:
        blobs = environment.variables.get(BLOBS_VARIABLE) or None
        try:
            await restore_store(url, file, blobs=blobs, on_progress=progress)
        except BackupError:
            raise
        except (ImportError, ValueError) as error:
            raise UnusableStoreError(f'The store cannot be opened: {error}') from error

    with exit_on_error():
        prepare_directory(url, environment)
        anyio.run(work)
    typer.echo(escape_invisible(f'{store_label(url, environment)} has {summarize_rows(progress.rows)} of {file}.'))


class _TableProgress:
    """Counts the rows of each table, and prints what they are to standard error when they start; for stored objects, which
    take longer, also how many there are so far.
    """

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}

    def __call__(self, table: str, rows: int) -> None:
        if rows and table not in self.rows and (name := name_rows(table)) is not None:
            typer.echo(f'{name} …', err=True)
        elif table == 'blob' and rows % _REPORTED_OBJECTS == 0:
            typer.echo(f'{rows} stored objects …', err=True)
        self.rows[table] = rows


def _describe_damage(damage: Damage) -> str:
    where = 'the file' if damage.table is None else damage.table
    row = '' if damage.row is None else f' {damage.row}'
    needs = [*_id_list('version', damage.versions), *_id_list('conversation', damage.conversations)]
    return f'{where}{row}: {damage.problem}' + (f'\n    needed by {", ".join(needs)}' if needs else '')


def _id_list(kind: str, ids: Sequence[str]) -> list[str]:
    if not ids:
        return []
    names = ' '.join(map(short_id, ids[:_MAX_IDS]))
    more = f' and {len(ids) - _MAX_IDS} more' if len(ids) > _MAX_IDS else ''
    return [f'{kind}{"s" if len(ids) > 1 else ""} {names}{more}']
