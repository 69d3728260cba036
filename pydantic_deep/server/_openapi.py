"""The parts of the OpenAPI document that FastAPI cannot derive from the routes."""

from __future__ import annotations

from typing import Any

from .http._errors import api_of

TAGS = [
    {'name': 'agents', 'description': 'The agents of this server, and their skills.'},
    {'name': 'conversations', 'description': 'Conversations, their turns and their files. Each has one owner.'},
    {'name': 'runs', 'description': 'Runs and their events. A run continues if clients disconnect.'},
    {'name': 'versions', 'description': 'The history of conversations: read, compare, restore, branch, merge.'},
    {'name': 'approvals', 'description': 'Calls that are pending until a person decides.'},
    {'name': 'memory', 'description': 'What agents remember for the owner, across conversations.'},
    {'name': 'webhooks', 'description': 'URLs that receive notices of pending approvals, answers and ended runs.'},
    {'name': 'audit', 'description': 'Records of past runs.'},
    {'name': 'server', 'description': 'Health, metrics, permissions and SQL queries.'},
    {'name': 'openai', 'description': "OpenAI's API: use the name of an agent as the model name."},
    {'name': 'anthropic', 'description': "Anthropic's API: use the name of an agent as the model name."},
    {'name': 'google', 'description': "Google's API: use the name of an agent as the model name."},
    {'name': 'ui', 'description': 'The protocols AG-UI and Vercel AI.'},
    {'name': 'mcp', 'description': 'The Model Context Protocol, over streamable HTTP.'},
    {'name': 'a2a', 'description': 'The Agent2Agent protocol, for other agents.'},
]
"""The tags that group the operations of the OpenAPI document."""


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Complete an OpenAPI document in place, and return it. The function is idempotent."""
    document['components']['securitySchemes']['key'] = {
        'type': 'apiKey', 'in': 'query', 'name': 'key', 'description': 'An API key: Google clients.',
    }  # fmt: skip
    for path, operations in document['paths'].items():
        for operation in operations.values():
            if api_of(path) != 'ours':
                operation['responses'].pop('422', None)  # FastAPI adds it, but these APIs use 400
            if api_of(path) == 'google' and {'key': []} not in operation['security']:
                operation['security'].append({'key': []})
    return document
