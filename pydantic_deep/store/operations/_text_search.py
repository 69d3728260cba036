"""The operation that finds conversations by the texts of their prompts and answers.

There is no index of texts: a step would have to write it, while people search seldom, and only among their own
conversations. Messages are read in pages, and one is parsed only if its JSON contains the text, or a skill that a person
loaded by its name: of such a prompt, people see and find what was typed.
"""

# ruff: noqa: S608 - names of tables and columns are ours; every value is bound

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from pydantic_deep._messages.loaded_skills import LOADED, typed_prompt
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.sql import _keys
from pydantic_deep.store.sql._seals import reads
from pydantic_deep.store.sql._statements import bytes_from, id_from, integer, marks

PAGE: Final = 2_000
"""Messages per query, about 2 MB."""


def conversations_with(text: str, conversation_ids: Collection[str]) -> Operation[set[str]]:
    """Return those of the conversations that have a prompt or an answer with this text, in any case, on any branch."""
    found: set[str] = set()
    wanted = sorted(map(_keys.pack_id, set(conversation_ids)))
    ids = marks(len(wanted), 3)
    sql = (
        'SELECT m.id, m.body, b.conversation_id, e.branch, e.seq FROM branch b JOIN entry e ON e.branch = b.number'
        f' JOIN message m ON m.number = e.message WHERE b.conversation_id IN ({ids})'
        f' AND (e.branch, e.seq) > (?1, ?2) ORDER BY e.branch, e.seq LIMIT {PAGE}'
    )
    folded = text.casefold()
    after = (-1, -1)
    while True:
        rows = yield Statement(sql, (*after, *wanted))
        found |= {id_from(id) for key, body, id, *_ in rows if _contains((key, body, folded))}
        if len(rows) < PAGE:
            return found
        after = (integer(rows[-1][3]), integer(rows[-1][4]))


@reads('message')
def _contains(row: Row) -> bool:
    """Return whether a message, given by its id and body, has a casefolded text, which is the third value."""
    folded = str(row[2])
    body = bytes_from(row[1]).decode()
    # Messages are stored with all characters but `"`, `\\` and control characters as they are.
    if _in_json(folded) not in body.casefold() and _in_json(LOADED) not in body:
        return False
    return any(folded in text.casefold() for part in json.loads(body)['parts'] for text in _texts(part))


def _in_json(text: str) -> str:
    """Return a text as a part of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _texts(part: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of a part that is a prompt, as it was typed, or an answer."""
    if part['part_kind'] not in ('user-prompt', 'text'):
        return
    content = part['content']
    for piece in [content] if isinstance(content, str) else content:
        if isinstance(piece, str):
            yield typed_prompt(piece) if part['part_kind'] == 'user-prompt' else piece
        elif piece.get('kind') in ('text-content', 'structured-content'):
            yield str(piece['content'])
