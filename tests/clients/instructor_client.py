"""instructor: answers as models of pydantic, over the APIs of OpenAI, Anthropic and Google."""

from __future__ import annotations

import instructor
from anthropic import Anthropic
from google import genai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from run import Server


class Report(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


EXPECTED = {'city': 'Rome', 'degrees': 40}
SAID = [{'role': 'user', 'content': 'Report'}]


def _client(server: Server, **options) -> instructor.Instructor:
    return instructor.from_openai(OpenAI(base_url=server.openai, api_key=server.key), **options)


def check_default_mode(server: Server) -> None:
    found = _client(server).chat.completions.create(model='writer', response_model=Report, messages=SAID)
    assert found.model_dump() == EXPECTED, found


def check_modes_of_openai(server: Server) -> None:
    for mode in ('TOOLS', 'TOOLS_STRICT', 'JSON', 'JSON_SCHEMA', 'RESPONSES_TOOLS'):
        client = _client(server, mode=instructor.Mode[mode])
        found = client.chat.completions.create(model='writer', response_model=Report, messages=SAID)
        assert found.model_dump() == EXPECTED, (mode, found)


def check_completion_beside_the_model(server: Server) -> None:
    found, completion = _client(server).chat.completions.create_with_completion(
        model='writer', response_model=Report, messages=SAID
    )
    assert (found.model_dump(), completion.usage.total_tokens > 0) == (EXPECTED, True)


def check_partial_stream(server: Server) -> None:
    parts = [*_client(server).chat.completions.create_partial(model='writer', response_model=Report, messages=SAID)]
    assert parts[-1].model_dump() == EXPECTED, parts


async def check_async(server: Server) -> None:
    client = instructor.from_openai(AsyncOpenAI(base_url=server.openai, api_key=server.key))
    found = await client.chat.completions.create(model='writer', response_model=Report, messages=SAID)
    assert found.model_dump() == EXPECTED, found


def check_anthropic(server: Server) -> None:
    client = instructor.from_anthropic(Anthropic(base_url=server.url, api_key=server.key))
    found = client.messages.create(model='writer', max_tokens=99, response_model=Report, messages=SAID)
    assert found.model_dump() == EXPECTED, found


def check_google(server: Server) -> None:
    google = genai.Client(api_key=server.key, http_options={'base_url': server.url})
    client = instructor.from_genai(google)
    found = client.chat.completions.create(model='writer', response_model=Report, messages=SAID)
    assert found.model_dump() == EXPECTED, found
