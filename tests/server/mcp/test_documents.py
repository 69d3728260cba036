"""Resources and prompts of the MCP server: versions, their files, and skills."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextContent, TextResourceContents

from pydantic_deep import create_deep_agent
from pydantic_deep.server import AnyAgent
from pydantic_deep.server.mcp import _documents
from pydantic_deep.server.routes import _admin
from pydantic_deep.skills import Skill
from pydantic_deep.testing import ScriptedModel
from tests.server.conftest import Gate, Served
from tests.server.mcp.conftest import UNKNOWN, Connect, result_of
from tests.server.routes.file_writer import answer

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, AnyAgent]:
    """`writer` has a skill."""
    skill = Skill('poetry', 'Writes poems.', body='Rhyme.')
    return {
        'writer': create_deep_agent(ScriptedModel(then=answer), skills=[skill]),
        'other': create_deep_agent(ScriptedModel(then=answer)),
    }


async def write(client: Client, **files: str) -> Any:
    """Let the agent write files, and return the run."""
    prompt = ' '.join(f'/{name}.txt={content}' for name, content in files.items())
    return result_of(await client.call_tool('run', {'prompt': prompt, 'agent': 'writer'}))


async def test_heads_of_conversations_are_listed_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_documents, 'PAGE', 2)
    runs = [await write(client, a='x') for _ in range(3)]
    first = await client.list_resources()
    second = await client.list_resources(cursor=first.next_cursor)

    uris = [str(resource.uri) for resource in [*first.resources, *second.resources]]
    assert uris == [f'deep-agents://versions/{run["version"]}' for run in reversed(runs)]
    assert (len(first.resources), second.next_cursor) == (2, None)


async def test_version_is_read_as_json(client: Client) -> None:
    run = await write(client, a='x')
    [content] = (await client.read_resource(f'deep-agents://versions/{run["version"]}')).contents

    assert isinstance(content, TextResourceContents)
    assert content.mime_type == 'application/json'
    assert json.loads(content.text)['id'] == run['version']


async def test_file_of_a_version_is_read_as_text_or_bytes(client: Client, served: Served) -> None:
    run = await write(client, a='été')
    place = f'deep-agents://versions/{run["version"]}/files'
    [text] = (await client.read_resource(f'{place}/a.txt')).contents
    assert isinstance(text, TextResourceContents)
    assert text.text == 'été\n'

    path = f'/api/conversations/{run["conversation"]}'
    # A name with a space and a percent sign is encoded in a URI.
    http = served.client(await served.key('run'))
    assert (await http.put(f'{path}/uploads/b%20%25.bin', content=b'\xff\0')).status_code == 201
    head = (await client.list_resources()).resources[0].uri
    [blob] = (await client.read_resource(f'{head}/files/uploads/b%20%25.bin')).contents
    assert isinstance(blob, BlobResourceContents)
    assert base64.b64decode(blob.blob) == b'\xff\0'


@pytest.mark.parametrize(
    ('uri', 'message'),
    [
        ('file:///etc/passwd', "There is no resource 'file:///etc/passwd'. Templates: deep-agents://"),
        (f'deep-agents://versions/{UNKNOWN}', 'not found|does not exist|no such'),
        (f'deep-agents://versions/{UNKNOWN}/files/a.txt', 'not found|does not exist|no such'),
    ],
)
async def test_unknown_resource_is_an_error(client: Client, uri: str, message: str) -> None:
    with pytest.raises(MCPError, match=f'(?i){message}'):
        await client.read_resource(uri)


async def test_missing_and_large_files_are_errors(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_documents, 'MAX_FILE_BYTES', 2)
    run = await write(client, a='xxx')
    place = f'deep-agents://versions/{run["version"]}/files'
    with pytest.raises(MCPError, match='The file has 4 bytes; a resource has at most 2'):
        await client.read_resource(f'{place}/a.txt')
    with pytest.raises(MCPError, match=r'(?i)not found|does not exist|no such'):
        await client.read_resource(f'{place}/b.txt')


@pytest.mark.parametrize('cursor', ['x', '', '-1', '٣', '9' * 19])
async def test_unknown_page_is_an_error(client: Client, cursor: str) -> None:
    with pytest.raises(MCPError, match=f"There is no page '{cursor}'"):
        await client.list_resources(cursor=cursor)


async def test_resources_of_others_are_absent(client: Client, connect: Connect) -> None:
    """They are absent for other owners, and for keys without the scope `run`."""
    run = await write(client, a='x')
    uri = f'deep-agents://versions/{run["version"]}'
    async with connect('run', owner='bob') as bob:
        assert (await bob.list_resources()).resources == []
        with pytest.raises(MCPError):
            await bob.read_resource(f'{uri}/files/a.txt')
    async with connect('approve') as approver:
        assert (await approver.list_resources()).resources == []
        with pytest.raises(MCPError, match='requires a key with the scope `run`'):
            await approver.read_resource(uri)


async def test_templates_are_listed(client: Client) -> None:
    templates = (await client.list_resource_templates()).resource_templates
    assert [template.uri_template for template in templates] == [_documents.VERSION, _documents.FILE]


async def test_skills_are_prompts(client: Client) -> None:
    [prompt] = (await client.list_prompts()).prompts
    assert (prompt.name, prompt.description) == ('writer.poetry', 'Writes poems.')
    [message] = (await client.get_prompt('writer.poetry', {'task': 'praise rain.'})).messages

    assert isinstance(message.content, TextContent)
    assert message.content.text.endswith('Use the skill poetry to praise rain.')
    assert "the agent 'writer'" in message.content.text


@pytest.mark.parametrize('name', ['poetry', 'writer.prose', 'nobody.poetry'])
async def test_unknown_prompt_is_an_error(client: Client, name: str) -> None:
    with pytest.raises(MCPError, match=f'There is no prompt {name!r}'):
        await client.get_prompt(name, {'task': 'x'})


async def test_prompt_needs_a_task(client: Client) -> None:
    with pytest.raises(MCPError, match='needs the argument `task`'):
        await client.get_prompt('writer.poetry')


async def test_prompts_of_other_agents_are_absent(connect: Connect) -> None:
    async with connect('run', agents=['other']) as limited:
        assert (await limited.list_prompts()).prompts == []
        with pytest.raises(MCPError, match='There is no prompt'):
            await limited.get_prompt('writer.poetry', {'task': 'x'})


async def test_failure_of_a_handler_is_not_a_refusal(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its message could contain what the caller may not see."""

    async def fail(agent: str, access: object) -> None:
        raise RuntimeError('secret')

    monkeypatch.setattr(_admin, 'list_skills', fail)
    with pytest.raises(MCPError) as caught:
        await client.list_prompts()
    assert 'secret' not in str(caught.value)
