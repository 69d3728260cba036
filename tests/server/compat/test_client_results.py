"""Results of the client's tools, and the versions that they continue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import create_deep_agent
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

DECLARED = [{'name': 'weather', 'input_schema': {'type': 'object'}}]


def answer(messages: Sequence[ModelMessage], info: AgentInfo) -> list[Any] | str:
    """Call what the prompt names; else repeat the results of the last request and its prompt."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    returned = [
        f'{part.model_response_str()} ({part.outcome})' for part in last.parts if isinstance(part, ToolReturnPart)
    ]
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if info.output_tools:
        return ['Here it is.', call('final_result', response='forty')]
    calls = [call('weather', city=city) for city in ('Rome', 'Oslo') for text in said if city in text]
    calls += [call('write_file', path='/a', content='b') for text in said if 'write' in text]
    return calls or ', '.join([*returned, *said])


@pytest.fixture
def agents() -> dict[str, Any]:
    model = ScriptedModel(then=answer)
    agent = create_deep_agent(model, interrupt_on={'write_file': True})
    return {'analyst': agent, 'writer': agent}


@pytest.fixture
async def client(served: Any) -> Any:
    async with served.client(await served.key('run', 'approve')) as client:
        yield client


async def ask(client: Any, *messages: Any, model: str = 'analyst', status: int = 200) -> Any:
    """Send messages in the format of Anthropic, and return the content of the response, or the error."""
    sent = {'model': model, 'max_tokens': 99, 'messages': [*messages], 'tools': DECLARED}
    response = await client.post('/v1/messages', json=sent)
    assert response.status_code == status, response.text
    return response.json().get('content') or response.json()['error']['message']


def user(*content: Any) -> dict[str, Any]:
    return {'role': 'user', 'content': [*content]}


def text(words: str) -> dict[str, Any]:
    return {'type': 'text', 'text': words}


def result(id: str, content: str = 'hot', **more: Any) -> dict[str, Any]:
    return {'type': 'tool_result', 'tool_use_id': id, 'content': content, **more}


async def test_result_may_be_followed_by_a_prompt(client: Any, served: Any) -> None:
    """The prompt continues on the paused version with the result, and the head of the conversation moves."""
    first = user(text('Rome'))
    asked = await ask(client, first)
    told = await ask(client, first, {'role': 'assistant', 'content': asked}, user(result(asked[0]['id']), text('And?')))

    assert told[0]['text'] == 'hot (success), And?'
    assert [(each.status, each.decided_by) for each in await served.store.approvals(status=None)] == [
        ('responded', 'ada')
    ]
    (conversation,) = await served.store.conversations()
    head = await served.state.agents['analyst'].load(conversation.head_id)
    assert (head.state, head.output) == ('complete', 'hot (success), And?')


async def test_failed_result_is_a_failure_of_the_call(client: Any) -> None:
    first = user(text('Rome'))
    asked = await ask(client, first)
    history = [first, {'role': 'assistant', 'content': asked}]
    told = await ask(client, *history, user(result(asked[0]['id'], 'no station', is_error=True)))
    later = await ask(client, *history, user(result(asked[0]['id'], 'no station', is_error=True), text('And?')))

    assert told[0]['text'] == '{"error":"no station"} (failed)'
    assert later[0]['text'] == '{"error":"no station"} (failed), And?'


async def test_a_call_without_a_result_is_named_and_stays_pending(client: Any) -> None:
    first = user(text('Rome and Oslo'))
    asked = await ask(client, first)
    said = {'role': 'assistant', 'content': asked}
    told = await ask(client, first, said, user(result(asked[0]['id'])), status=400)

    assert f'These calls have no result: {asked[1]["id"]}.' in told


async def test_a_decision_is_not_enough_beside_a_call_without_a_result(client: Any) -> None:
    first = user(text('Rome and write'))
    weather, approval = await ask(client, first)
    said = {'role': 'assistant', 'content': [weather, approval]}
    told = await ask(client, first, said, user(result(approval['id'], 'approve')), status=400)
    both = user(result(approval['id'], 'approve'), result(weather['id']))

    assert told == f'These calls have no result: {weather["id"]}. Send a result for each call of the answer.'
    assert 'hot (success)' in (await ask(client, first, said, both))[0]['text']


async def test_other_results_before_a_prompt_are_a_branch(client: Any, served: Any) -> None:
    """The inbox keeps the first result, and each branch has its own."""
    first = user(text('Rome'))
    asked = await ask(client, first)
    said = {'role': 'assistant', 'content': asked}
    id = asked[0]['id']
    told = [await ask(client, first, said, user(result(id, words), text('And?'))) for words in ('hot', 'cold')]
    alone = await ask(client, first, said, user(result(id, 'cold')))

    assert [each[0]['text'] for each in (*told, alone)] == [
        'hot (success), And?',
        'cold (success), And?',
        'cold (success)',
    ]
    assert [each.status for each in await served.store.approvals(status=None)] == ['responded', 'responded']


async def test_results_and_prompts_at_the_same_time_are_branches(client: Any, served: Any) -> None:
    first = user(text('Rome'))
    asked = await ask(client, first)
    said = {'role': 'assistant', 'content': asked}
    told: set[str] = set()

    async def follow_up(word: str) -> None:
        answers = await ask(client, first, said, user(result(asked[0]['id']), text(word)))
        told.add(answers[0]['text'])

    async with anyio.create_task_group() as group:
        for word in 'abc':
            group.start_soon(follow_up, word)
    assert told == {'hot (success), a', 'hot (success), b', 'hot (success), c'}
    assert len(await served.store.conversations()) == 1


