"""The OpenAI Agents SDK with its default model class, which uses the Responses API."""

from __future__ import annotations

import agents
from openai import AsyncOpenAI
from pydantic import BaseModel
from run import Server


def _use(server: Server) -> None:
    agents.set_default_openai_client(AsyncOpenAI(base_url=server.openai, api_key=server.key))


@agents.function_tool
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f'sunny in {city}'


class Report(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


async def check_hello_world(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', instructions='You are helpful.', model='writer')
    result = await agents.Runner.run(agent, 'Hi')
    assert result.final_output == 'You said: Hi, after 0 messages.', result.final_output


async def check_function_tools(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', tools=[weather], model='writer')
    result = await agents.Runner.run(agent, 'weather Paris Rome')
    assert result.final_output == 'Done: sunny in Rome', result.final_output


async def check_streamed_function_tools(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', tools=[weather], model='writer')
    result = agents.Runner.run_streamed(agent, 'weather Paris')
    text = ''
    items = []
    async for event in result.stream_events():
        if event.type == 'raw_response_event' and event.data.type == 'response.output_text.delta':
            text += event.data.delta
        elif event.type == 'run_item_stream_event':
            items.append(event.item.type)
    assert text.endswith('Done: sunny in Paris'), text
    assert {'tool_call_item', 'tool_call_output_item', 'message_output_item'} <= set(items), items
    assert result.final_output == 'Done: sunny in Paris', result.final_output


async def check_structured_output(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', output_type=Report, model='writer')
    result = await agents.Runner.run(agent, 'Report')
    assert result.final_output == Report(city='Rome', degrees=40), result.final_output


async def check_dialogue_by_input_list(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', model='writer')
    first = await agents.Runner.run(agent, 'One')
    second = await agents.Runner.run(agent, [*first.to_input_list(), {'role': 'user', 'content': 'Two'}])
    assert second.final_output == 'You said: Two, after 2 messages.', second.final_output


async def check_dialogue_by_session(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', model='writer')
    session = agents.SQLiteSession('conversation')
    await agents.Runner.run(agent, 'One', session=session)
    second = await agents.Runner.run(agent, 'Two', session=session)
    assert second.final_output == 'You said: Two, after 2 messages.', second.final_output


async def check_dialogue_by_conversation(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', model='writer')
    session = agents.OpenAIConversationsSession(openai_client=AsyncOpenAI(base_url=server.openai, api_key=server.key))
    await agents.Runner.run(agent, 'One', session=session)
    items = await session.get_items()
    assert [item['role'] for item in items] == ['user', 'assistant'], items
    second = await agents.Runner.run(agent, 'Two', session=session)
    assert second.final_output.startswith('You said: Two'), second.final_output


async def check_dialogue_by_previous_response(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', model='writer')
    first = await agents.Runner.run(agent, 'One')
    second = await agents.Runner.run(agent, 'Two', previous_response_id=first.last_response_id)
    assert second.final_output == 'You said: Two, after 2 messages.', second.final_output


async def check_handoff(server: Server) -> None:
    _use(server)
    other = agents.Agent(name='Other', model='writer')
    agent = agents.Agent(name='Assistant', handoffs=[other], model='writer')
    result = await agents.Runner.run(agent, 'Hi')
    assert result.final_output == 'You said: Hi, after 0 messages.', result.final_output


async def check_function_tools_in_a_stored_session(server: Server) -> None:
    _use(server)
    agent = agents.Agent(name='Assistant', tools=[weather], model='writer')
    session = agents.OpenAIConversationsSession(openai_client=AsyncOpenAI(base_url=server.openai, api_key=server.key))
    await agents.Runner.run(agent, 'weather Paris', session=session)
    items = [item.get('type') for item in await session.get_items()]
    assert {'message', 'function_call', 'function_call_output'} == {*items}, items
    second = await agents.Runner.run(agent, 'Two', session=session)
    assert second.final_output == 'You said: Two, after 4 messages.', second.final_output
