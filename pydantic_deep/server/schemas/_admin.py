"""Agents and skills, the caller, audit records, queries, and the health of the server."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from pydantic_deep.audit import AuditRecord
from pydantic_deep.server._api_keys import KeyScope


class Health(BaseModel):
    """Whether the server takes requests."""

    model_config = ConfigDict(json_schema_extra={'examples': [{'status': 'ok'}]})

    status: Literal['ok', 'stopping']
    """`stopping` comes with the status 503: no new runs begin."""


class Me(BaseModel):
    """What the key of the request may do."""

    model_config = ConfigDict(
        json_schema_extra={'examples': [{'owner': 'ada', 'scopes': ['approve', 'run'], 'agents': None}]}
    )

    owner: str
    """Whose conversations it sees."""
    scopes: list[KeyScope]
    """What it may do."""
    agents: list[str] | None
    """The agents that it may use; null for all."""


class AgentInfo(BaseModel):
    """An agent that is served."""

    model_config = ConfigDict(
        json_schema_extra={'examples': [{'name': 'analyst', 'description': 'Reads tables.', 'model': 'openai:gpt-5.2'}]}
    )

    name: str
    """What requests name it by, as a model too."""
    description: str | None
    """What its makers say of it."""
    model: str | None
    """The model that it asks unless a conversation has another, as `provider:name`."""


class AgentList(BaseModel):
    """The agents that the key may use."""

    model_config = ConfigDict(
        json_schema_extra={
            'examples': [{'items': [{'name': 'analyst', 'description': None, 'model': 'openai:gpt-5.2'}]}]
        }
    )

    items: list[AgentInfo]
    """By name."""


class SkillInfo(BaseModel):
    """A skill that an agent has."""

    model_config = ConfigDict(
        json_schema_extra={
            'examples': [{'name': 'reviewing-changes', 'description': 'Use this skill …', 'scope': 'bundled'}]
        }
    )

    name: str
    """How it is asked for."""
    description: str
    """What it does and when to use it."""
    scope: str
    """Who it is from."""


class SkillList(BaseModel):
    """The skills of an agent that are the same for all its conversations."""

    model_config = ConfigDict(
        json_schema_extra={
            'examples': [{'items': [{'name': 'reading', 'description': 'Use this skill …', 'scope': 'bundled'}]}]
        }
    )

    items: list[SkillInfo]
    """Those that count first at the top."""


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
"""A record, for the OpenAPI document."""


class AuditPage(BaseModel):
    """Some of the records that were asked for."""

    model_config = ConfigDict(json_schema_extra={'examples': [{'items': [EXAMPLE_RECORD], 'cursor': None}]})

    items: list[AuditRecord]
    """The newest first, without their messages."""
    cursor: str | None
    """What to ask the next page with; null if this is the last."""


class SqlQuery(BaseModel):
    """A question about the history of every agent."""

    model_config = ConfigDict(
        extra='forbid',
        json_schema_extra={
            'examples': [
                {
                    'query': 'select agent_name, sum(cost) from runs where state = ? group by 1',
                    'parameters': ['complete'],
                }
            ]
        },
    )

    query: str = Field(max_length=100_000)
    """One statement that only reads, in the SQL of DuckDB."""
    parameters: list[JsonValue] | dict[str, JsonValue] = Field(default_factory=list[JsonValue])
    """The values of `?` and `$1`, or of `$name`."""


class SqlTable(BaseModel):
    """The rows that a query returned."""

    model_config = ConfigDict(
        json_schema_extra={
            'examples': [{'columns': ['agent_name', 'cost'], 'rows': [['analyst', 0.42]], 'is_truncated': False}]
        }
    )

    columns: list[str]
    """Their names, in order."""
    rows: list[list[JsonValue]]
    """Values as JSON: moments as ISO 8601, bytes as hexadecimal digits, decimals as text."""
    is_truncated: bool
    """Whether there are more rows than the server returns."""
