"""Conversion of store rows to replica rows: pure functions, run in a thread.

Messages and deps are JSON from other code. Unexpected content in them is omitted and never raises an error: a query
about costs must not fail because of one malformed message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast

from pydantic_deep.store.engine import Row
from pydantic_deep.store.sql._statements import Kind, bytes_from, decoded, digest_from, id_from, text_from
from pydantic_deep_backends import FileVersion, Tree

Cell: TypeAlias = str | int | float | None
Cells: TypeAlias = tuple[Cell, ...]
"""One row of a replica's table, in the order of its columns."""

JsonObject: TypeAlias = Mapping[str, object]


def version_cells(row: Row) -> Cells:
    """Return a row of `versions`."""
    return _cells(row[:22], _VERSION)


def run_cells(row: Row) -> Cells:
    """Return a row of `runs`."""
    *start, usage, error, trace_id, started_at, ended_at = _cells(row, _RUN)
    counts, problem = _object(usage), _object(error)
    return (
        *start,
        *(_count(counts, name) for name in ('requests', 'tool_calls', 'input_tokens', 'output_tokens')),
        *(usage, _string(problem, 'type'), _string(problem, 'message'), trace_id, started_at, ended_at),
        _milliseconds(started_at, ended_at),
    )


def request_cells(row: Row) -> Cells:
    """Return a row of `requests`."""
    *start, duration_us = _cells(row, _REQUEST)
    return *start, _milliseconds(0, duration_us)


def call_cells(row: Row) -> Cells:
    """Return a row of `tool_calls`."""
    cells = _cells(row, _CALL)
    return *cells, _milliseconds(cells[12], cells[13])


def delegation_cells(row: Row) -> Cells:
    """Return a row of `delegations`."""
    return _cells(row, _DELEGATION)


def approval_cells(row: Row) -> Cells:
    """Return a row of `approvals`."""
    cells = _cells(row, _APPROVAL)
    return *cells, _milliseconds(cells[14], cells[15])


def branch_cells(row: Row) -> Cells:
    """Return a row of `branches`."""
    return _cells(row, _BRANCH)


def conversation_cells(row: Row) -> Cells:
    """Return a row of `conversations`."""
    return _cells(row, _CONVERSATION)


def message_cells(row: Row) -> tuple[Cells, list[Cells]]:
    """Return a row of `messages`, and the rows of `tool_returns` for the tool results in it."""
    number, id, conversation_id, branch_id, seq, body = _cells(row, _MESSAGE)
    message = _object(body)
    objects = [part for part in map(_mapping, _list(message.get('parts'))) if part]
    usage = _mapping(message.get('usage'))
    cells: Cells = (
        number,
        id,
        conversation_id,
        branch_id,
        seq,
        _role(message, objects),
        _clean('\n\n'.join(text for part in objects for text in _part_texts(part))),
        len(objects),
        sum(part.get('part_kind') in _CALLS for part in objects),
        sum(_is_media(item) for part in objects for item in _list(part.get('content'))),
        _string(message, 'model_name'),
        _count(usage, 'input_tokens') if usage else None,
        _count(usage, 'output_tokens') if usage else None,
        len(str(body).encode()),
        _made_at(id),
    )
    returns: list[Cells] = [
        (
            number,
            conversation_id,
            _string(part, 'tool_call_id'),
            _clean(json.dumps(part.get('content'), ensure_ascii=False)),
        )
        for part in objects
        if part.get('part_kind') in _RETURNS
    ]
    return cells, returns


def todo_cells(deps: str, data: bytes) -> Iterator[Cells]:
    """Yield the rows of `todo_lists` for deps, which are JSON."""
    for position, item in enumerate(_list(_object(data.decode(errors='replace')).get('todos'))):
        todo = _mapping(item)
        if todo:
            yield deps, position, _string(todo, 'content'), _string(todo, 'status')


def file_cells(version_id: str, before: Tree, after: Tree) -> Iterator[Cells]:
    """Yield the rows of `file_changes` for a version."""
    diff = before.diff(after)
    for kind, paths in (('added', diff.added), ('changed', diff.changed)):
        for path in paths:
            yield (version_id, _clean(path), kind, *_file(after[path]))
    for path in diff.removed:
        yield version_id, _clean(path), 'removed', None, None


