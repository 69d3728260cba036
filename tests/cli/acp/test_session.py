"""Turns of a session: updates, permissions, commands, modes and cancellation."""

from __future__ import annotations

import base64
import os
import re
import sys
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from acp import RequestError
from acp.helpers import (
    audio_block,
    embedded_blob_resource,
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    text_block,
)
from acp.schema import RequestPermissionResponse, StopReason
from inline_snapshot import snapshot
from pydantic_ai import RunCancelled, UserError
from pydantic_ai.exceptions import ModelConnectionError, ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.cli.acp._cancellation import Cancellation
from pydantic_deep.cli.acp._prompts import EditorPrompt
from pydantic_deep.cli.acp._session import EditorSession, stop_reason
from pydantic_deep.cli.turn._runtime import Extras
from pydantic_deep.mcp import McpServer
from pydantic_deep.skills import Skills
from pydantic_deep.store import open_store
from pydantic_deep.streaming import EndEvent, ErrorEvent
from pydantic_deep.testing import ScriptedModel, call
from tests.cli.acp.conftest import Connect, FakeEditor, Stalled
from tests.turn.cancellation import Interruption

MCP_SERVER = Path(__file__).parents[2] / 'mcp/fixture_server.py'
PLAN = [{'content': 'Write it', 'status': 'in_progress'}]
WRITE = call('write_file', path='/new.txt', content='new\n')
WRITE_TWICE = call('write_file', path='/twice.txt', content='two\n')
EDIT = call('edit_file', path='/poem.txt', old_string='violet', new_string='lily')
READ = call('read_file', path='poem.txt', offset=2)
PIXEL = base64.b64encode(b'\x89PNG\r\n\x1a\n').decode()
IMAGE = image_block(PIXEL, 'image/png')
LINK = resource_link_block('poem.txt', 'file:///poem.txt')
EMBEDDED = resource_block(embedded_text_resource('file:///a.py', '@decorator\n'))


def shown(editor: FakeEditor, work: Path) -> list[dict[str, Any]]:
    """Return the updates of a turn as JSON, without the directory of the test."""
    dumped = [update.model_dump(mode='json', by_alias=True, exclude_none=True) for _, update in editor.updates]
    return [_without(update, str(work)) for update in dumped if update['sessionUpdate'] != 'available_commands_update']


def _without(value: Any, directory: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(item, directory) for key, item in cast('dict[str, Any]', value).items()}
    if isinstance(value, list):
        return [_without(item, directory) for item in cast('list[Any]', value)]
    return value.replace(directory, '/project') if isinstance(value, str) else value


def contents(model: ScriptedModel, request: int = 0) -> list[Any]:
    """Return the content of the prompts of a request."""
    parts = [part for message in model.requests[request].messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, UserPromptPart)]


async def test_a_turn_is_sent_as_updates(connect: Connect, work: Path) -> None:
    """A turn sends its plan, its calls with titles, locations and diffs, its thoughts and its answer, in their order."""
    model = ScriptedModel(
        call('write_todos', todos=PLAN), [ThinkingPart('Hm.'), READ], WRITE, call('ls', path='/nowhere'), 'Done.'
    )
    async with connect(model) as editor:
        session = await editor.open(work)
        editor.options = ['allow']
        assert (await editor.prompt(session, 'Write it.')).stop_reason == 'end_turn'
        assert shown(editor, work) == snapshot(
            [
                {
                    'entries': [{'content': 'Write it', 'priority': 'medium', 'status': 'in_progress'}],
                    'sessionUpdate': 'plan',
                },
                {
                    'content': {'text': 'Hm.', 'type': 'text'},
                    'sessionUpdate': 'agent_thought_chunk',
                },
                {
                    'toolCallId': 'call-2',
                    'title': 'read_file poem.txt',
                    'kind': 'read',
                    'status': 'in_progress',
                    'locations': [{'path': '/project/poem.txt', 'line': 2}],
                    'rawInput': {'path': 'poem.txt', 'offset': 2},
                    'sessionUpdate': 'tool_call',
                },
                {
                    'toolCallId': 'call-2',
                    'status': 'completed',
                    'content': [
                        {
                            'content': {
                                'text': """\
```
2→violet
```\
""",
                                'type': 'text',
                            },
                            'type': 'content',
                        }
                    ],
                    'sessionUpdate': 'tool_call_update',
                },
                {
                    'toolCallId': 'call-3',
                    'title': 'write_file /new.txt',
                    'kind': 'edit',
                    'status': 'in_progress',
                    'content': [{'path': '/project/new.txt', 'newText': 'new\n', 'type': 'diff'}],
                    'locations': [{'path': '/project/new.txt'}],
                    'rawInput': {'path': '/new.txt', 'content': 'new\n'},
                    'sessionUpdate': 'tool_call',
                },
                {'toolCallId': 'call-3', 'status': 'pending', 'sessionUpdate': 'tool_call_update'},
                {'toolCallId': 'call-3', 'status': 'in_progress', 'sessionUpdate': 'tool_call_update'},
                {
                    'toolCallId': 'call-3',
                    'status': 'completed',
                    'sessionUpdate': 'tool_call_update',
                },
                {
                    'toolCallId': 'call-4',
                    'title': 'ls /nowhere',
                    'kind': 'read',
                    'status': 'in_progress',
                    'locations': [{'path': '/project/nowhere'}],
                    'rawInput': {'path': '/nowhere'},
                    'sessionUpdate': 'tool_call',
                },
                {
                    'toolCallId': 'call-4',
                    'status': 'failed',
                    'content': [
                        {
                            'content': {
                                'text': """\
```
/nowhere does not exist. / has new.txt, poem.txt.
```\
""",
                                'type': 'text',
                            },
                            'type': 'content',
                        }
                    ],
                    'sessionUpdate': 'tool_call_update',
                },
                {
                    'content': {'text': 'Done.', 'type': 'text'},
                    'sessionUpdate': 'agent_message_chunk',
                },
            ]
        )
    assert (work / 'new.txt').read_text() == 'new\n'


