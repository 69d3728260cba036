"""Tools of clients: declarations, choices, and calls and results of the dialogue."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

from pydantic_deep.server.compat._client_tools import (
    ClientCall,
    ClientResult,
    calls_key,
    from_google_schema,
    parse_args,
    with_call_ids,
)
from pydantic_deep.server.compat._dialogue import Dialogue, to_model_messages
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import Wire, anthropic, google, openai

SCHEMA: dict[str, Any] = {'type': 'object', 'properties': {'city': {'type': 'string'}}}


def declared(*names: str) -> dict[Wire, dict[str, Any]]:
    """Return the options that declare functions."""
    return {
        openai: {'tools': [{'type': 'function', 'function': {'name': name, 'parameters': SCHEMA}} for name in names]},
        anthropic: {'tools': [{'name': name, 'input_schema': SCHEMA} for name in names]},
        google: {'tools': [{'functionDeclarations': [{'name': name, 'parameters': SCHEMA} for name in names]}]},
    }


def google_choice(mode: str, *names: str) -> dict[str, Any]:
    return {'toolConfig': {'functionCallingConfig': {'mode': mode, 'allowedFunctionNames': [*names]}}}


NONE: dict[Wire, dict[str, Any]] = {
    openai: {'tool_choice': 'none'},
    anthropic: {'tool_choice': {'type': 'none'}},
    google: google_choice('NONE'),
}
ANY: dict[Wire, dict[str, Any]] = {
    openai: {'tool_choice': 'required'},
    anthropic: {'tool_choice': {'type': 'any'}},
    google: google_choice('ANY'),
}
NAMED: dict[Wire, dict[str, Any]] = {
    openai: {'tool_choice': {'type': 'function', 'function': {'name': 'b'}}},
    anthropic: {'tool_choice': {'type': 'tool', 'name': 'b'}},
    google: google_choice('ANY', 'b'),
}


def test_functions_become_definitions(wire: Wire) -> None:
    tools = wire([('user', 'Hi')], **declared('a', 'b')[wire]).tools

    assert [(tool.name, tool.parameters_json_schema) for tool in tools.tools or ()] == [('a', SCHEMA), ('b', SCHEMA)]
    assert tools.choice is None


def test_request_without_functions_declares_none(wire: Wire) -> None:
    """`approval_required` is the server's own, and clients may repeat it."""
    assert wire([('user', 'Hi')]).tools.tools is None
    assert wire([('user', 'Hi')], **declared('approval_required')[wire]).tools.tools is None


def test_choice_of_functions(wire: Wire) -> None:
    def tools_of(choice: dict[Wire, dict[str, Any]]) -> tuple[list[str], object]:
        tools = wire([('user', 'Hi')], **declared('a', 'b')[wire], **choice[wire]).tools
        return [tool.name for tool in tools.tools or ()], tools.choice

    assert tools_of(NONE) == ([], None)
    assert tools_of(ANY) == (['a', 'b'], ['a', 'b'])
    assert tools_of(NAMED) == (['b'] if wire is google else ['a', 'b'], ['b'])


@pytest.mark.parametrize(('mode', 'choice'), [('auto', None), ('required', ['b'])])
def test_allowed_tools_of_openai_restrict_the_functions(mode: str, choice: list[str] | None) -> None:
    allowed = {'mode': mode, 'tools': [{'type': 'function', 'function': {'name': 'b'}}]}
    given = {'tool_choice': {'type': 'allowed_tools', 'allowed_tools': allowed}}
    tools = openai([('user', 'Hi')], **declared('a', 'b')[openai], **given).tools

    assert ([tool.name for tool in tools.tools or ()], tools.choice) == (['b'], choice)


def test_choice_of_an_undeclared_function_is_refused(wire: Wire) -> None:
    with pytest.raises(ServerError, match="requires 'b', and the request does not declare it"):
        wire([('user', 'Hi')], **declared('a')[wire], **NAMED[wire])
    with pytest.raises(ServerError, match='requires a function, and the request does not declare it'):
        wire([('user', 'Hi')], **ANY[wire])


def test_two_functions_of_one_name_are_refused(wire: Wire) -> None:
    with pytest.raises(ServerError, match="two functions with the name 'a'"):
        wire([('user', 'Hi')], **declared('a', 'a')[wire])