async def test_a_call_has_one_result(client: Any) -> None:
    first = user(text('Rome'))
    asked = await ask(client, first)
    said = {'role': 'assistant', 'content': asked}
    id = asked[0]['id']
    told = await ask(client, first, said, user(result(id), result(id, 'cold')), status=400)

    assert told == f'The call {id} has two answers. Send one for each call.'


async def test_results_of_unknown_calls_are_part_of_a_new_history(client: Any, served: Any) -> None:
    """A call is unknown if it belongs to another agent, or to no response of this server."""
    first = user(text('Rome'))
    asked = await ask(client, first)
    history = [first, {'role': 'assistant', 'content': asked}, user(result(asked[0]['id']))]
    told = await ask(client, *history, model='writer')
    made: dict[str, Any] = {'type': 'tool_use', 'id': 'toolu_1', 'name': 'weather', 'input': {}}
    both: dict[str, Any] = {'role': 'assistant', 'content': [*asked, made]}
    other = await ask(client, first, both, user(result(asked[0]['id']), result('toolu_1', 'cold')))

    assert told[0]['text'] == 'hot (success), Continue with the results above.'
    assert other[0]['text'] == 'hot (success), cold (success), Continue with the results above.'
    assert len(await served.store.conversations()) == 3


async def test_result_with_an_id_that_this_server_never_gave_is_history(client: Any, served: Any) -> None:
    """A dialogue from another server continues as a new conversation with its calls and results."""
    made: dict[str, Any] = {'type': 'tool_use', 'id': 'toolu_1', 'name': 'weather', 'input': {}}
    told = await ask(
        client, user(text('Go')), {'role': 'assistant', 'content': [made]}, user(result('toolu_1', 'cold'))
    )

    assert told[0]['text'] == 'cold (success), Continue with the results above.'
    assert len(await served.store.conversations()) == 1


async def test_call_that_needs_a_decision_takes_no_plain_result(client: Any) -> None:
    """A client cannot supply the result of a call that a person has to decide on."""
    first = user(text('write'))
    pending = await ask(client, first)
    made: dict[str, Any] = {'type': 'tool_use', 'id': pending[0]['id'], 'name': 'weather', 'input': {}}
    told = await ask(client, first, {'role': 'assistant', 'content': [made]}, user(result(made['id'])), status=400)

    assert "of 'write_file' needs a decision" in told


async def test_decision_and_result_must_belong_to_one_response(client: Any) -> None:
    first, second = user(text('Rome')), user(text('write'))
    asked, pending = await ask(client, first), await ask(client, second)
    said: dict[str, Any] = {'role': 'assistant', 'content': [*asked, *pending]}
    told = await ask(client, first, said, user(result(asked[0]['id']), result(pending[0]['id'], 'approve')), status=400)

    said['content'][0] = {'type': 'tool_use', 'id': 'toolu_1', 'name': 'weather', 'input': {}}
    answers = user(result('toolu_1'), result(pending[0]['id'], 'approve'))
    unknown = await ask(client, first, said, answers, status=400)

    assert [told, unknown] == 2 * ['All decisions and results of a request must belong to one response.']


async def test_results_are_used_again_on_a_branch_when_their_run_is_forgotten(client: Any, served: Any) -> None:
    first = user(text('Rome'))
    asked = await ask(client, first)
    history = [first, {'role': 'assistant', 'content': asked}, user(result(asked[0]['id']))]
    told = await ask(client, *history)
    served.state.runs.clear_logs()
    again = await ask(client, *history)

    assert told == again
    assert len(await served.store.runs()) == 3
    assert len(await served.store.conversations()) == 1


def google(*parts: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    declared = [{'functionDeclarations': [{'name': 'weather'}]}]
    return {'contents': [{'role': role, 'parts': [part]} for role, part in parts], 'tools': declared}


async def generate(client: Any, *parts: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    response = await client.post('/v1beta/models/analyst:generateContent', json=google(*parts))
    assert response.status_code == 200, response.text
    return response.json()['candidates'][0]['content']['parts']


async def test_client_without_ids_is_found_by_its_dialogue(client: Any, served: Any) -> None:
    first = ('user', {'text': 'Rome'})
    (asked,) = await generate(client, first)
    del asked['functionCall']['id']
    returned = ('user', {'functionResponse': {'name': 'weather', 'response': {'result': 'hot'}}})
    (told,) = await generate(client, first, ('model', asked), returned)
    (later,) = await generate(client, first, ('model', asked), returned, ('model', told), ('user', {'text': 'And?'}))

    assert (told['text'], later['text']) == ('{"result":"hot"} (success)', 'And?')
    assert len(await served.store.conversations()) == 1

    for version in await served.store.versions():
        await served.store.delete(version.id)
    (rebuilt,) = await generate(client, first, ('model', asked), returned)
    assert rebuilt['text'] == '{"result":"hot"} (success), Continue with the results above.'

    (unknown,) = await generate(client, ('user', {'text': 'Other'}), ('model', asked), returned)
    assert unknown['text'] == rebuilt['text']


async def test_answer_by_a_schema_has_no_other_text(client: Any) -> None:
    """Text that the model writes beside its output would make the answer invalid. A string is JSON too."""
    sent: dict[str, Any] = {
        **google(('user', {'text': 'Weather?'})),
        'tools': [],
        'generationConfig': {'responseSchema': {'type': 'STRING'}},
    }
    response = await client.post('/v1beta/models/analyst:generateContent', json=sent)

    assert response.json()['candidates'][0]['content']['parts'] == [{'text': '"forty"'}]