async def test_the_parts_of_a_prompt_reach_the_model(connect: Connect, work: Path) -> None:
    """Texts, links and embedded texts become one text, in their order; images follow it."""
    model = ScriptedModel('Seen.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.connection.prompt(
            session_id=session,
            prompt=[
                text_block('Compare '),
                resource_link_block('poem.txt', 'file:///poem.txt'),
                resource_block(embedded_text_resource('file:///a.py', '@decorator\n')),
                image_block(PIXEL, 'image/png'),
                resource_block(embedded_blob_resource('file:///b.png', PIXEL, mime_type='image/png')),
            ],
        )
    [[text, *images]] = contents(model)
    assert text.content == ('Compare [@poem.txt](file:///poem.txt)\n<file path="file:///a.py">\n@decorator\n\n</file>')
    assert [image.media_type for image in images] == ['image/png', 'image/png']
    assert isinstance(images[0], BinaryContent)


async def test_a_prompt_can_be_an_image_alone(connect: Connect, work: Path) -> None:
    """The model gets the image without an empty text, which providers refuse."""
    model = ScriptedModel('Seen.')
    async with connect(model, plan_mode=False) as editor:
        session = await editor.open(work)
        await editor.connection.prompt(session_id=session, prompt=[text_block(' '), IMAGE])
        [listed] = (await editor.connection.list_sessions()).sessions
        await editor.prompt(session, '/log')
        assert listed.title == '[media]'
        assert '[media]' in editor.text()
    [[image]] = contents(model)
    assert isinstance(image, BinaryContent)


