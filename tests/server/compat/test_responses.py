"""Requests in the format of OpenAI's Responses API."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_ai import BinaryContent

from pydantic_deep.approvals import Approve, Deny
from pydantic_deep.server.compat._dialogue import Dialogue, DialogueMessage
from pydantic_deep.server.compat._response_requests import ResponseRequest
from pydantic_deep.server.compat._responses import last_run_id, parse_response_request
from pydantic_deep.server.http._errors import ServerError
from tests.server.compat.conftest import IMAGE, PIXEL

RUN = '01a21fb9-925c-7534-aa71-ba79880fdcd6'
OWN: dict[str, Any] = {'role': 'assistant', 'id': f'msg_{RUN}_0', 'content': 'Hello'}
SAID: dict[str, Any] = {'role': 'user', 'content': 'Hi'}


def request(*items: Any, **options: Any) -> ResponseRequest:
    """Return a request with these items, or with the input in the options."""
    return ResponseRequest.model_validate({'model': 'a', 'input': [*items], **options})


def parse(*items: Any, is_rest: bool = False, **options: Any) -> Dialogue:
    return parse_response_request(request(*items, **options), is_rest=is_rest)


def test_text_is_the_prompt_and_instructions_are_the_system_text() -> None:
    """System and developer messages are added to the instructions."""
    developer = {'role': 'developer', 'content': [{'type': 'input_text', 'text': 'Be kind.'}]}
    found = parse(input='Hi', instructions='Be brief.')
    assert (found.system, found.prompt) == ('Be brief.', ('Hi',))
    assert parse(developer, SAID, instructions='Be brief.').system == 'Be brief.\n\nBe kind.'


def test_settings_are_mapped_to_names_of_pydantic_ai() -> None:
    """The effort `none` disables thinking; without an effort the agent decides."""
    options: dict[str, Any] = {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_output_tokens': 9,
        'parallel_tool_calls': False,
        'reasoning': {'effort': 'low', 'summary': 'auto'},
        'text': {'verbosity': 'low'},
    }
    assert parse(SAID, **options).model_settings == {
        'temperature': 0.5,
        'top_p': 0.9,
        'max_tokens': 9,
        'parallel_tool_calls': False,
        'thinking': 'low',
        'openai_text_verbosity': 'low',
    }
    assert parse(SAID, reasoning={'effort': 'none'}).model_settings == {'thinking': False}
    assert parse(SAID, reasoning={'summary': 'auto'}).model_settings == {}


@pytest.mark.parametrize(
    ('given', 'match'),
    [
        ({'store': False}, 'stores every turn'),
        ({'prompt': {'id': 'pmpt_1'}}, 'Prompt templates'),
        ({'top_logprobs': 2}, '`top_logprobs`'),
        ({'moderation': {'model': 'omni-moderation'}}, '`moderation` is set'),
        ({'include': ['message.output_text.logprobs']}, '`message.output_text.logprobs` in `include`'),
        ({'max_tool_calls': 1}, '`max_tool_calls`'),
        ({'tools': [{'type': 'web_search'}]}, "'web_search'"),
        ({'text': {'format': {'type': 'json_schema', 'name': 'x'}}}, 'no schema'),
    ],
)
def test_unsupported_options_are_refused_by_name(given: dict[str, Any], match: str) -> None:
    """An option that would be without effect is refused, with its reason."""
    with pytest.raises(ServerError, match=match):
        parse(SAID, **given)


@pytest.mark.parametrize(
    'given',
    [
        {'store': True, 'top_logprobs': 0, 'truncation': 'auto', 'service_tier': 'flex', 'made_up': 1},
        {'text': {'format': {'type': 'text'}}, 'include': ['reasoning.encrypted_content']},
        {'text': {}},
    ],
)
def test_options_without_effect_are_accepted(given: dict[str, Any]) -> None:
    """Fields that only matter at OpenAI are ignored."""
    found = parse(SAID, **given)
    assert (found.prompt, found.model_settings, found.output_schema) == (('Hi',), {}, None)


@pytest.mark.parametrize(
    ('part', 'piece'),
    [
        ({'type': 'input_image', 'image_url': f'data:image/png;base64,{PIXEL}', 'detail': 'low'}, IMAGE),
        ({'type': 'input_file', 'file_data': f'data:image/png;base64,{PIXEL}', 'filename': 'a.png'}, IMAGE),
        ({'type': 'input_file', 'file_data': PIXEL, 'filename': 'a.png'}, IMAGE),
        ({'type': 'input_file', 'file_url': f'data:image/png;base64,{PIXEL}'}, IMAGE),
        (
            {'type': 'input_audio', 'input_audio': {'data': 'AAAA', 'format': 'wav'}},
            BinaryContent(b'\0\0\0', media_type='audio/wav'),
        ),
        ({'type': 'refusal', 'refusal': 'No.'}, 'No.'),
    ],
)
def test_files_and_texts_are_part_of_the_prompt(part: dict[str, Any], piece: object) -> None:
    """Images, files and recordings are sent inline."""
    assert parse({'role': 'user', 'content': [part]}).prompt == (piece,)


@pytest.mark.parametrize(
    ('part', 'match'),
    [
        ({'type': 'input_image', 'file_id': 'file-1'}, 'by id'),
        ({'type': 'input_file', 'file_id': 'file-1'}, 'by id'),
        ({'type': 'input_file', 'file_data': PIXEL}, 'media type'),
        ({'type': 'input_image', 'image_url': 'gs://example/a.png'}, 'not fetched'),
    ],
)
def test_unreadable_file_is_refused(part: dict[str, Any], match: str) -> None:
    """A file of which only an address or an id was sent is refused."""
    with pytest.raises(ServerError, match=match):
        parse({'role': 'user', 'content': [part]})


@pytest.mark.parametrize(
    ('items', 'run_id'),
    [
        ([SAID, OWN, SAID], RUN),
        ([SAID, {'type': 'item_reference', 'id': f'rs_{RUN}_0'}, {'role': 'system', 'content': 'x'}, SAID], RUN),
        ([{'id': f'msg_{RUN}_12'}, SAID], RUN),
        ([SAID, OWN, SAID, {'role': 'assistant', 'content': 'Plain'}, SAID], None),
        ([OWN, {'type': 'mcp_approval_request', 'id': 'mcpr_1'}, SAID], RUN),
        ([OWN, SAID, {'type': 'mcp_approval_request', 'id': 'mcpr_1'}, SAID], None),
        ([{**OWN, 'id': 'msg_67b'}, SAID], None),
        ([SAID], None),
    ],
)
def test_the_last_item_of_the_assistant_names_the_run(items: list[Any], run_id: str | None) -> None:
    """Only the last item counts: what follows an item without an id of ours is not known."""
    assert last_run_id(request(*items)) == run_id
    assert last_run_id(request(input='Hi')) is None


def test_items_before_the_last_one_of_a_response_are_not_read() -> None:
    """The server has its own history, so an item that it cannot read does not matter there."""
    unreadable = {'role': 'user', 'content': [{'type': 'input_image', 'file_id': 'file-1'}]}
    found = parse(unreadable, OWN, SAID, is_rest=True)
    assert (found.messages, found.prompt) == ([], ('Hi',))


def test_other_messages_of_the_assistant_are_refused_beside_an_id() -> None:
    """A request names what it continues, or contains it."""
    with pytest.raises(ServerError, match='messages of the assistant'):
        parse(SAID, {'role': 'assistant', 'content': 'Plain'}, SAID, is_rest=True)


def test_decisions_follow_the_last_item_of_the_assistant() -> None:
    """Earlier ones were answered before; the prefix of an id may be missing."""
    earlier = {'type': 'mcp_approval_response', 'approval_request_id': 'mcpr_a-0', 'approve': True}
    asked = {'type': 'item_reference', 'id': 'mcpr_a-1'}
    answers = [
        {'type': 'mcp_approval_response', 'approval_request_id': 'mcpr_a-1', 'approve': True},
        {'type': 'mcp_approval_response', 'approval_request_id': 'mcpr_a-2', 'approve': False},
        {'type': 'mcp_approval_response', 'approval_request_id': 'a-3', 'approve': False, 'reason': 'no'},
    ]
    found = parse(SAID, earlier, asked, *answers)
    assert found.decisions == {'a-1': Approve(), 'a-2': Deny(), 'a-3': Deny('no')}
    assert found.messages == [DialogueMessage(role='user', content=('Hi',))]


def test_calls_and_results_of_functions_are_part_of_the_dialogue() -> None:
    """A result has the name of its call, and consists of text."""
    called = {'type': 'function_call', 'call_id': 'c1', 'name': 'look', 'arguments': '{"at": 1}'}
    output = {'type': 'function_call_output', 'call_id': 'c1', 'output': [{'type': 'input_text', 'text': 'blue'}]}
    found = parse(SAID, {'type': 'reasoning', 'id': 'rs_1', 'summary': []}, called, output)
    [result] = found.results
    assert (result.id, result.name, result.content) == ('c1', 'look', 'blue')
    assert [call.name for call in found.messages[-1].calls] == ['look']
    image = {'type': 'input_image', 'image_url': f'data:image/png;base64,{PIXEL}'}
    with pytest.raises(ServerError, match='more than text'):
        parse(SAID, called, {**output, 'output': [image]})


TOOLS = [{'type': 'function', 'name': name, 'parameters': {'type': 'object'}} for name in ('a', 'b')]


@pytest.mark.parametrize(
    ('choice', 'names', 'forced'),
    [
        (None, ['a', 'b'], None),
        ('required', ['a', 'b'], ['a', 'b']),
        ({'type': 'function', 'name': 'b'}, ['a', 'b'], ['b']),
        ({'type': 'allowed_tools', 'mode': 'auto', 'tools': [{'type': 'function', 'name': 'a'}]}, ['a'], None),
        ({'type': 'allowed_tools', 'mode': 'required', 'tools': [{'type': 'function', 'name': 'a'}]}, ['a'], ['a']),
        ('none', [], None),
    ],
)
def test_functions_and_the_choice_are_read(choice: Any, names: list[str], forced: list[str] | None) -> None:
    """The choice concerns the client's functions only."""
    tools = parse(SAID, tools=TOOLS, tool_choice=choice).tools
    assert ([tool.name for tool in tools.tools or ()], tools.choice) == (names, forced)


