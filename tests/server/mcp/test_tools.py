"""The tools: each does what the route of the same name does, and answers with a sentence if it cannot."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest
from inline_snapshot import snapshot
from mcp import Client, MCPError
from mcp_types import TextContent

from pydantic_deep.server import ServerSettings
from pydantic_deep.server.http._errors import FAILED
from pydantic_deep.server.mcp import _tools
from pydantic_deep.server.mcp._server import create_mcp_server
from pydantic_deep.server.mcp._tools import TOOLS
from pydantic_deep.server.routes import _versions
from tests.server.conftest import Gate, Serve
from tests.server.mcp.conftest import UNKNOWN, Connect, access_of, error_of, result_of

pytestmark = pytest.mark.anyio


async def start(client: Client, prompt: str, **arguments: Any) -> Any:
    return result_of(await client.call_tool('run', {'prompt': prompt, **arguments}))


async def ask(client: Client) -> Any:
    """Start a run that pauses for an approval."""
    return await start(client, '/a.txt=a', agent='asker')


# Running


async def test_run_starts_a_conversation_and_returns_the_end_of_its_first_turn(client: Client) -> None:
    """A call of `run` without a conversation creates one, and returns its run, its version and its output."""
    done = await start(client, '/a.txt=a', agent='writer')
    assert (done['state'], done['output'], done['agent']) == ('complete', 'Written.', 'writer')
    assert {'run', 'conversation', 'version'} <= set(done)
    assert 'next' not in done


async def test_text_of_a_result_repeats_its_structured_content(client: Client) -> None:
    """Clients that know no structured content receive the same as JSON text."""
    result = await client.call_tool('log', {})
    [content] = result.content
    assert isinstance(content, TextContent)
    assert json.loads(content.text) == result.structured_content == {'conversations': []}


async def test_run_continues_a_conversation_at_its_head(client: Client) -> None:
    """A second turn of a conversation follows the version of the first one."""
    first = await start(client, '/a.txt=a', agent='writer')
    second = await start(client, '/b.txt=b', conversation=first['conversation'])
    listed = result_of(await client.call_tool('log', {'conversation': first['conversation']}))['versions']
    assert [item['version'] for item in listed][:2] == [second['version'], first['version']]
    assert [item['is_head'] for item in listed] == [True, False, False]


@pytest.mark.parametrize('names_conversation', [True, False])
async def test_run_from_an_earlier_version_creates_a_named_branch(client: Client, names_conversation: bool) -> None:
    """`from_version` starts a branch at any version, with or without its conversation."""
    first = await start(client, '/a.txt=a', agent='writer')
    await start(client, '/b.txt=b', conversation=first['conversation'])
    place = {'conversation': first['conversation']} if names_conversation else {}
    await start(client, '/c.txt=c', from_version=first['version'], branch='other', **place)
    listed = result_of(await client.call_tool('log', {'conversation': first['conversation'], 'steps': True}))
    assert {item['branch'] for item in listed['versions']} == {'main', 'other'}


async def test_run_without_an_agent_names_the_agents(client: Client, connect: Connect) -> None:
    """A new conversation needs an agent only if the key may use several."""
    assert error_of(await client.call_tool('run', {'prompt': 'Hi'})) == snapshot(
        'Name the `agent` of a new conversation. Agents: writer, asker, curious.'
    )
    async with connect(agents=['writer']) as limited:
        assert (await start(limited, 'Hi'))['agent'] == 'writer'
        assert error_of(await limited.call_tool('run', {'prompt': 'Hi', 'agent': 'asker'})) == snapshot(
            "No agent has the name 'asker'. Agents: writer."
        )


@pytest.mark.parametrize('names_conversation', [True, False])
async def test_run_with_another_agent_than_that_of_the_conversation_is_refused(
    client: Client, names_conversation: bool
) -> None:
    """A conversation has one agent, which a call may name."""
    first = await start(client, '/a.txt=a', agent='writer')
    place = {'conversation': first['conversation']} if names_conversation else {'from_version': first['version']}
    assert (await start(client, '/b.txt=b', agent='writer', **place))['state'] == 'complete'
    assert error_of(await client.call_tool('run', {'prompt': 'Hi', 'agent': 'asker', **place})) == snapshot(
        "The conversation is one of the agent 'writer'. Omit `agent`, or start a new one."
    )


async def test_run_that_takes_longer_than_the_wait_continues(client: Client, gate: Gate) -> None:
    """`run` returns a running run with the advice to call `get_run`, which returns its end."""
    begun = await start(client, 'hold', agent='writer', wait_seconds=0)
    assert begun['state'] == 'running'
    assert begun['next'] == snapshot('The run continues. Wait for it with `get_run`.')
    gate.opened.set()
    done = result_of(await client.call_tool('get_run', {'run': begun['run']}))
    assert (done['run'], done['state']) == (begun['run'], 'complete')


async def test_cancelled_request_leaves_its_run_running(client: Client, gate: Gate) -> None:
    """A client that cancels the request or disconnects does not end the run."""
    async with anyio.create_task_group() as group:
        group.start_soon(partial(start, client, 'hold', agent='writer'))
        await gate.reached.wait()
        group.cancel_scope.cancel()
    [item] = result_of(await client.call_tool('log', {}))['conversations']
    listed = result_of(await client.call_tool('log', {'conversation': item['conversation'], 'steps': True}))['versions']
    assert listed[0]['kind'] == 'step'
    gate.opened.set()


async def test_cancel_run_ends_a_running_run(client: Client, gate: Gate) -> None:
    """`cancel_run` ends the run and returns it with its interrupted version."""
    begun = await start(client, 'hold', agent='writer', wait_seconds=0)
    await gate.reached.wait()
    ended = result_of(await client.call_tool('cancel_run', {'run': begun['run']}))
    assert ended['state'] == 'interrupted'


async def test_progress_names_the_tools_that_the_run_calls(connect: Connect) -> None:
    """A client that asks for progress receives an increasing number and the name of each called tool."""
    received: list[tuple[float, float | None, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total, message))

    async with connect(mode='legacy') as client:
        await client.call_tool('run', {'prompt': '/a.txt=a /b.txt=b', 'agent': 'writer'}, progress_callback=note)
    assert received == [(1, None, 'write_file'), (2, None, 'write_file')]


# Approvals


async def test_pending_call_is_shown_and_answered(client: Client) -> None:
    """A paused run returns its calls as a person must see them; the answer resumes it, and returns the resumed run."""
    paused = await ask(client)
    assert paused['state'] == 'awaiting_approval'
    assert paused['next'] == snapshot('Ask the user about each call in `approvals`, then call `answer_approval`.')
    [call] = paused['approvals']
    assert call['tool'] == 'write_file'
    assert '/a.txt' in call['call']
    assert result_of(await client.call_tool('list_approvals', {'conversation': paused['conversation']})) == {
        'approvals': [call]
    }
    answered = result_of(
        await client.call_tool(
            'answer_approval', {'approval': call['approval'], 'decision': 'approve', 'digest': call['digest']}
        )
    )
    assert (answered['status'], answered['run']['state']) == ('approved', 'complete')
    assert result_of(await client.call_tool('list_approvals', {})) == {'approvals': []}


@pytest.mark.slow
async def test_first_of_two_answers_leaves_the_run_paused(client: Client) -> None:
    """The turn resumes with the last answer; before that, the result says that others are pending."""
    paused = await start(client, '/a.txt=a /b.txt=b', agent='asker')
    first, second = (call['approval'] for call in paused['approvals'])
    answered = result_of(await client.call_tool('answer_approval', {'approval': first, 'decision': 'deny'}))
    assert answered == snapshot(
        {'approval': first, 'status': 'denied', 'next': 'Other approvals of this version are pending.'}
    )
    answered = result_of(await client.call_tool('answer_approval', {'approval': second, 'decision': 'deny'}))
    assert answered['run']['state'] == 'complete'


async def test_answer_without_the_digest_is_refused(client: Client) -> None:
    """The checks are those of the route: only `deny` works without the digest that the person saw."""
    [call] = (await ask(client))['approvals']
    refused = await client.call_tool('answer_approval', {'approval': call['approval'], 'decision': 'approve'})
    assert error_of(refused) == snapshot(
        "The decision 'approve' requires `digest`: the `view.digest` of the approval as the person saw it. Only `deny` works without it."
    )


async def test_malformed_digest_is_refused_in_a_sentence(client: Client) -> None:
    """A digest of the wrong length is refused before the approval is loaded."""
    [call] = (await ask(client))['approvals']
    arguments = {'approval': call['approval'], 'decision': 'approve', 'digest': 'x'}
    assert 'digest: String should have at least 64' in error_of(await client.call_tool('answer_approval', arguments))


async def test_key_that_may_only_approve_answers_without_resuming(client: Client, connect: Connect) -> None:
    """A key with `approve` alone answers; a key with `run` then resumes the turn with `resume_run`."""
    paused = await ask(client)
    async with connect('approve') as person, connect('run') as runner:
        seen = result_of(await runner.call_tool('get_run', {'run': paused['run']}))
        assert seen['next'] == snapshot(
            'A person must answer the approvals, with a key that has the scope `approve`. Then call `resume_run`.'
        )
        arguments = {'approval': paused['approvals'][0]['approval'], 'decision': 'deny'}
        answered = result_of(await person.call_tool('answer_approval', arguments))
        assert answered['next'] == snapshot('A key with the scope `run` can resume it.')
        seen = result_of(await runner.call_tool('get_run', {'run': paused['run']}))
        assert seen['next'] == snapshot(
            'The approvals are answered. If no other run has resumed the turn, call `resume_run`.'
        )
        resumed = result_of(await runner.call_tool('resume_run', {'run': paused['run']}))
        assert resumed['state'] == 'complete'


async def test_run_that_has_ended_cannot_be_resumed(client: Client) -> None:
    """`resume_run` refuses a run that is neither suspended nor paused."""
    done = await start(client, 'Hi', agent='writer')
    assert (
        error_of(await client.call_tool('resume_run', {'run': done['run']}))
        == f'The run {done["run"]} is not suspended.'
    )


@pytest.mark.parametrize('answers', [False, True])
async def test_agent_answers_only_if_the_operator_allows_it(serve: Serve, answers: bool) -> None:
    """By default an agent cannot approve its own calls: the tool is neither offered nor usable, whatever the scopes."""
    settings = ServerSettings(mcp_answers=answers)
    async with serve(settings=settings) as served, Client(create_mcp_server(await access_of(served))) as client:
        paused = await ask(client)
        [call] = paused['approvals']
        assert ('answer_approval' in {tool.name for tool in (await client.list_tools()).tools}) is answers
        arguments = {'approval': call['approval'], 'decision': 'approve', 'digest': call['digest']}
        answered = await client.call_tool('answer_approval', arguments)
        seen = result_of(await client.call_tool('get_run', {'run': paused['run']}))
    if answers:
        assert result_of(answered)['status'] == 'approved'
        return
    assert error_of(answered) == snapshot(
        'Only the user can answer approvals: in a form that `get_run` shows, on the page of the server, or with `pydantic-deep approvals`.'
    )
    assert seen == paused
    assert seen['next'] == snapshot(
        'The user must answer the approvals: in a form that `get_run` shows, on the page of the server, or with `pydantic-deep approvals`. Then call `resume_run`.'
    )


async def test_list_of_tools_is_short(client: Client) -> None:
    """Each client pays for the list in every conversation: about 1,300 tokens for all tools together."""
    tools = (await client.list_tools()).tools
    assert len(json.dumps([tool.model_dump(mode='json', by_alias=True, exclude_none=True) for tool in tools])) < 5400


# Versions


async def test_diff_returns_unified_diffs(client: Client) -> None:
    """`diff` compares a version with its parent, or two versions."""
    first = await start(client, '/a.txt=a', agent='writer')
    second = await start(client, '/b.txt=b', conversation=first['conversation'])
    whole = result_of(await client.call_tool('diff', {'version': first['version'], 'to': second['version']}))
    [file] = whole['files']
    assert (file['path'], file['kind']) == ('/b.txt', 'added')
    assert '+b' in file['diff']
    assert whole['messages_added'] == 4
    with_parent = result_of(await client.call_tool('diff', {'version': second['version']}))
    assert with_parent['after'] == second['version']


async def test_diff_that_is_too_long_says_what_it_omits(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a total length, diffs are omitted, and a note says how many and where the files are."""
    done = await start(client, '/a.txt=a /b.txt=b', agent='writer')
    [root] = [
        item['version']
        for item in result_of(await client.call_tool('log', {'conversation': done['conversation']}))['versions']
        if item['kind'] == 'root'
    ]
    monkeypatch.setattr(_tools, 'MAX_DIFF_CHARS', 60)
    found = result_of(await client.call_tool('diff', {'version': root, 'to': done['version']}))
    assert ['diff' in file for file in found['files']] == [True, False]
    assert found['note'] == snapshot(
        'The diffs of 1 files are omitted: together they would be too long. Read the resources of the files.'
    )