@pytest.mark.parametrize('mode', ['plan', 'ask'])
async def test_an_image_alone_has_the_mode_of_the_session(connect: Connect, work: Path, mode: str) -> None:
    """The mode of a prompt is in its text, so one is sent."""
    model = ScriptedModel('Seen.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.connection.set_session_mode(session_id=session, mode_id=mode)
        await editor.connection.prompt(session_id=session, prompt=[IMAGE])
    [[text, image]] = contents(model)
    assert text.content == 'See the image.'
    assert isinstance(image, BinaryContent)


@pytest.mark.parametrize(
    ('block', 'message'),
    [
        (text_block('  '), 'The prompt is empty. Write what the agent shall do.'),
        (audio_block(PIXEL, 'audio/wav'), 'Audio cannot be sent to the agent. Send a text.'),
        (image_block(PIXEL, 'image/tiff'), 'the image is image/tiff, and no image. Send one of: '),
        (image_block('?', 'image/png'), 'the image is not valid base64. Encode its bytes.'),
        (
            image_block(base64.b64encode(bytes(5_000_001)).decode(), 'image/png'),
            'the image has 5,000,001 bytes; at most 5,000,000 can be sent. Send a smaller image.',
        ),
        (
            resource_block(embedded_blob_resource('file:///b.bin', PIXEL)),
            'file:///b.bin is of an unknown type, and no image. Send one of: ',
        ),
    ],
)
async def test_a_prompt_that_cannot_be_sent_is_refused(connect: Connect, work: Path, block: Any, message: str) -> None:
    """An empty prompt, or one with a part that models do not accept, is an error of its parameters."""
    async with connect(ScriptedModel()) as editor:
        session = await editor.open(work)
        with pytest.raises(RequestError, match=re.escape(message)) as caught:
            await editor.connection.prompt(session_id=session, prompt=[block])
    assert caught.value.code == -32602


async def test_a_permission_request_shows_the_call_and_the_diff(connect: Connect, work: Path) -> None:
    """A request has the diff with its context, all other arguments, and the options once, always and reject."""
    async with connect(ScriptedModel(EDIT, 'Done.')) as editor:
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Fix it.')
        [(tool_call, options)] = editor.requests
        dumped = _without(tool_call.model_dump(mode='json', exclude_none=True), str(work))
        assert dumped == snapshot(
            {
                'tool_call_id': 'call-1',
                'kind': 'edit',
                'status': 'pending',
                'title': 'edit_file /poem.txt',
                'content': [
                    {
                        'path': '/project/poem.txt',
                        'old_text': """\
rose
violet
""",
                        'new_text': """\
rose
lily
""",
                        'type': 'diff',
                    },
                    {
                        'content': {
                            'text': """\
```
path: /poem.txt
old_string: violet
new_string: lily
```\
""",
                            'type': 'text',
                        },
                        'type': 'content',
                    },
                ],
                'locations': [{'path': '/project/poem.txt'}],
                'raw_input': {'path': '/poem.txt', 'old_string': 'violet', 'new_string': 'lily'},
            }
        )
        assert [(option.option_id, option.name, option.kind) for option in options] == snapshot(
            [
                ('allow', 'Allow', 'allow_once'),
                ('always', 'Always allow edit_file in this session', 'allow_always'),
                ('reject', 'Reject', 'reject_once'),
            ]
        )
    assert (work / 'poem.txt').read_text() == 'rose\nlily\n'


async def test_always_applies_to_later_calls_of_the_tool_in_the_session(connect: Connect, work: Path) -> None:
    """After `always`, calls of the same tool run without a request, and calls of other tools do not."""
    async with connect(ScriptedModel(WRITE, WRITE_TWICE, EDIT, 'Done.', WRITE, 'Again.')) as editor:
        session = await editor.open(work)
        editor.options = ['always', 'reject']
        await editor.prompt(session, 'Write.')
        await editor.prompt(session, 'Write again.')
        assert [request.title for request, _ in editor.requests] == ['write_file /new.txt', 'edit_file /poem.txt']
    assert (work / 'twice.txt').exists()
    assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'


async def test_a_rejected_call_does_not_run_and_the_model_is_informed(connect: Connect, work: Path) -> None:
    """A rejected call fails with the standard reason, and the turn continues."""
    async with connect(ScriptedModel(WRITE, 'As you wish.')) as editor:
        session = await editor.open(work)
        editor.options = ['reject']
        assert (await editor.prompt(session, 'Write.')).stop_reason == 'end_turn'
        assert editor.text() == 'As you wish.'
        assert editor.of_kind('tool_call_update')[-1].status == 'failed'
    assert not (work / 'new.txt').exists()


async def test_an_option_that_was_not_offered_runs_nothing(connect: Connect, work: Path) -> None:
    """An unknown option is an error, not an approval."""
    async with connect(ScriptedModel(WRITE)) as editor:
        session = await editor.open(work)
        editor.options = ['yes']
        with pytest.raises(RequestError, match="answered a permission request with 'yes', which was not offered"):
            await editor.prompt(session, 'Write.')
    assert not (work / 'new.txt').exists()


@pytest.mark.parametrize(
    ('failure', 'reason'),
    [
        (RequestError(-32601, 'Method not found'), 'Method not found'),
        (RequestPermissionResponse.model_construct(), 'its response is invalid'),
    ],
)
async def test_an_editor_that_does_not_ask_runs_nothing(
    connect: Connect, work: Path, caplog: pytest.LogCaptureFixture, failure: Any, reason: str
) -> None:
    """An editor that refuses to ask, or responds otherwise than the protocol says, is an error with a sentence."""

    async def answer(*_: object) -> Any:
        if isinstance(failure, Exception):
            raise failure
        return failure

    async with connect(ScriptedModel(WRITE, 'Continued.')) as editor:
        session = await editor.open(work)
        editor.answer = answer
        with pytest.raises(RequestError) as caught:
            await editor.prompt(session, 'Write.')
        assert str(caught.value) == (
            f'The editor did not ask for permission: {reason}. No call has run. Report this to the authors of the editor.'
        )
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'
    assert not (work / 'new.txt').exists()
    assert 'A request failed' not in caplog.text


async def test_calls_of_subagents_are_named_and_ask_for_permission(connect: Connect, work: Path) -> None:
    """A call of a subagent has its name in the title, and the request refers to the call that the editor knows."""
    task = call('task', subagent='general-purpose', description='Write it')
    async with connect(ScriptedModel(task, WRITE, 'Written.', 'Done.')) as editor:
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Write.')
        [(request, _)] = editor.requests
        started = {update.tool_call_id: update.title for update in editor.of_kind('tool_call')}
        assert started[request.tool_call_id] == request.title == 'general-purpose › write_file /new.txt'
        assert editor.text() == 'Done.'
        ends = [
            update.status for update in editor.of_kind('tool_call_update') if update.status in ('completed', 'failed')
        ]
        assert ends == ['completed', 'completed']


async def test_a_question_is_a_request_with_the_choices(connect: Connect, work: Path) -> None:
    """Each suggested answer is an option. Without choices, or if declined, the agent decides itself."""
    asks = call('ask_user', question='Which colour?', choices=['red\x1b', 'blue'])
    model = ScriptedModel(asks, asks, call('ask_user', question='Why?'), 'Done.')
    async with connect(model, ask_user=True) as editor:
        session = await editor.open(work)
        editor.options = ['choice:0', 'reject', 'reject']
        await editor.prompt(session, 'Paint it.')
        names = [[option.name for option in options] for _, options in editor.requests]
    last = ['Answer in the next message', 'Let the agent decide']
    assert names == [['red\\x1b', 'blue', *last]] * 2 + [last]
    results = [
        part.content
        for message in model.requests[3].messages
        for part in message.parts
        if part.part_kind == 'tool-return'
    ]
    assert results == ['red\x1b', *['Nobody can answer here. Decide yourself, and say what you assumed.'] * 2]


async def test_cancel_while_the_model_responds(connect: Connect, work: Path) -> None:
    """Cancellation stops a running request. The step before it remains, and the next prompt continues from it."""
    wait = Stalled()
    model = ScriptedModel(READ, wait, 'Continued.')
    async with connect(model) as editor:
        session = await editor.open(work)
        responses: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                responses.append((await editor.prompt(session, 'Read it.')).stop_reason)

            tasks.start_soon(prompt)
            await wait.asked.wait()
            await editor.connection.cancel(session_id=session)
        assert responses == ['cancelled']
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'
        assert editor.text() == 'Continued.'
    kinds = [part.part_kind for message in model.requests[2].messages for part in message.parts]
    assert 'tool-return' in kinds


async def test_cancel_while_a_tool_runs(connect: Connect, work: Path) -> None:
    """Cancellation stops a subagent's request inside of a call, and the call is interrupted."""
    wait = Stalled()
    task = call('task', subagent='general-purpose', description='Look')
    async with connect(ScriptedModel(task, wait)) as editor:
        session = await editor.open(work)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, editor, session, wait.asked)
            assert (await editor.prompt(session, 'Look.')).stop_reason == 'cancelled'


