"""Resources and prompts: versions and their files, and the skills of agents."""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from mcp_types import (
    BlobResourceContents,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.routes import _admin, _conversations, _versions
from pydantic_deep.server.routes._parameters import CURSOR

from ._call import explained

MAX_FILE_BYTES: Final = 1_000_000
"""Maximum size of a file that is returned as a resource, in bytes."""

PAGE: Final = 50
"""Maximum number of versions in a list of resources; a cursor continues it."""

VERSION: Final = 'deep-agents://versions/{version}'
"""The URI template of a version."""

FILE: Final = 'deep-agents://versions/{version}/files/{+path}'
"""The URI template of a file of a version."""

_URI: Final = re.compile(r'deep-agents://versions/([0-9a-f-]{36})(?:/files/(.+))?')

ResultT = TypeVar('ResultT')


def _explained(
    handle: Callable[[Access, Any], Awaitable[ResultT]],
) -> Callable[[Access, object, Any], Awaitable[ResultT]]:
    """Return a handler whose refusals are errors of JSON-RPC."""

    @wraps(handle)
    async def handler(access: Access, context: object, params: Any) -> ResultT:
        with explained():
            return await handle(access, params)

    return handler


@_explained
async def list_resources(access: Access, params: PaginatedRequestParams | None) -> ListResourcesResult:
    """List the heads of the caller's conversations, newest first. A key without the scope `run` has none."""
    if not access.has('run'):
        return ListResourcesResult(resources=[])
    cursor = None if params is None else params.cursor
    if cursor is not None and re.fullmatch(CURSOR, cursor) is None:
        raise ServerError(
            'invalid', f'There is no page {cursor[:100]!r}. Pass the `nextCursor` of a list of resources.'
        )
    page = await _conversations.list_conversations(access, limit=PAGE, cursor=cursor)
    resources = [
        Resource(
            uri=VERSION.format(version=item.head),
            name=item.name or item.id,
            description=f'The head of a conversation of {item.agent}.',
            mime_type='application/json',
        )
        for item in page.items
    ]
    return ListResourcesResult(resources=resources, next_cursor=page.cursor)


async def list_templates(
    access: Access, context: object, params: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """List the templates of versions and files."""
    return ListResourceTemplatesResult(
        resource_templates=[
            ResourceTemplate(
                uri_template=VERSION,
                name='version',
                description='A version: its turn, calls and changed files.',
                mime_type='application/json',
            ),
            ResourceTemplate(uri_template=FILE, name='file', description='A file of a version.'),
        ]
    )


@_explained
async def read_resource(access: Access, params: ReadResourceRequestParams) -> ReadResourceResult:
    """Return a version as JSON, or a file of a version as text or bytes."""
    found = _URI.fullmatch(params.uri)
    if found is None:
        raise ServerError('invalid', f'There is no resource {params.uri[:200]!r}. Templates: {VERSION}, {FILE}')
    if not access.has('run'):
        raise ServerError('forbidden', 'This requires a key with the scope `run`.')
    version, path = found[1], found[2]
    if path is None:
        details = await _versions.read_version(version, access)
        text = TextResourceContents(uri=params.uri, mime_type='application/json', text=details.model_dump_json())
        return ReadResourceResult(contents=[text])
    file = await _versions.find_file(version, unquote(path), access)
    if file.size > MAX_FILE_BYTES:
        raise ServerError(
            'invalid', f'The file has {file.size:,} bytes; a resource has at most {MAX_FILE_BYTES:,}. Use the HTTP API.'
        )
    data = await access.state.store.read_asset(file.digest)
    try:
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, text=data.decode())])
    except UnicodeDecodeError:
        blob = BlobResourceContents(
            uri=params.uri, mime_type='application/octet-stream', blob=base64.b64encode(data).decode()
        )
        return ReadResourceResult(contents=[blob])


@_explained
async def list_prompts(access: Access, params: PaginatedRequestParams | None) -> ListPromptsResult:
    """List the skills of the agents that the caller may use, as `AGENT.SKILL`."""
    task = PromptArgument(name='task', description='What to do with the skill.', required=True)
    prompts = [
        Prompt(name=f'{agent}.{skill.name}', description=skill.description, arguments=[task])
        for agent in sorted(access.state.agents)
        if access.may_use(agent)
        for skill in (await _admin.list_skills(agent, access)).items
    ]
    return ListPromptsResult(prompts=prompts)


@_explained
async def get_prompt(access: Access, params: GetPromptRequestParams) -> GetPromptResult:
    """Return the prompt that makes the client's model give a task to the agent with the skill."""
    agent, _, name = params.name.rpartition('.')
    usable = agent in access.state.agents and access.may_use(agent)
    skills = (await _admin.list_skills(agent, access)).items if usable else []
    skill = next((skill for skill in skills if skill.name == name), None)
    if skill is None:
        raise ServerError('invalid', f'There is no prompt {params.name[:200]!r}. List the prompts for their names.')
    task = (params.arguments or {}).get('task')
    if not task:
        raise ServerError('invalid', f'The prompt {params.name!r} needs the argument `task`.')
    text = f'Call the tool `run` with the agent {agent!r} and this prompt:\n\nUse the skill {name} to {task}'
    return GetPromptResult(
        description=skill.description,
        messages=[PromptMessage(role='user', content=TextContent(text=text))],
    )