async def test_rewind_moves_the_head_back(client: Client) -> None:
    """After `rewind`, the next turn continues from the earlier version."""
    first = await start(client, '/a.txt=a', agent='writer')
    await start(client, '/b.txt=b', conversation=first['conversation'])
    place = {'conversation': first['conversation'], 'version': first['version']}
    assert result_of(await client.call_tool('rewind', place)) == {
        'conversation': first['conversation'],
        'head': first['version'],
    }
    [item] = result_of(await client.call_tool('log', {}))['conversations']
    assert item['head'] == first['version']


async def test_log_has_pages(client: Client) -> None:
    """The cursor of a page leads to the next one."""
    for number in range(3):
        await start(client, f'Hi {number}', agent='writer')
    first = result_of(await client.call_tool('log', {'limit': 2}))
    second = result_of(await client.call_tool('log', {'limit': 2, 'cursor': first['cursor']}))
    assert [len(page['conversations']) for page in (first, second)] == [2, 1]
    assert 'cursor' not in second


async def test_log_finds_the_runs_of_a_conversation(client: Client, gate: Gate) -> None:
    """A client that has lost the result of `run` finds the run: while it is active, and by its versions."""
    await start(client, 'hold', agent='writer', wait_seconds=0)
    await gate.reached.wait()
    [conversation] = result_of(await client.call_tool('log', {}))['conversations']
    arguments = {'conversation': conversation['conversation']}
    [active] = result_of(await client.call_tool('log', arguments))['active_runs']
    gate.opened.set()
    done = result_of(await client.call_tool('get_run', {'run': active}))
    logged = result_of(await client.call_tool('log', arguments))
    assert (done['state'], logged['versions'][0]['run'], logged['active_runs']) == ('complete', active, [])
    later = result_of(await client.call_tool('log', {**arguments, 'limit': 1, 'cursor': '1'}))
    assert 'active_runs' not in later