async def test_cancel_at_a_permission_request(connect: Connect, work: Path) -> None:
    """Cancellation ends a turn at a request, whether or not the editor answers it. The call does not run."""
    never = Stalled()
    async with connect(ScriptedModel(WRITE, 'Continued.', WRITE)) as editor:
        session = await editor.open(work)
        editor.answer = never
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, editor, session, never.asked)
            assert (await editor.prompt(session, 'Write.')).stop_reason == 'cancelled'
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'
        editor.answer, editor.options = None, [None]
        assert (await editor.prompt(session, 'Write.')).stop_reason == 'cancelled'
    assert not (work / 'new.txt').exists()


async def test_cancel_before_the_turn_starts(connect: Connect, work: Path) -> None:
    """A cancellation that directly follows its prompt stops the turn before the model is asked."""
    model = ScriptedModel('Never.')
    async with connect(model) as editor:
        session = await editor.open(work)
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                assert (await editor.prompt(session, 'Write.')).stop_reason == 'cancelled'

            tasks.start_soon(prompt)
            await anyio.lowlevel.checkpoint()
            await editor.connection.cancel(session_id=session)
    assert model.remaining == 1


async def test_cancel_of_a_command(connect: Connect, work: Path) -> None:
    """Commands that ask a model can be cancelled too."""
    wait = Stalled()
    async with connect(ScriptedModel('One.', 'Two.', wait)) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First.')
        await editor.prompt(session, 'Second.')
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, editor, session, wait.asked)
            assert (await editor.prompt(session, '/compact')).stop_reason == 'cancelled'


async def _cancel_after(editor: FakeEditor, session: str, event: anyio.Event) -> None:
    await event.wait()
    await editor.connection.cancel(session_id=session)


async def test_a_session_handles_one_prompt_at_a_time(connect: Connect, work: Path) -> None:
    """A second prompt is refused while the first one is handled. Closing the session stops the first one."""
    wait = Stalled()
    async with connect(ScriptedModel(wait)) as editor:
        session = await editor.open(work)
        async with anyio.create_task_group() as tasks:

            async def prompt() -> None:
                assert (await editor.prompt(session, 'Wait.')).stop_reason == 'cancelled'

            tasks.start_soon(prompt)
            await wait.asked.wait()
            with pytest.raises(RequestError, match='The session is handling a prompt'):
                await editor.prompt(session, 'Another.')
            await editor.connection.close_session(session_id=session)


