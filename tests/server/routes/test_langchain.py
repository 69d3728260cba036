"""LangChain's chat model on loopback: its functions, its structured output and its batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f'40 degrees in {city}'


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> Any:
    """Call the forced function, the output tool or the weather; then repeat the result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    returned = [part.model_response_str() for part in last.parts if isinstance(part, ToolReturnPart)]
    forced = (info.model_settings or {}).get('tool_choice')
    if isinstance(forced, list):
        return call(forced[0], city='Rome', degrees=40)
    if info.output_tools:
        return call('final_result', city='Rome', degrees=40)
    if returned:
        return f'It has {returned[-1]}.'
    if any(each.name == 'weather' for each in info.function_tools):
        return call('weather', city='Rome')
    return f'After {len(messages) - 1} messages.'


@pytest.fixture
def agents() -> dict[str, Any]:
    return {'writer': create_deep_agent(ScriptedModel(then=answer))}


@pytest.fixture
async def chat(served: Any, listen: Any) -> AsyncGenerator[ChatOpenAI]:
    async with listen(served.app) as url:
        key = SecretStr(await served.key('run'))
        yield ChatOpenAI(model='writer', api_key=key, base_url=f'{url}/v1', use_responses_api=False, max_retries=0)


async def test_bound_function_is_called_and_the_conversation_continues(chat: Any, served: Any) -> None:
    bound = chat.bind_tools([weather])
    messages: list[Any] = [HumanMessage('Weather?')]
    asked: AIMessage = await bound.ainvoke(messages)
    result: ToolMessage = await weather.ainvoke(asked.tool_calls[0])
    told: AIMessage = await bound.ainvoke([*messages, asked, result])
    later = await chat.ainvoke([*messages, asked, result, told, HumanMessage('Thanks')])

    assert (told.text, later.text) == ('It has 40 degrees in Rome.', 'After 4 messages.')
    assert len(await served.store.conversations()) == 1


@pytest.mark.parametrize('method', ['function_calling', 'json_schema'])
async def test_structured_output(chat: Any, method: Any) -> None:
    structured = chat.with_structured_output(Weather, method=method)

    assert await structured.ainvoke('Weather?') == Weather(city='Rome', degrees=40)


async def test_batch_over_one_history(chat: Any, served: Any) -> None:
    messages: list[Any] = [HumanMessage('Hi')]
    messages.append(await chat.ainvoke(messages))
    told = await chat.abatch([[*messages, HumanMessage(f'Question {number}')] for number in range(4)])

    assert [each.text for each in told] == ['After 2 messages.'] * 4
    (conversation,) = await served.store.conversations()
    assert len(await served.store.branches(conversation.id)) == 4