def test_parallel_calls_can_be_turned_off() -> None:
    choice = {'tool_choice': {'type': 'auto', 'disable_parallel_tool_use': True}}
    by_anthropic = anthropic([('user', 'Hi')], **declared('a')[anthropic], **choice)
    by_openai = openai([('user', 'Hi')], **declared('a')[openai], parallel_tool_calls=False)

    assert by_anthropic.model_settings.get('parallel_tool_calls') is False
    assert by_openai.model_settings.get('parallel_tool_calls') is False


def called(*, with_ids: bool = True) -> dict[Wire, dict[str, Any]]:
    """Return requests with a call and its result."""
    ids: dict[str, Any] = {'id': 'c'} if with_ids else {}
    function = {'name': 'weather', 'arguments': '{"city": "Rome"}'}
    asked = {'type': 'tool_use', 'id': 'c', 'name': 'weather', 'input': {'city': 'Rome'}}
    failed = {'type': 'tool_result', 'tool_use_id': 'c', 'content': 'hot', 'is_error': True}
    return {
        openai: {
            'messages': [
                {'role': 'user', 'content': 'Weather?'},
                {'role': 'assistant', 'tool_calls': [{'id': 'c', 'type': 'function', 'function': function}]},
                {'role': 'tool', 'tool_call_id': 'c', 'content': 'hot'},
            ]
        },
        anthropic: {
            'messages': [
                {'role': 'user', 'content': 'Weather?'},
                {'role': 'assistant', 'content': [asked]},
                {'role': 'user', 'content': [failed]},
            ]
        },
        google: {
            'contents': [
                {'role': 'user', 'parts': [{'text': 'Weather?'}]},
                {'role': 'model', 'parts': [{'functionCall': {**ids, 'name': 'weather', 'args': {'city': 'Rome'}}}]},
                {
                    'role': 'user',
                    'parts': [{'functionResponse': {**ids, 'name': 'weather', 'response': {'out': 'hot'}}}],
                },
            ]
        },
    }


def test_results_that_follow_the_last_calls_are_read(wire: Wire) -> None:
    found = wire([], **called()[wire])

    (result,) = found.results
    assert (result.id, result.name, result.content) == ('c', 'weather', {'out': 'hot'} if wire is google else 'hot')
    assert result.is_error == (wire is anthropic)
    assert (found.prompt, found.decisions) == ((), {})


def test_unknown_dialogue_becomes_a_history_with_calls_and_results(wire: Wire) -> None:
    (request, response, last) = to_model_messages(wire([], **called(with_ids=False)[wire]))

    assert isinstance(request, ModelRequest)
    assert isinstance(response, ModelResponse)
    (asked,), (returned,) = response.parts, last.parts
    assert isinstance(asked, ToolCallPart)
    assert isinstance(returned, ToolReturnPart)
    assert asked.args == {'city': 'Rome'}
    assert returned.tool_call_id == asked.tool_call_id
    assert returned.outcome == ('failed' if wire is anthropic else 'success')


def test_result_without_its_call_becomes_text() -> None:
    result = ClientResult(id='x', name='weather', content={'degrees': 40})
    (message,) = to_model_messages(Dialogue(results=[result]))

    (part,) = message.parts
    assert isinstance(part, UserPromptPart)
    assert part.content == ['weather: {"degrees": 40}']


@pytest.mark.parametrize(
    ('wire', 'more'),
    [
        (anthropic, {'content': [{'type': 'text', 'text': 'hot'}, {'type': 'image'}]}),
        (google, {'parts': [{'inlineData': {'mimeType': 'image/png', 'data': ''}}]}),
    ],
)
def test_new_result_with_a_file_is_refused(wire: Wire, more: dict[str, Any]) -> None:
    request = called()[wire]
    (messages,) = request.values()
    (result,) = messages[-1].get('content') or [messages[-1]['parts'][0]['functionResponse']]
    result.update(more)

    with pytest.raises(ServerError, match="The result of 'weather' contains more than text"):
        wire([], **request)