async def test_a_failed_turn_is_an_error_with_a_sentence(connect: Connect, work: Path) -> None:
    """The error of a turn is that of the command line, and the session continues."""
    fails = [ModelConnectionError('m', 'No.')] * 3
    async with connect(ScriptedModel('Voi', *fails, ZeroDivisionError('a defect'), 'Works.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'Zero.')
        with pytest.raises(RequestError, match="'m' cannot be reached: No") as caught:
            await editor.prompt(session, 'One.')
        assert caught.value.code == -32603
        assert 'attempt 2 of 3' in editor.text('agent_thought_chunk')
        with pytest.raises(RequestError, match='ZeroDivisionError: a defect'):
            await editor.prompt(session, 'Two.')
        assert (await editor.prompt(session, 'Three.')).stop_reason == 'end_turn'


async def test_a_used_budget_is_a_stop_reason_with_a_sentence(connect: Connect, work: Path) -> None:
    """A turn that uses up its budget ends with `max_tokens`, and a message names the limit."""
    async with connect(ScriptedModel(READ, READ, READ), max_tokens=150) as editor:
        session = await editor.open(work)
        assert (await editor.prompt(session, 'Read.')).stop_reason == 'max_tokens'
        assert 'The budget of 150 tokens for a turn is used up' in editor.text()
        assert 'budget: ' in editor.text('agent_thought_chunk')


@pytest.mark.parametrize(
    ('end', 'error', 'reason'),
    [
        (EndEvent(status='complete'), None, 'end_turn'),
        (EndEvent(status='complete', finish_reason='length'), None, 'max_tokens'),
        (EndEvent(status='complete', finish_reason='content_filter'), None, 'refusal'),
        (EndEvent(status='interrupted'), ErrorEvent(kind='cancelled', message='m'), 'cancelled'),
        (EndEvent(status='failed'), ErrorEvent(kind='limit_exceeded', message='m'), 'max_turn_requests'),
        (EndEvent(status='failed'), ErrorEvent(kind='provider_error', message='m'), None),
    ],
)
def test_stop_reasons(end: EndEvent, error: ErrorEvent | None, reason: str | None) -> None:
    """Each end of a turn has the stop reason of the protocol, and a failure has none."""
    assert stop_reason(end, error) == reason


async def test_a_question_is_answered_after_the_session_was_loaded(connect: Connect, work: Path) -> None:
    """The next prompt is the answer also if the editor was closed before it."""
    async with connect(ScriptedModel(call('ask_user', question='Which colour?')), ask_user=True) as editor:
        session = await editor.open(work)
        editor.options = ['text']
        await editor.prompt(session, 'Paint.')
    model = ScriptedModel('Done.')
    async with connect(model, ask_user=True) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=session)
        assert editor.text() == 'Write the answer as your next message.\n\n'
        assert [update.status for update in editor.of_kind('tool_call_update')] == ['pending']
        await editor.prompt(session, 'Blue.')
        assert editor.text().endswith('Done.')
    assert 'Blue.' in str(model.requests[0].messages[-1])


async def test_a_loaded_session_continues_without_its_pending_calls(connect: Connect, work: Path) -> None:
    """A permission that nobody gave before the editor was closed is shown as pending, and is not asked for again."""
    async with connect(ScriptedModel(WRITE)) as editor:
        session = await editor.open(work)
        editor.options = [None]
        assert (await editor.prompt(session, 'Write.')).stop_reason == 'cancelled'
    async with connect(ScriptedModel('Hello.')) as editor:
        await editor.connection.load_session(cwd=str(work), session_id=session)
        await editor.prompt(session, 'Hi.')
        assert [update.status for update in editor.of_kind('tool_call_update')] == ['pending', 'failed']
        assert (editor.text(), editor.requests) == ('Hello.', [])
    assert not (work / 'new.txt').exists()


async def test_the_next_prompt_answers_a_question(connect: Connect, work: Path) -> None:
    """A question can be answered with the text of the next prompt. Answers that were given before it are kept."""
    asks = [WRITE, call('ask_user', question='Which colour?', choices=['red']), WRITE_TWICE]
    model = ScriptedModel(asks, 'Done.', 'Next.')
    async with connect(model, ask_user=True) as editor:
        session = await editor.open(work)
        editor.options = ['allow', 'text', 'allow']
        assert (await editor.prompt(session, 'Paint.')).stop_reason == 'end_turn'
        assert editor.text() == 'Write the answer as your next message.\n\n'
        assert not (work / 'new.txt').exists()
        await editor.connection.prompt(session_id=session, prompt=[IMAGE])
        assert (model.remaining, editor.text().count('The images were not sent.')) == (2, 1)
        prompt: list[Any] = [text_block('Blue.'), IMAGE]
        await editor.connection.prompt(session_id=session, prompt=prompt)
        assert 'An answer to a question is a text. The images were not sent.' in editor.text()
        assert editor.text().endswith('Done.')
        assert len(editor.requests) == 3
        await editor.prompt(session, 'Next?')
    assert 'Blue.' in str(model.requests[1].messages[-1])
    assert (work / 'new.txt').exists()
    assert (work / 'twice.txt').exists()


async def test_a_question_of_an_abandoned_turn_is_not_answered(connect: Connect, work: Path) -> None:
    """After `/undo`, the next prompt is a prompt."""
    asks = call('ask_user', question='Why?')
    model = ScriptedModel('First.', asks, 'Answered.', asks, 'Second.')
    async with connect(model, ask_user=True) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'First?')
        editor.options = ['text', 'text']
        await editor.prompt(session, 'Ask me.')
        await editor.prompt(session, 'Because.')
        await editor.prompt(session, 'Ask me again.')
        await editor.prompt(session, '/undo')
        await editor.prompt(session, 'Second?')
    assert 'Because.' in str(model.requests[2].messages[-1])
    assert 'Second?' in str(contents(model, 4)[-1])


