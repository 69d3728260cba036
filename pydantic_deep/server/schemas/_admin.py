"""Agents and skills, the caller, audit records, SQL queries, and the health of the server."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, JsonValue

from pydantic_deep._examples import example_config
from pydantic_deep.audit import AuditRecord
from pydantic_deep.server._api_keys import KeyScope


class Health(BaseModel):
    """Whether the server accepts requests."""

    model_config = example_config({'status': 'ok'})

    status: Literal['ok', 'stopping']
    """`stopping` has the HTTP status 503: the server starts no new runs."""


class Readiness(BaseModel):
    """Whether the server accepts runs now."""

    model_config = example_config({'status': 'ok', 'message': 'The server accepts runs.'})

    status: Literal['ok', 'stopping', 'unavailable']
    """`stopping` and `unavailable` have the HTTP status 503. `unavailable`: the store does not answer."""
    message: str
    """A sentence for people."""


class Me(BaseModel):
    """The permissions of the caller."""

    model_config = example_config(
        {'owner': 'ada', 'scopes': ['approve', 'run'], 'agents': None, 'has_key': True, 'logout_url': None}
    )

    owner: str
    """The owner whose conversations the caller accesses."""
    scopes: list[KeyScope]
    """The scopes of the caller."""
    agents: list[str] | None
    """The agents that the caller may use; null for all agents."""
    has_key: bool
    """Whether the caller sent an API key. Otherwise the login of the host application identifies the caller."""
    logout_url: str | None
    """Where the caller logs out of the host application; null with a key, or if it has no such address."""


class AgentInfo(BaseModel):
    """An agent that the server provides."""

    model_config = example_config(
        {
            'name': 'analyst',
            'description': 'Reads tables.',
            'model': 'openai:gpt-5.2',
            'examples': ['Summarize /sales.csv.'],
        }
    )

    name: str
    """The name to use in requests, also as a model name."""
    description: str | None
    """The description that its developers gave it."""
    model: str | None
    """The default model as `provider:name`; a conversation may use another."""
    examples: list[str]
    """Prompts that show what the agent is for, from the settings of the server."""


class AgentList(BaseModel):
    """The agents that the key may use."""

    model_config = example_config(
        {'items': [{'name': 'analyst', 'description': None, 'model': 'openai:gpt-5.2', 'examples': []}]}
    )

    items: list[AgentInfo]
    """The agents, sorted by name."""


class SkillInfo(BaseModel):
    """A skill of an agent."""

    model_config = example_config({'name': 'reviewing-changes', 'description': 'Use this skill …', 'scope': 'bundled'})

    name: str
    """The name by which the skill is loaded."""
    description: str
    """The purpose of the skill, and when to use it."""
    scope: str
    """The origin of the skill, such as `bundled`."""


class SkillList(BaseModel):
    """The skills of an agent that all its conversations share."""

    model_config = example_config(
        {'items': [{'name': 'reading', 'description': 'Use this skill …', 'scope': 'bundled'}]}
    )

    items: list[SkillInfo]
    """The skills, in order of precedence."""


EXAMPLE_RECORD: dict[str, JsonValue] = {
    'id': '0193a5f0-7c3e-7d2a-9c11-1f2e3d4c5b6a',
    'run_id': '0193a5f0-7c3e-7d2a-9c11-000000000001',
    'conversation_id': '0193a5f0-7c3e-7d2a-9c11-000000000002',
    'agent_name': 'analyst',
    'owner': 'ada',
    'question': 'What did we sell?',
    'status': 'success',
    'output': 'Tea, mostly.',
    'usage': {'requests': 1, 'input_tokens': 412, 'output_tokens': 5},
    'started_at': '2026-01-01T09:00:00Z',
    'ended_at': '2026-01-01T09:00:02Z',
}
"""An audit record, for the OpenAPI document."""


class AuditPage(BaseModel):
    """A page of audit records."""

    model_config = example_config({'items': [EXAMPLE_RECORD], 'cursor': None})

    items: list[AuditRecord]
    """The records without their messages, newest first."""
    cursor: str | None
    """The cursor of the next page; null for the last page."""


class SqlQuery(BaseModel):
    """A SQL query over the history of all agents."""

    model_config = example_config(
        {
            'query': 'select agent_name, sum(cost) from runs where state = ? group by 1',
            'parameters': ['complete'],
        },
        extra='forbid',
    )

    query: str = Field(max_length=100_000)
    """A single read-only statement in DuckDB's SQL dialect."""
    parameters: list[JsonValue] | dict[str, JsonValue] = Field(default_factory=list[JsonValue])
    """The values of the placeholders: a list for `?` and `$1`, an object for `$name`."""


class SqlTable(BaseModel):
    """The rows that a query returned."""

    model_config = example_config(
        {'columns': ['agent_name', 'cost'], 'rows': [['analyst', 0.42]], 'is_truncated': False}
    )

    columns: list[str]
    """The column names, in order."""
    rows: list[list[JsonValue]]
    """Values as JSON: timestamps in ISO 8601, bytes as hexadecimal digits, decimals as strings."""
    is_truncated: bool
    """Whether the result has more rows than the server returns."""
