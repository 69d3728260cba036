"""LangChain's `ChatOpenAI` at its newest release, over chat completions and over the Responses API."""

from __future__ import annotations

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from run import Server


class Report(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


@tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f'sunny in {city}'


def _models(server: Server) -> list[ChatOpenAI]:
    options = {'model': 'writer', 'base_url': server.openai, 'api_key': server.key}
    return [ChatOpenAI(**options), ChatOpenAI(**options, use_responses_api=True)]


def check_invoke_and_stream(server: Server) -> None:
    for model in _models(server):
        assert model.invoke('Hi').text == 'You said: Hi, after 0 messages.'
        assert ''.join(chunk.text for chunk in model.stream('Hi')) == 'You said: Hi, after 0 messages.'


def check_batch(server: Server) -> None:
    for model in _models(server):
        assert [each.text.partition(',')[0] for each in model.batch(['A', 'B'])] == ['You said: A', 'You said: B']


async def check_async_stream(server: Server) -> None:
    for model in _models(server):
        assert ''.join([chunk.text async for chunk in model.astream('Hi')]) == 'You said: Hi, after 0 messages.'


def check_bind_tools(server: Server) -> None:
    for model in _models(server):
        bound = model.bind_tools([weather])
        messages = [HumanMessage('weather Paris')]
        asked = bound.invoke(messages)
        [call] = asked.tool_calls
        messages += [asked, ToolMessage(weather.invoke(call['args']), tool_call_id=call['id'])]
        assert bound.invoke(messages).text == 'Done: sunny in Paris'


def check_structured_output(server: Server) -> None:
    for model in _models(server):
        for method in ('json_schema', 'function_calling'):
            found = model.with_structured_output(Report, method=method).invoke('Report')
            assert found == Report(city='Rome', degrees=40), (method, found)
