"""Files of a version as downloads: one file, or an archive."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import Answer, ScriptedModel, call
from tests.server.conftest import Client, Gate, MakeClient

pytestmark = pytest.mark.anyio


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Write files as in the prompt `path=text path=text`, or call `hold`."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if not said:
        return 'Written.'
    if said[-1] == 'hold':
        return call('hold')
    pairs = [word.partition('=') for word in said[-1].split() if '=' in word]
    return [call('write_file', path=path, content=f'{text}\n') for path, _, text in pairs] or 'Nothing.'


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    return {'analyst': create_deep_agent(ScriptedModel(then=answer), tools=[gate.hold])}


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def begin(client: Client) -> str:
    return (await client.post('/api/conversations', json={'agent': 'analyst'})).headers['location']


async def say(client: Client, path: str, prompt: str, **more: Any) -> str:
    """Run a turn and return the id of its version."""
    return (await client.post(f'{path}/turns', json={'prompt': prompt, **more})).json()['version_id']


async def test_file_names_are_escaped_in_headers(ada: Client):
    path = await begin(ada)
    version = await say(ada, path, '/a"é;b=1')

    page = await ada.get(f'/api/versions/{version}/files/a"é;b')

    assert page.headers['content-disposition'] == "attachment; filename*=UTF-8''a%22%C3%A9%3Bb"


async def test_files_are_downloaded_as_an_archive(ada: Client):
    path = await begin(ada)
    version = await say(ada, path, '/a=1 /dir/b=2')

    answers = [await ada.get(f'/api/versions/{version}/archive') for _ in range(2)]

    assert answers[0].headers['content-type'] == 'application/gzip'
    with tarfile.open(fileobj=io.BytesIO(answers[0].content), mode='r:gz') as tar:
        found = {member.name: tar.extractfile(member) for member in tar}
        contents = {name: file.read() for name, file in found.items() if file is not None}
    assert contents == {f'version-{version}/a': b'1\n', f'version-{version}/dir/b': b'2\n'}
