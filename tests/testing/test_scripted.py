"""The scripted model: its steps, and the requests that it records."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from pydantic_deep.errors import ValidationError
from pydantic_deep.testing import ScriptedModel, ScriptExhaustedError, call

from .conftest import AGENT, call_ids

pytestmark = pytest.mark.anyio


async def test_steps_are_played_in_order() -> None:
    model = ScriptedModel(call('add', a=1, b=2), 'Three.')
    result = await AGENT.run('1 + 2', model=model)
    assert result.output == 'Three.'
    assert [part.content for part in model.requests[-1].tool_returns] == [3]
    assert model.remaining == 0


async def test_steps_continue_over_several_runs() -> None:
    model = ScriptedModel('One.', 'Two.', 'Never.')
    assert [(await AGENT.run('Go', model=model)).output for _ in range(2)] == ['One.', 'Two.']
    assert model.remaining == 1


async def test_list_is_one_response_with_several_parts() -> None:
    model = ScriptedModel(['I add.', call('add', a=1, b=2), call('add', a=3, b=4)], 'Done.')
    result = await AGENT.run('Go', model=model)
    response = result.all_messages()[1]
    assert [part.part_kind for part in response.parts] == ['text', 'tool-call', 'tool-call']
    assert [part.content for part in model.requests[-1].tool_returns] == [3, 7]


async def test_calls_are_numbered_over_the_whole_script() -> None:
    model = ScriptedModel([call('add', a=1, b=2), call('add', a=3, b=4)], call('add', a=5, b=6), 'Done.')
    result = await AGENT.run('Go', model=model)
    assert call_ids(result.all_messages()) == ['call-1', 'call-2', 'call-3']


async def test_call_ids_of_an_earlier_script_are_skipped() -> None:
    first = await AGENT.run('Go', model=ScriptedModel(call('add', a=1, b=2), 'Done.'))
    model = ScriptedModel(call('add', a=1, b=2), 'Done.')
    second = await AGENT.run('Again', model=model, message_history=first.all_messages())
    assert call_ids(second.all_messages()) == ['call-1', 'call-2']


async def test_explicit_call_id_is_preserved() -> None:
    model = ScriptedModel(ToolCallPart('add', {'a': 1, 'b': 2}, tool_call_id='mine'), 'Done.')
    assert call_ids((await AGENT.run('Go', model=model)).all_messages()) == ['mine']


async def test_response_preserves_its_model_name_and_usage() -> None:
    response = ModelResponse(parts=[TextPart('Hi')], usage=RequestUsage(input_tokens=7), model_name='other')
    result = await AGENT.run('Go', model=ScriptedModel(response))
    assert result.usage.input_tokens == 7
    assert result.response.model_name == 'other'


async def test_a_response_can_be_played_twice() -> None:
    response = ModelResponse(parts=[TextPart('Hi')])
    model = ScriptedModel(response, response)
    first, second = await AGENT.run('Go', model=model), await AGENT.run('Go', model=model)
    assert first.response.run_id != second.response.run_id
    assert response.run_id is None


async def test_exception_is_raised_by_its_request() -> None:
    model = ScriptedModel(call('add', a=1, b=2), ConnectionError('gone'))
    with pytest.raises(ConnectionError, match='gone'):
        await AGENT.run('Go', model=model)
    assert len(model.requests) == 2


async def test_function_answers_one_request() -> None:
    def sum_up(messages: list[ModelMessage], info: AgentInfo) -> str:
        return f'{len(messages)} messages, {info.instructions}, {[tool.name for tool in info.function_tools]}'

    result = await AGENT.run('Go', model=ScriptedModel(call('add', a=1, b=2), sum_up))
    assert result.output == "3 messages, Add up., ['add']"


async def test_then_answers_every_request_after_the_steps() -> None:
    async def count(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f'{len(messages)}')])

    model = ScriptedModel('First.', then=count)
    outputs = [(await AGENT.run('Go', model=model)).output for _ in range(3)]
    assert outputs == ['First.', '1', '1']
    assert model.remaining == 0


async def test_an_exhausted_script_shows_the_last_messages() -> None:
    model = ScriptedModel(call('add', a=1, b=2))
    with pytest.raises(ScriptExhaustedError) as caught:
        await AGENT.run('What is 1 + 2? ' + 'x' * 1000, model=model)
    error = caught.value
    assert error.step_count == 1
    assert len(error.messages) == 3
    text = str(error)
    assert text.startswith('The script has 1 steps, but the agent made another request.')
    assert 'What is 1 + 2?' in text
    assert "tool_call_id='call-1'" in text
    assert max(len(line) for line in text.splitlines()) < 420


async def test_an_exhausted_script_fails_a_test_as_an_assertion() -> None:
    with pytest.raises(AssertionError):
        await AGENT.run('Go', model=ScriptedModel())


async def test_requests_record_the_sent_messages_and_settings() -> None:
    model = ScriptedModel(call('add', a=1, b=2), 'Done.', settings=ModelSettings(temperature=0.5))
    await AGENT.run('Go', model=model, model_settings=ModelSettings(max_tokens=9))
    first, second = model.requests
    assert first.instructions == 'Add up.'
    assert first.tool_names == ['add']
    assert first.tools[0].description == 'Add two numbers.'
    assert first.settings == {'temperature': 0.5, 'max_tokens': 9}
    assert first.tool_returns == []
    assert [len(request.messages) for request in (first, second)] == [1, 3]


async def test_output_tools_are_among_the_tools() -> None:
    class Sum(BaseModel):
        total: int

    model = ScriptedModel(call('final_result', total=3))
    result = await AGENT.run('Go', model=model, output_type=Sum)
    assert result.output == Sum(total=3)
    assert model.requests[0].tool_names == ['add', 'final_result']


async def test_agent_without_instructions_sends_none() -> None:
    model = ScriptedModel('Hi.')
    await Agent(model).run('Go')
    assert model.requests[0].instructions is None


async def test_usage_is_scripted_instead_of_estimated() -> None:
    result = await AGENT.run('Go ' * 10_000, model=ScriptedModel(call('add', a=1, b=2), 'Done.'))
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (2, 200, 20)


async def test_invalid_arguments_reach_pydantic_ai_unchanged() -> None:
    bad = ToolCallPart('add', '{"a": 1', tool_call_id='bad')
    model = ScriptedModel(bad, call('add', a=-1, b=0), 'I give up.')
    result = await AGENT.run('Go', model=model, retries={'tools': 3})
    assert result.output == 'I give up.'
    assert [part.outcome for part in model.requests[-1].tool_returns] == ['retried', 'retried']


def _nothing(messages: object, info: object) -> Any:
    return None


def _request_part(messages: object, info: object) -> Any:
    return UserPromptPart('Hi.')


@pytest.mark.parametrize('step', [_nothing, _request_part])
async def test_step_of_another_type_is_reported(step: Any) -> None:
    """A function that returns nothing is the usual case."""
    with pytest.raises(TypeError, match=r'A step of the script is .*, or returned it\. Pass or return a text'):
        await Agent(ScriptedModel(step)).run('Hi.')


OTHER_STEPS: list[Any] = [5, {'text': 'Hi.'}, ['Hi.', None], b'Hi.', ValueError, str, TextPart, UserPromptPart('Hi.')]


@pytest.mark.parametrize('step', [None, *OTHER_STEPS])
def test_other_steps_are_refused_at_once(step: Any) -> None:
    with pytest.raises(TypeError, match=r'A step of the script is .*, or returned it\. Pass or return a text'):
        ScriptedModel('Hi.', step)


@pytest.mark.parametrize('then', OTHER_STEPS)
def test_another_then_is_refused_at_once(then: Any) -> None:
    with pytest.raises(TypeError, match='A step of the script is '):
        ScriptedModel('Hi.', then=then)


async def test_then_can_be_a_response() -> None:
    model = ScriptedModel(then='Always.')
    assert [(await AGENT.run('Go', model=model)).output for _ in range(2)] == ['Always.', 'Always.']
    with pytest.raises(ConnectionError, match='gone'):
        await AGENT.run('Go', model=ScriptedModel(then=ConnectionError('gone')))


@pytest.mark.parametrize(
    ('name', 'value', 'field'),
    [
        ('model_name', 1, 'model_name'),
        ('model_name', ' ', 'model_name'),
        ('usage', {'input_tokens': 1}, 'usage'),
        ('profile', 'json', 'profile'),
        ('settings', [1], 'settings'),
        ('settings', {'temperature': 'hot'}, 'temperature'),
    ],
)
def test_other_arguments_are_refused_by_name(name: str, value: Any, field: str) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ValidationError) as error:
        ScriptedModel('Hi.', **options)
    assert error.value.field == field


def test_profile_can_be_a_function() -> None:
    assert ScriptedModel('Hi.', profile=lambda name: {'supports_tools': False}).profile == {'supports_tools': False}


@pytest.mark.parametrize('name', [1, None, print])
def test_name_of_a_call_is_a_text(name: Any) -> None:
    with pytest.raises(ValidationError, match=r'tool_name: it is .*, and must be a string'):
        call(name)