def file_trees(row: Row) -> tuple[str | None, str | None]:
    """Return the digests of the file trees of a version's parent and of the version."""
    after, before = _cells((row[20], row[22]), (digest_from, digest_from))
    return cast('str | None', before), cast('str | None', after)


def _dollars(value: object) -> float:
    return float(str(value))


def _lossy_text_from(value: object) -> str:
    return bytes_from(value).decode(errors='replace')


_VERSION: Final = (
    *(None, id_from, id_from, id_from, id_from, None, None, id_from, id_from, None, None, id_from),
    *(None, None, None, None, None, text_from, text_from, digest_from, digest_from, None),
)
_RUN: Final = (
    *(None, id_from, id_from, id_from, None, id_from, id_from, None, _dollars, text_from, None, None, None, None),
)
_REQUEST: Final = (id_from, None, id_from, None, None, None, None, None, None, _dollars, None, None, None)
_CALL: Final = (
    *(None, id_from, id_from, None, id_from, None, None, text_from, None, None, text_from, None, None, None),
)
_DELEGATION: Final = (None, id_from, id_from, None, id_from, None, None, None, None)
_APPROVAL: Final = (
    *(None, id_from, id_from, id_from, None, None, None, None, None, None, None, None, id_from, id_from),
    *(None, None, None),
)
_BRANCH: Final = (None, id_from, id_from, None, id_from, None, None, id_from, None, None)
_CONVERSATION: Final = (None, id_from, None, id_from, None)
_MESSAGE: Final = (None, id_from, id_from, id_from, None, _lossy_text_from)

_CALLS: Final = frozenset({'tool-call', 'builtin-tool-call', 'native-tool-call'})
_RETURNS: Final = frozenset({'tool-return', 'builtin-tool-return', 'native-tool-return', 'retry-prompt'})
_QUIET: Final = frozenset({'thinking', 'system-prompt'})
"""Kinds of parts with text that is not part of the dialogue."""
_TAGGED_TEXTS: Final = frozenset({'text-content', 'structured-content'})
"""Kinds of items of a prompt that are texts with metadata of a program."""


def _role(message: JsonObject, parts: Iterable[JsonObject]) -> str:
    if message.get('kind') == 'response':
        return 'assistant'
    kinds = {part.get('part_kind') for part in parts}
    if 'user-prompt' in kinds:
        return 'user'
    return 'tool' if kinds & _RETURNS else 'system'


def _part_texts(part: JsonObject) -> Iterator[str]:
    content = part.get('content')
    if part.get('part_kind') in _QUIET or content is None:
        return
    for item in _list(content) or [content]:
        if isinstance(item, str):
            yield item
        elif part.get('part_kind') == 'user-prompt' and _mapping(item).get('kind') in _TAGGED_TEXTS:
            yield str(_mapping(item)['content'])
        elif not _is_media(item):
            yield json.dumps(item, ensure_ascii=False)


def _is_media(item: object) -> bool:
    kind = _mapping(item).get('kind')
    return isinstance(kind, str) and (kind == 'binary' or kind.endswith('-url') or kind == 'uploaded-file')


def _file(version: FileVersion) -> tuple[str, int]:
    return version.digest, version.size


def _made_at(id: Cell) -> int | None:
    """Return the timestamp of a UUIDv7, in microseconds; `None` for any other id."""
    if not isinstance(id, str) or len(id) != 36 or id[14] != '7':
        return None
    try:
        return int(id[:8] + id[9:13], 16) * 1000
    except ValueError:
        return None


def _cells(row: Row, kinds: Sequence[Kind | None]) -> Cells:
    return cast('Cells', tuple(decoded(row, kinds)))


def _milliseconds(start: Cell, end: Cell) -> float | None:
    return (end - start) / 1000 if isinstance(start, int) and isinstance(end, int) else None


def _clean(text: str) -> str:
    """Replace lone surrogates, which no database accepts."""
    return text.encode(errors='replace').decode()


def _object(text: Cell) -> JsonObject:
    try:
        return _mapping(json.loads(text)) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> JsonObject:
    return cast('JsonObject', value) if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return cast('list[object]', value) if isinstance(value, list) else []


def _string(mapping: JsonObject, name: str) -> str | None:
    value = mapping.get(name)
    return _clean(value) if isinstance(value, str) else None


def _count(mapping: JsonObject, name: str) -> int:
    value = mapping.get(name)
    return value if isinstance(value, int) and 0 <= value < 2**63 else 0