@pytest.mark.parametrize('id', ['nobody', '', 'x\0', '\u2028'])
async def test_log_of_an_unknown_conversation_is_not_found(client: Client, id: str) -> None:
    """An id is checked before anything is read with it."""
    result = await client.call_tool('log', {'conversation': id})
    assert result.is_error
    assert 'ValidationError' not in str(result.content)
    assert str(result.content) == str((await client.call_tool('log', {'conversation': 'no'})).content)


# Refusals


async def test_wrong_arguments_are_named_in_a_sentence(client: Client) -> None:
    """Unknown, missing and invalid arguments are tool errors that name the known ones, without the values."""
    refused = await client.call_tool('run', {'prompt': '', 'model': 'secret'})
    assert error_of(refused) == snapshot(
        'The arguments of `run` are invalid: prompt: String should have at least 1 character; model: Extra inputs are not permitted. Its arguments: wait_seconds, prompt, agent, conversation, from_version, branch.'
    )


async def test_unknown_tool_is_an_error_of_the_protocol(client: Client) -> None:
    """A tool that does not exist answers with the names of those that do."""
    with pytest.raises(MCPError, match=r'There is no such tool\. Tools: run, get_run'):
        await client.call_tool('rum', {})


async def test_defect_is_a_tool_error_without_details(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception in our code ends neither the connection nor the process, and its text is in the log only."""

    async def fail(*arguments: object) -> None:
        raise RuntimeError('a defect')

    monkeypatch.setattr(_versions, 'diff_versions', fail)
    assert error_of(await client.call_tool('diff', {'version': UNKNOWN})) == FAILED
    assert 'a defect' in caplog.text
    assert result_of(await client.call_tool('log', {})) == {'conversations': []}


async def test_tools_are_listed_by_scope(connect: Connect) -> None:
    """A key sees the tools of its scopes only, and calls of others are refused."""
    names: dict[str, list[str]] = {}
    for scope in ('run', 'approve', 'audit', 'admin'):
        async with connect(scope) as client:
            names[scope] = [tool.name for tool in (await client.list_tools()).tools]
            for name in set(TOOLS) - set(names[scope]):
                assert 'requires a key with the scope' in error_of(await client.call_tool(name, {}))
    assert names == snapshot(
        {
            'run': ['run', 'get_run', 'resume_run', 'cancel_run', 'log', 'diff', 'rewind'],
            'approve': ['list_approvals', 'answer_approval'],
            'audit': [],
            'admin': [
                'run',
                'get_run',
                'resume_run',
                'cancel_run',
                'list_approvals',
                'answer_approval',
                'log',
                'diff',
                'rewind',
            ],
        }
    )


async def test_run_beyond_the_limit_creates_no_conversation(serve: Serve, gate: Gate) -> None:
    """A run that the limit of the key refuses leaves no empty conversation."""
    settings = ServerSettings(max_runs_per_key=1)
    async with serve(settings=settings) as served, Client(create_mcp_server(await access_of(served))) as client:
        await start(client, 'hold', agent='writer', wait_seconds=0)
        assert 'runs of this key are already active' in error_of(
            await client.call_tool('run', {'prompt': 'Hi', 'agent': 'writer'})
        )
        assert len(result_of(await client.call_tool('log', {}))['conversations']) == 1
        gate.opened.set()


async def test_run_with_a_blank_prompt_leaves_no_conversation(connect: Connect) -> None:
    """A run that is refused after its conversation was created leaves no empty one."""
    async with connect('run') as client:
        assert 'prompt' in error_of(await client.call_tool('run', {'prompt': ' ', 'agent': 'writer'}))
        assert result_of(await client.call_tool('log', {}))['conversations'] == []