async def test_cancel_at_any_moment(connect: Connect, work: Path) -> None:
    """Wherever in a turn a cancellation arrives, the turn ends, and the session can be used."""

    async def act(messages: list[ModelMessage], info: AgentInfo) -> Any:
        is_new = any(isinstance(part, UserPromptPart) for part in messages[-1].parts)
        return WRITE if is_new else 'Done.'

    reasons: list[str] = []
    async with connect(ScriptedModel(*[act] * 200)) as editor:
        session = await editor.open(work)
        editor.answer = _allow
        for steps in (2**power for power in range(0, 12, 2)):
            async with anyio.create_task_group() as tasks:

                async def prompt() -> None:
                    reasons.append((await editor.prompt(session, 'Write.')).stop_reason)

                tasks.start_soon(prompt)
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                await editor.connection.cancel(session_id=session)
        assert (await editor.prompt(session, 'Write.')).stop_reason == 'end_turn'
    assert 'cancelled' in reasons
    assert set(reasons) <= {'cancelled', 'end_turn'}


@pytest.mark.slow
async def test_cancel_at_each_await_of_a_turn(
    connect: Connect, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the turn is stored, the stop reason is `cancelled`, never an error. After that it is `end_turn`.

    No run stays unfinished: the next process would resume it.
    """
    interruption, answer, reasons = Interruption(), EditorSession.answer, list[str]()

    async def interrupted(session: EditorSession, prompt: EditorPrompt) -> StopReason:
        return await interruption.run(answer(session, prompt), session.cancel)

    # The protocol cannot say at which await a message arrives.
    monkeypatch.setattr(EditorSession, 'answer', interrupted)
    async with connect(ScriptedModel(then=_read_and_answer)) as editor:
        session = await editor.open(work)
        while interruption.position <= interruption.count:
            interruption.position += 1
            reasons.append((await editor.prompt(session, 'Go.')).stop_reason)
        interruption.position = 0
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'
        async with open_store(f'sqlite:///{tmp_path / "agents.db"}') as store:
            assert await store.runs(states=['running']) == []
    first_end = reasons.index('end_turn')
    assert set(reasons[:first_end]) == {'cancelled'}
    assert set(reasons[first_end:]) == {'end_turn'}


def _read_and_answer(messages: list[ModelMessage], info: AgentInfo) -> Any:
    is_prompt = any(isinstance(part, UserPromptPart) for part in messages[-1].parts)
    return READ if is_prompt else 'Done.'


async def test_cancelled_turn_that_fails_is_cancelled(connect: Connect, work: Path) -> None:
    """The protocol requires this reason whatever the abort of a prompt raises."""
    asked = anyio.Event()

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> str:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            raise ModelHTTPError(400, 'm')

    async with connect(ScriptedModel(fail, 'Next.')) as editor:
        session = await editor.open(work)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, editor, session, asked)
            assert (await editor.prompt(session, 'Go.')).stop_reason == 'cancelled'
        assert (await editor.prompt(session, 'Go on.')).stop_reason == 'end_turn'


async def _allow(*_: object) -> str:
    return 'allow'


async def test_mode_auto_runs_calls_without_a_request(connect: Connect, work: Path) -> None:
    """In the mode `auto`, calls run without a request, and questions are still asked."""
    model = ScriptedModel(WRITE, call('ask_user', question='Sure?', choices=['yes']), 'Done.')
    async with connect(model, ask_user=True) as editor:
        session = await editor.open(work)
        await editor.connection.set_session_mode(session_id=session, mode_id='auto')
        editor.options = ['choice:0']
        await editor.prompt(session, 'Write.')
        assert [request.kind for request, _ in editor.requests] == ['other']
        with pytest.raises(RequestError, match="There is no mode 'yolo'"):
            await editor.connection.set_session_mode(session_id=session, mode_id='yolo')
    assert (work / 'new.txt').exists()


async def test_mode_plan_changes_nothing_until_the_plan_is_accepted(connect: Connect, work: Path) -> None:
    """In the mode `plan`, changes fail. Accepting the plan ends the mode, and the editor is informed."""
    model = ScriptedModel(WRITE, call('propose_plan', plan='Write `new.txt`.'), WRITE, 'Done.', 'Off.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.connection.set_session_mode(session_id=session, mode_id='plan')
        editor.options = ['allow', 'allow']
        await editor.prompt(session, 'Write.')
        assert [request.kind for request, _ in editor.requests] == ['switch_mode', 'edit']
        assert [update.current_mode_id for update in editor.of_kind('current_mode_update')] == ['ask']
        await editor.connection.set_session_mode(session_id=session, mode_id='ask')
        await editor.prompt(session, 'Rest.')
    assert (work / 'new.txt').exists()


@pytest.mark.parametrize('method', ['load_session', 'resume_session', 'fork_session'])
async def test_a_session_is_opened_in_the_mode_of_its_conversation(connect: Connect, work: Path, method: str) -> None:
    """A plan that was not accepted yet is still required after a restart, and no more after it was accepted."""
    async with connect(ScriptedModel('I read.')) as editor:
        session = await editor.open(work)
        await editor.prompt(session, '/plan Write.')
    model = ScriptedModel(WRITE, call('propose_plan', plan='Write.'), 'Planned.')
    async with connect(model) as editor:
        response = await getattr(editor.connection, method)(cwd=str(work), session_id=session)
        assert response.modes.current_mode_id == 'plan'
        session = getattr(response, 'session_id', session)
        editor.options = ['allow']
        await editor.prompt(session, 'Go on.')
        assert [request.kind for request, _ in editor.requests] == ['switch_mode']
    assert not (work / 'new.txt').exists()
    async with connect(ScriptedModel()) as editor:
        response = await editor.connection.load_session(cwd=str(work), session_id=session)
        assert response.modes is not None
        assert response.modes.current_mode_id == 'ask'


async def test_the_command_plan_switches_the_mode(connect: Connect, work: Path) -> None:
    """`/plan PROMPT` is a prompt in the mode `plan`."""
    model = ScriptedModel(WRITE, 'I may not.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.prompt(session, '/plan Write.')
        assert [update.current_mode_id for update in editor.of_kind('current_mode_update')] == ['plan']
        assert editor.text() == 'I may not.'
    assert not (work / 'new.txt').exists()


@pytest.mark.parametrize(
    ('blocks', 'text'),
    [
        ([text_block('/plan Fix '), LINK], 'Fix [@poem.txt](file:///poem.txt)'),
        ([text_block('/plan'), LINK], '[@poem.txt](file:///poem.txt)'),
        ([text_block('/plan'), EMBEDDED], '<file path="file:///a.py">\n@decorator\n\n</file>'),
        ([text_block('/plan\nFix.')], 'Fix.'),
        ([IMAGE, text_block('/plan Fix.')], 'Fix.'),
    ],
    ids=['link', 'link at once', 'embedded', 'line', 'image'],
)
async def test_a_command_may_be_accompanied_by_other_content(
    connect: Connect, work: Path, blocks: list[Any], text: str
) -> None:
    """Whatever is beside the command belongs to its prompt, as the protocol allows. No text is read as a mention."""
    model = ScriptedModel(WRITE, 'I may not.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.connection.prompt(session_id=session, prompt=blocks)
        assert [update.current_mode_id for update in editor.of_kind('current_mode_update')] == ['plan']
        assert editor.text() == 'I may not.'
    assert not (work / 'new.txt').exists()
    [sent] = contents(model)
    assert text in [getattr(item, 'content', item) for item in sent]
    assert any(isinstance(item, BinaryContent) for item in sent) == (IMAGE in blocks)


async def test_images_beside_a_command_without_a_prompt_are_not_sent(connect: Connect, work: Path) -> None:
    async with connect(ScriptedModel()) as editor:
        session = await editor.open(work)
        await editor.connection.prompt(session_id=session, prompt=[text_block('/todos'), IMAGE])
        assert 'The command has run no prompt, so the images were not sent.' in editor.text()


async def test_the_command_plan_in_the_mode_plan_switches_nothing(connect: Connect, work: Path) -> None:
    async with connect(ScriptedModel('Planned.')) as editor:
        session = await editor.open(work)
        await editor.connection.set_session_mode(session_id=session, mode_id='plan')
        await editor.prompt(session, '/plan Write.')
        assert editor.of_kind('current_mode_update') == []


async def test_a_command_may_take_time(connect: Connect, work: Path) -> None:
    """A command that asks the model, such as `/compact`, can end by itself."""
    async with connect(ScriptedModel('One.', 'S' * 400)) as editor:
        session = await editor.open(work)
        await editor.prompt(session, 'One?')
        editor.updates.clear()
        await editor.prompt(session, '/compact')
        assert 'too short for a summary' in editor.text()


async def test_a_cancelled_prompt_stops_what_it_begins_later() -> None:
    """A cancellation before a request for permission stops that request too."""
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(RunCancelled), cancellation.stops():
        await anyio.lowlevel.checkpoint()


async def test_commands_run_the_verbs_of_the_chat(connect: Connect, work: Path) -> None:
    """Commands print what the verbs of the chat print: a sentence as it is, and several lines as a block."""
    async with connect(ScriptedModel(EDIT, 'Fixed.', 'On a branch.')) as editor:
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Fix it.')
        editor.updates.clear()
        await editor.prompt(session, '/diff')
        assert editor.text().startswith('```\n')
        assert '+lily' in editor.text()
        editor.updates.clear()
        assert (await editor.prompt(session, '/undo')).stop_reason == 'end_turn'
        assert (work / 'poem.txt').read_text() == 'rose\nviolet\n'
        editor.updates.clear()
        await editor.prompt(session, '/rewind')
        assert editor.text() == 'Usage: /rewind VERSION\n\n'
        editor.updates.clear()
        await editor.prompt(session, '/branch side Try.')
        assert editor.text() == 'On a branch.'
        editor.updates.clear()
        await editor.prompt(session, '/log')
        assert '(HEAD, side)' in editor.text()
        editor.updates.clear()
        await editor.prompt(session, '/switch')
        assert 'side' in editor.text()


async def test_a_skill_is_a_command_and_other_slashes_are_prompts(
    connect: Connect, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/NAME PROMPT` loads a skill. A path at the beginning of a prompt is no command."""
    model = ScriptedModel('Reviewed.', 'Ran.', 'Loaded nothing.')
    async with connect(model) as editor:
        session = await editor.open(work)
        await editor.prompt(session, '/reviewing-changes Look at it.')
        names = {
            command.name
            for update in editor.of_kind('available_commands_update')
            for command in update.available_commands
        }
        assert {'log', 'rewind', 'diff', 'branch', 'undo', 'reviewing-changes'} <= names
        assert not names & {'new', 'quit', 'help'}
        [stored] = (await editor.connection.list_sessions(cwd=str(work))).sessions
        assert stored.title == '/reviewing-changes Look at it.'
        await editor.connection.load_session(cwd=str(work), session_id=session)
        [prompt] = editor.of_kind('user_message_chunk')
        assert prompt.content.text == '/reviewing-changes Look at it.'
        await editor.prompt(session, '/usr/bin/python fails.')
        monkeypatch.setattr(Skills, 'catalog', _fail)
        await editor.prompt(session, '/reviewing-changes now')
    assert 'Look at it.' in str(contents(model)[0])
    assert len(str(contents(model)[0])) > 500
    assert '/usr/bin/python fails.' in str(contents(model, 1)[-1])
    assert '/reviewing-changes now' in str(contents(model, 2)[-1])


async def _fail(self: Skills) -> None:
    raise UserError('The directory of skills is invalid.')


async def test_two_sessions_at_once(connect: Connect, work: Path, tmp_path: Path) -> None:
    """Two sessions run turns at the same time, and each receives its own updates."""
    other = tmp_path / 'other'
    other.mkdir()
    both = anyio.Event()
    arrived: list[str] = []

    async def meet(messages: list[ModelMessage], info: AgentInfo) -> str:
        arrived.append('')
        if len(arrived) == 2:
            both.set()
        await both.wait()
        [request] = [message for message in messages if isinstance(message, ModelRequest)]
        return f'Heard {[part.content for part in request.parts if isinstance(part, UserPromptPart)]}'

    async with connect(ScriptedModel(meet, meet)) as editor:
        sessions = [await editor.open(work), await editor.open(other)]
        async with anyio.create_task_group() as tasks:
            for session, text in zip(sessions, ['One.', 'Two.'], strict=True):
                tasks.start_soon(editor.prompt, session, text)
        first, second = [
            ''.join(
                update.content.text
                for id, update in editor.updates
                if id == session and update.session_update == 'agent_message_chunk'
            )
            for session in sessions
        ]
        assert 'One.' in first
        assert 'Two.' not in first
        assert 'Two.' in second
        assert 'One.' not in second


async def test_a_second_turn_in_a_directory_works_on_a_copy_and_says_so(connect: Connect, work: Path) -> None:
    """While a turn works in a directory, another one works on a copy, and names the command that checks it out."""
    asked, done = anyio.Event(), anyio.Event()

    async def wait(messages: list[ModelMessage], info: AgentInfo) -> str:
        asked.set()
        await done.wait()
        return 'First.'

    async with connect(ScriptedModel(wait, WRITE, 'Second.')) as editor:
        sessions = [await editor.open(work), await editor.open(work)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(editor.prompt, sessions[0], 'Wait.')
            await asked.wait()
            editor.options = ['allow']
            await editor.prompt(sessions[1], 'Write.')
            assert 'The agent worked on a copy; the directory is unchanged.' in editor.text()
            assert not (work / 'new.txt').exists()
            done.set()


async def test_text_that_does_not_fit_a_question_is_asked_again(connect: Connect, work: Path) -> None:
    """The answer to a question of an MCP server is a line for each field. A wrong one is explained, and the next prompt
    answers."""
    server = McpServer(command=sys.executable, args=(str(MCP_SERVER),), env={'CALLS': os.devnull})
    model = ScriptedModel(call('shop_form'), 'Done.')
    extras = Extras(mcp_servers={'shop': server})
    async with connect(model, extras=extras, mcp_servers=('shop',)) as editor:
        session = await editor.open(work)
        editor.options = ['text']
        await editor.prompt(session, 'Tea?')
        await editor.prompt(session, 'two cups')
        assert 'The answer has 5 fields: cups, kind, extras, gift, note.' in editor.text()
        await editor.prompt(session, 'cups: 2\nkind: Green')
        assert editor.text().endswith('Done.')
    assert "'content': {'cups': 2, 'kind': 'g', 'gift': False}" in str(model.requests[1].messages[-1])
