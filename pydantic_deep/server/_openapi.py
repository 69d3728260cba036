"""The parts of the OpenAPI document that FastAPI cannot derive from the routes."""

from __future__ import annotations

from typing import Any

from .http._errors import api_of

TAGS = [
    {'name': 'agents', 'description': 'What can be talked to.'},
    {'name': 'conversations', 'description': 'Dialogues, their turns and their files. All are of one owner.'},
    {'name': 'runs', 'description': 'What works now, and what it tells: clients come and go, and a run goes on.'},
    {'name': 'versions', 'description': 'The history of everything: look, compare, go back, branch, merge.'},
    {'name': 'approvals', 'description': 'Calls that wait for a person.'},
    {'name': 'audit', 'description': 'What became of runs.'},
    {'name': 'server', 'description': 'The server itself.'},
    {'name': 'openai', 'description': 'For clients of OpenAI: the name of an agent is the name of the model.'},
    {'name': 'anthropic', 'description': 'For clients of Anthropic.'},
    {'name': 'google', 'description': 'For clients of Google.'},
    {'name': 'ui', 'description': 'For AG-UI and for Vercel AI.'},
]
"""What the OpenAPI document sorts its operations by."""


def complete_document(document: dict[str, Any]) -> dict[str, Any]:
    """Complete an OpenAPI document in place, and return it. Completing it again changes nothing."""
    document['components']['securitySchemes']['key'] = {
        'type': 'apiKey', 'in': 'query', 'name': 'key', 'description': 'An API key: Google clients.',
    }  # fmt: skip
    for path, operations in document['paths'].items():
        for operation in operations.values():
            if api_of(path) != 'ours':
                operation['responses'].pop('422', None)  # added by FastAPI; it is 400 there
            if api_of(path) == 'google' and {'key': []} not in operation['security']:
                operation['security'].append({'key': []})
    return document
