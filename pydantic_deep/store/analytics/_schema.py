"""The tables, views and macros of the replica, as queries see them. Nothing here accesses a database.

Times are `TIMESTAMP`, in UTC: `TIMESTAMPTZ` would require `pytz`, which `duckdb` does not include. Dollars are
`DOUBLE`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

REPLICA_FORMAT: Final = 2
"""Increases with every change of this module; a replica of another format is discarded and rebuilt."""


class ReplicaTable(NamedTuple):
    """One table of the replica."""

    name: str
    key: str
    """The column that identifies the rows to replace: all rows of a run or tree, or a single one."""
    columns: dict[str, str]
    """The DuckDB type of each column. A `TIMESTAMP` is passed as microseconds since 1970, `JSON` as text."""

    @property
    def create_sql(self) -> str:
        """The statement that creates the table."""
        return f'CREATE TABLE {self.name} ({", ".join(f"{name} {type_}" for name, type_ in self.columns.items())})'

    @property
    def insert_sql(self) -> str:
        """The statement that inserts rows; its parameters are one list per column.

        A row takes about 3 µs this way, and 390 µs by `executemany`. Text that is not valid JSON becomes a JSON string.
        """
        type_by_column = {name: 'BIGINT' if type_ == 'TIMESTAMP' else type_ for name, type_ in self.columns.items()}
        lists = ', '.join(
            f'unnest(?::{"VARCHAR" if type_ == "JSON" else type_}[]) AS {name}'
            for name, type_ in type_by_column.items()
        )
        values = ', '.join(_CONVERSIONS.get(type_, '{0}').format(name) for name, type_ in self.columns.items())
        return f'INSERT INTO {self.name} SELECT {values} FROM (SELECT {lists})'  # noqa: S608 - names of ours

    @property
    def delete_sql(self) -> str:
        """The statement that deletes rows; its parameter is a list of keys."""
        return f'DELETE FROM {self.name} WHERE {self.key} IN (SELECT unnest(?::{self.columns[self.key]}[]))'  # noqa: S608 - names of ours


_CONVERSIONS: Final = {
    'TIMESTAMP': 'make_timestamp({0})',
    'JSON': 'if(json_valid({0}), {0}::JSON, to_json({0}))',
}


def _table(name: str, key: str, columns: str) -> ReplicaTable:
    return ReplicaTable(name, key, dict(column.split(' ') for column in columns.split(', ')))


VERSIONS: Final = _table(
    'versions',
    'number',
    'number BIGINT, id VARCHAR, parent_id VARCHAR, cloned_from VARCHAR, merged_from VARCHAR, kind VARCHAR, '
    'state VARCHAR, conversation_id VARCHAR, branch_id VARCHAR, branch VARCHAR, message_count BIGINT, '
    'run_id VARCHAR, agent_name VARCHAR, name VARCHAR, metadata JSON, model VARCHAR, model_settings JSON, '
    'usage JSON, output JSON, deps VARCHAR, tree VARCHAR, created_at TIMESTAMP',
)
MESSAGES: Final = _table(
    'messages',
    'number',
    'number BIGINT, id VARCHAR, conversation_id VARCHAR, branch_id VARCHAR, seq BIGINT, role VARCHAR, '
    'text VARCHAR, part_count BIGINT, tool_call_count BIGINT, media_count BIGINT, model VARCHAR, '
    'input_tokens BIGINT, output_tokens BIGINT, size_bytes BIGINT, created_at TIMESTAMP',
)
RETURNS: Final = _table(
    'internal.tool_returns',
    'message',
    'message BIGINT, conversation_id VARCHAR, tool_call_id VARCHAR, result JSON',
)
RUNS: Final = _table(
    'runs',
    'number',
    'number BIGINT, id VARCHAR, conversation_id VARCHAR, base_id VARCHAR, agent_name VARCHAR, '
    'attempt_of VARCHAR, parent_run_id VARCHAR, state VARCHAR, cost DOUBLE, requests BIGINT, '
    'tool_calls BIGINT, input_tokens BIGINT, output_tokens BIGINT, usage JSON, error_type VARCHAR, '
    'error_message VARCHAR, trace_id VARCHAR, started_at TIMESTAMP, ended_at TIMESTAMP, duration_ms DOUBLE',
)
REQUESTS: Final = _table(
    'requests',
    'run_id',
    'run_id VARCHAR, number BIGINT, response_id VARCHAR, model VARCHAR, model_settings JSON, '
    'input_tokens BIGINT, output_tokens BIGINT, cache_read_tokens BIGINT, cache_write_tokens BIGINT, '
    'cost DOUBLE, kind VARCHAR, started_at TIMESTAMP, duration_ms DOUBLE',
)
CALLS: Final = _table(
    'tool_calls',
    'number',
    'number BIGINT, run_id VARCHAR, response_id VARCHAR, tool_call_id VARCHAR, conversation_id VARCHAR, '
    'agent_name VARCHAR, tool VARCHAR, arguments JSON, effect VARCHAR, status VARCHAR, result JSON, '
    'error VARCHAR, started_at TIMESTAMP, ended_at TIMESTAMP, duration_ms DOUBLE',
)
DELEGATIONS: Final = _table(
    'delegations',
    'number',
    'number BIGINT, parent_run_id VARCHAR, response_id VARCHAR, tool_call_id VARCHAR, '
    'child_conversation_id VARCHAR, subagent VARCHAR, intent VARCHAR, arguments JSON, created_at TIMESTAMP',
)
CONVERSATIONS: Final = _table(
    'conversations',
    'number',
    'number BIGINT, id VARCHAR, agent_name VARCHAR, head_id VARCHAR, created_at TIMESTAMP',
)
BRANCHES: Final = _table(
    'branches',
    'number',
    'number BIGINT, id VARCHAR, conversation_id VARCHAR, name VARCHAR, parent_id VARCHAR, fork_seq BIGINT, '
    'message_count BIGINT, rewrites_id VARCHAR, rewrites_seq BIGINT, created_at TIMESTAMP',
)
APPROVALS: Final = _table(
    'internal.approval_log',
    'number',
    'number BIGINT, id VARCHAR, version_id VARCHAR, conversation_id VARCHAR, agent_name VARCHAR, path JSON, '
    'tool VARCHAR, arguments JSON, status VARCHAR, decision JSON, decided_by VARCHAR, reason VARCHAR, '
    'resumed_by VARCHAR, superseded_by VARCHAR, created_at TIMESTAMP, decided_at TIMESTAMP, '
    'expires_at TIMESTAMP, wait_ms DOUBLE',
)
FILE_CHANGES: Final = _table(
    'file_changes',
    'version_id',
    'version_id VARCHAR, path VARCHAR, kind VARCHAR, digest VARCHAR, size_bytes BIGINT',
)
TODOS: Final = _table(
    'internal.todo_lists',
    'deps',
    'deps VARCHAR, position BIGINT, content VARCHAR, status VARCHAR',
)

TABLES: Final = (
    VERSIONS,
    MESSAGES,
    RETURNS,
    RUNS,
    REQUESTS,
    CALLS,
    DELEGATIONS,
    CONVERSATIONS,
    BRANCHES,
    APPROVALS,
    FILE_CHANGES,
    TODOS,
)
"""All tables of the replica."""

VIEWS: Final = {
    'approvals': """
        SELECT * REPLACE (if(status = 'pending' AND expires_at <= make_timestamp(epoch_us(now())), 'expired', status) AS status)
        FROM internal.approval_log
    """,
    'todos': """
        SELECT versions.id AS version_id, position, content, status
        FROM versions JOIN internal.todo_lists USING (deps)
    """,
}
"""Data that is computed by the query: the expiry of approvals, which is not written, and the todos of each version,
which are stored once per list.
"""

PUBLIC: Final = (
    'versions',
    'messages',
    'runs',
    'requests',
    'tool_calls',
    'conversations',
    'branches',
    'delegations',
    'approvals',
    'file_changes',
    'todos',
)
"""The tables and views that are documented and exported."""

MACROS: Final = {
    'cost_per_agent_and_day()': """
        SELECT agent_name, started_at::DATE AS day, count(*) AS runs, sum(cost) AS cost,
               sum(input_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens
        FROM runs GROUP BY ALL ORDER BY day DESC, cost DESC NULLS LAST, agent_name
    """,
    'cost_per_model()': """
        SELECT model, count(*) AS requests, sum(cost) AS cost, sum(input_tokens)::BIGINT AS input_tokens,
               sum(cache_read_tokens)::BIGINT AS cache_read_tokens, sum(output_tokens)::BIGINT AS output_tokens
        FROM requests GROUP BY ALL ORDER BY cost DESC NULLS LAST, model
    """,
    'slowest_tools(n := 10)': """
        SELECT tool, count(*) AS calls, median(duration_ms) AS median_ms, max(duration_ms) AS max_ms,
               sum(duration_ms) AS total_ms
        FROM tool_calls WHERE duration_ms IS NOT NULL GROUP BY ALL ORDER BY max_ms DESC, tool LIMIT n
    """,
    'failure_rates()': """
        SELECT tool, count(*) AS calls, count(*) FILTER (status = 'failed') AS failed,
               count(*) FILTER (status = 'failed') / count(*) AS rate, mode(error) AS usual_error
        FROM tool_calls WHERE status IN ('done', 'failed') GROUP BY ALL ORDER BY rate DESC, calls DESC, tool
    """,
    'tokens_per_turn()': """
        SELECT versions.conversation_id, versions.id AS version_id, versions.agent_name,
               runs.requests, runs.input_tokens, runs.output_tokens, runs.cost
        FROM versions JOIN runs ON runs.id = versions.run_id
        WHERE versions.kind IN ('turn', 'pause') ORDER BY versions.number
    """,
    'approval_waits()': """
        SELECT tool, status, count(*) AS approvals, median(wait_ms) AS median_ms, max(wait_ms) AS max_ms
        FROM approvals GROUP BY ALL ORDER BY approvals DESC, tool, status
    """,
    'failed_runs(n := 10)': """
        SELECT id, agent_name, state, error_type, error_message, started_at
        FROM runs WHERE state IN ('failed', 'interrupted') ORDER BY started_at DESC, id LIMIT n
    """,
    'files_changed_most(n := 10)': """
        SELECT path, count(*) AS changes, max(size_bytes) AS max_bytes, count(DISTINCT conversation_id) AS conversations
        FROM file_changes JOIN versions ON versions.id = version_id
        WHERE versions.kind <> 'step' GROUP BY ALL ORDER BY changes DESC, path LIMIT n
    """,
}
"""Table macros for common questions, keyed by signature."""

CREATE: Final = (
    'CREATE SCHEMA internal',
    *(table.create_sql for table in TABLES),
    *(f'CREATE VIEW {name} AS {sql}' for name, sql in VIEWS.items()),
    *(f'CREATE MACRO {signature} AS TABLE {sql}' for signature, sql in MACROS.items()),
)
"""The statements that create an empty replica."""
