"""The card of an agent: how other agents find and call it."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, not_found
from pydantic_deep.server.routes._admin import list_skills

MODES = ('text/plain', 'application/json')
"""The media types of messages and artifacts."""


def only_agent(access: Access) -> str:
    """Return the agent of a caller who may use only one.

    Raises:
        ServerError: The caller may use no agent, or several, each of which has a card of its own.
    """
    names = [name for name in sorted(access.state.agents) if access.may_use(name)]
    if not names:
        raise not_found()
    if len(names) > 1:
        paths = ', '.join(f'/a2a/{name}/.well-known/agent-card.json' for name in names)
        raise ServerError('not_found', f'This server has {len(names)} agents, each with a card of its own: {paths}.')
    return names[0]


async def build_card(access: Access, name: str, base_url: str) -> dict[str, Any]:
    """Return the card of an agent as JSON, for clients of both versions of the protocol.

    Args:
        access: The access of the caller.
        name: The name of the agent.
        base_url: The URL of the server, which ends with a slash.

    Raises:
        ServerError: There is no such agent, or the caller may not use it.
    """
    agent, url = access.agent(name).agent, f'{base_url}a2a/{name}'
    description = agent.description or f'The agent {name}.'
    skills = (await list_skills(name, access)).items
    card = AgentCard(
        name=name,
        description=description,
        version=importlib.metadata.version('versioned-deep-agents'),
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding='JSONRPC', protocol_version=version) for version in ('1.0', '0.3')
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False, extended_agent_card=False),
        security_schemes={
            'key': SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme='bearer')),
        },
        security_requirements=[SecurityRequirement(schemes={'key': StringList()})],
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=[
            AgentSkill(id=skill.name, name=skill.name, description=skill.description, tags=['skill'])
            for skill in skills
        ] or [AgentSkill(id=name, name=name, description=description, tags=['agent'])],
    )  # fmt: skip
    return agent_card_to_dict(card)