def test_the_agent_itself_is_accepted_as_an_mcp_server() -> None:
    """Clients handle approvals of declared MCP servers only, and the agent's name is the label of its requests."""
    assert parse(SAID, tools=[{'type': 'mcp', 'server_label': 'a', 'server_url': 'https://a'}]).tools.tools is None
    with pytest.raises(ServerError, match="'mcp'"):
        parse(SAID, tools=[{'type': 'mcp', 'server_label': 'b', 'server_url': 'https://b'}])


@pytest.mark.parametrize(
    ('format', 'schema'),
    [
        ({'type': 'json_object'}, {'type': 'object'}),
        ({'type': 'json_schema', 'name': 'x', 'schema': {'type': 'array'}}, {'type': 'array'}),
        (
            {'type': 'json_schema', 'name': 'x', 'schema': {'type': 'array'}, 'description': 'All.'},
            {'type': 'array', 'description': 'All.'},
        ),
    ],
)
def test_the_format_of_the_answer_is_a_schema(format: dict[str, Any], schema: dict[str, Any]) -> None:
    """The description is part of the schema that the model receives."""
    assert parse(SAID, text={'format': format}).output_schema == schema


@pytest.mark.parametrize('item', ['Hi', {'type': 'computer_call_output'}, {'content': 'Hi'}])
def test_unknown_items_are_invalid(item: Any) -> None:
    """Items of tools that only OpenAI runs are refused."""
    with pytest.raises(ValidationError):
        request(item)


def test_the_conversation_and_the_session_are_named_in_two_ways() -> None:
    """A conversation is an id or an object; the session is metadata or the user."""
    assert request(conversation='conv_1').conversation_id == 'conv_1'
    assert request(conversation={'id': 'conv_1'}).conversation_id == 'conv_1'
    assert request(user='u').session_id == 'u'
    assert request(safety_identifier='u').session_id == 'u'
    assert request(user='u', metadata={'session_id': 's'}).session_id == 's'
