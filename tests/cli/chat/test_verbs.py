"""The table of verbs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pydantic_deep.cli.chat._chat import VERBS
from pydantic_deep.cli.chat._session import ChatSession
from pydantic_deep.cli.chat._verbs import Verb, VerbTable, WrongVerbError


async def nothing(chat: ChatSession, arguments: Sequence[str]) -> None: ...


@pytest.mark.parametrize(
    ('arguments', 'text', 'parsed'),
    [('', '', []), ('A [B]', ' a  b ', ['a', 'b']), ('A [B…]', 'a b  c ', ['a', 'b  c']), ('[A]', '', [])],
)
def test_arguments_are_split_at_spaces(arguments: str, text: str, parsed: list[str]) -> None:
    """The last argument takes the rest of the line if its name ends with an ellipsis."""
    assert Verb(name='v', summary='', run=nothing, arguments=arguments).parse(text) == parsed


@pytest.mark.parametrize(('arguments', 'text'), [('', 'a'), ('A', ''), ('A [B]', 'a b c')])
def test_a_wrong_number_of_arguments_is_refused(arguments: str, text: str) -> None:
    """The error has the usage of the verb."""
    with pytest.raises(WrongVerbError, match='Usage: /v'):
        Verb(name='v', summary='', run=nothing, arguments=arguments).parse(text)


def test_names_are_unique_and_the_help_fits_80_columns() -> None:
    """Each verb has its own name, and a line in the help that no terminal of 80 columns wraps."""
    assert len({verb.name for verb in VERBS.verbs}) == len(VERBS.verbs)
    assert max(map(len, VERBS.help())) <= 80


def test_the_help_of_a_narrow_terminal_continues_beside_the_verbs() -> None:
    lines = VERBS.help(60)
    assert max(map(len, lines)) <= 60
    assert lines[:2] == ['/log [VERSION]          show the versions of the directory,', f'{"":24}or the past of one']
    assert lines[-2:] == ['Other lines that start with / are refused; everything else', 'is a prompt.']
    assert VerbTable(()).find('v') is None