def test_results_without_ids_answer_calls_of_their_name_in_order() -> None:
    calls = [ClientCall(id=id, name=name, args={}) for id, name in (('1', 'a'), ('2', 'b'), ('3', 'a'))]
    results = [ClientResult(id=None, name=name, content='') for name in ('a', 'a', 'c')]

    assert [result.id for result in with_call_ids(results, calls)] == ['1', '3', None]
    assert [result.id for result in with_call_ids([ClientResult(id='1', name='a', content='')], calls)] == ['1']


@pytest.mark.parametrize(
    ('one', 'other'),
    [({'a': 1, 'b': [2.0]}, {'b': [2], 'a': 1.0}), ('x  y', 'xy'), ({'a': None}, {'a': None})],
)
def test_identity_of_results_ignores_how_clients_write_json(one: JsonValue, other: JsonValue) -> None:
    first, second = (calls_key([], [ClientResult(id=None, name='a', content=each)]) for each in (one, other))

    assert first == second
    assert calls_key([], []) == []


def test_arguments_that_are_no_object_are_kept() -> None:
    assert parse_args('') == {}
    assert parse_args('{"a": 1}') == {'a': 1}
    assert parse_args('{"a": ') == {'INVALID_JSON': '{"a": '}
    assert parse_args('[1]') == {'INVALID_JSON': '[1]'}
    # No store and no provider can encode these again.
    for value in ('"\\ud800"', 'NaN', '1e999', '[' * 5000 + ']' * 5000):
        assert parse_args(f'{{"a": {value}}}') == {'INVALID_JSON': f'{{"a": {value}}}'}


def test_schema_of_google_becomes_json_schema() -> None:
    schema: dict[str, JsonValue] = {
        'type': 'OBJECT',
        'properties': {
            'tags': {'type': 'ARRAY', 'items': {'type': 'STRING'}, 'minItems': '1'},
            'size': {'anyOf': [{'type': 'INTEGER'}, {'type': 'NUMBER'}], 'description': 'How large.'},
            'none': {'type': 'STRING', 'nullable': True},
            'odd': True,
        },
        'propertyOrdering': ['tags'],
        'maxProperties': 'many',
    }

    assert from_google_schema(schema) == {
        'type': 'object',
        'properties': {
            'tags': {'type': 'array', 'items': {'type': 'string'}, 'minItems': 1},
            'size': {'anyOf': [{'type': 'integer'}, {'type': 'number'}], 'description': 'How large.'},
            'none': {'type': ['string', 'null']},
            'odd': True,
        },
        'maxProperties': 'many',
    }


OUTPUT: dict[str, Any] = {'type': 'object', 'properties': {'n': {'type': 'integer'}}}


@pytest.mark.parametrize(
    ('wire', 'given', 'schema'),
    [
        (openai, {}, None),
        (openai, {'response_format': {'type': 'text'}}, None),
        (openai, {'response_format': {'type': 'json_object'}}, {'type': 'object'}),
        (
            openai,
            {'response_format': {'type': 'json_schema', 'json_schema': {'description': 'A number.', 'schema': OUTPUT}}},
            {'description': 'A number.', **OUTPUT},
        ),
        (anthropic, {'output_config': {'effort': 'low'}}, None),
        (anthropic, {'output_config': {'format': {'type': 'json_schema', 'schema': OUTPUT}}}, OUTPUT),
        (anthropic, {'output_format': {'type': 'json_schema', 'schema': OUTPUT}}, OUTPUT),
        (google, {'generationConfig': {'responseMimeType': 'application/json'}}, {'type': ['object', 'array']}),
        (google, {'generationConfig': {'responseSchema': {'type': 'ARRAY'}}}, {'type': 'array'}),
        (google, {'generationConfig': {'responseJsonSchema': OUTPUT}}, OUTPUT),
        (google, {'generationConfig': {'_responseJsonSchema': OUTPUT}}, OUTPUT),
    ],
)
def test_format_of_the_answer_is_a_schema(wire: Wire, given: dict[str, Any], schema: dict[str, Any] | None) -> None:
    assert wire([('user', 'Hi')], **given).output_schema == schema


def test_threads_of_anthropic_are_refused_as_its_client_expects() -> None:
    with pytest.raises(ServerError, match='send the whole dialogue') as refused:
        anthropic([('user', 'Hi')], thread={'type': 'create'})
    assert refused.value.facts['error_code'] == 'thread_unsupported_request'
