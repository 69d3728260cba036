"""Names of stored things for people, in place of the tables of a store. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_NAMES: Mapping[str, tuple[str, str]] = {
    'conversation': ('conversation', 'conversations'),
    'branch': ('branch', 'branches'),
    'version': ('version', 'versions'),
    'message': ('message', 'messages'),
    'asset': ('file content', 'file contents'),
    'blob': ('stored object', 'stored objects'),
    'node': ('directory', 'directories'),
    'run': ('run', 'runs'),
    'tool_call': ('tool call', 'tool calls'),
    'approval': ('approval', 'approvals'),
    'queued_run': ('queued run', 'queued runs'),
}
"""Singular and plural of the rows that users know, by table, in the order of a summary."""


_REPOSITORY = 'rows_'
"""The beginning of the names of tables that repositories have in a store, such as that of memories."""


def name_rows(table: str) -> str | None:
    """Return the name of the rows of a table, in the plural; `None` for internal tables."""
    if table.startswith(_REPOSITORY):
        return f'rows of {table.removeprefix(_REPOSITORY)}'
    return _NAMES[table][1] if table in _NAMES else None


def summarize_rows(count_by_table: Mapping[str, int]) -> str:
    """Return the numbers of the rows that users know, without zeros."""
    counts = [(count_by_table.get(table, 0), names) for table, names in _NAMES.items()]
    own = sum(count for table, count in count_by_table.items() if table.startswith(_REPOSITORY))
    counts.append((own, ('row of repositories', 'rows of repositories')))
    return ', '.join(f'{count} {names[count > 1]}' for count, names in counts if count) or 'nothing'
