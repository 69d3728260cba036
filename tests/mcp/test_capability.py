"""The tools of servers in an agent: approvals, effects, failures and costs."""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
import uvicorn
from pydantic_ai import DeferredToolRequests, UserError
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.profiles import ModelProfile
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from pydantic_deep import (
    ApprovalRule,
    Approve,
    DeepAgentDeps,
    UntrustedContent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.mcp import McpConfigError, McpServer, McpServers, McpServerStatus, McpToolStatus, _connection
from pydantic_deep.subagents import Subagent
from pydantic_deep.testing import Answer, ScriptedModel, SeenRequest, Step, call
from tests.store.ports import free_port

from .conftest import MakeServer
from .sdk_server import create_server

pytestmark = pytest.mark.anyio

Calls = Callable[[], Sequence[str]]

GUIDE = Path(__file__).parent.parent.parent / 'docs/guides/mcp.md'

BROKEN = McpServer(command='no-such-program')


async def run(
    servers: McpServers, *answers: Step, interrupt_on: dict[str, Any] | None = None, **options: Any
) -> tuple[AgentRunResult[Any], ScriptedModel]:
    model = ScriptedModel(*answers)
    capabilities = [servers, *options.pop('capabilities', ())]
    agent = create_deep_agent(model, capabilities=capabilities, interrupt_on=interrupt_on or {}, **options)
    return await agent.run('go', deps=DeepAgentDeps()), model


def results(model: ScriptedModel) -> list[tuple[str, str]]:
    """Return the contents and outcomes of all results that the model has seen."""
    return [(str(part.content), part.outcome) for part in model.requests[-1].tool_returns]


def size(request: SeenRequest) -> int:
    """Return the characters of the tools and instructions of a request."""
    tools = [
        len(tool.name) + len(tool.description or '') + len(json.dumps(tool.parameters_json_schema))
        for tool in request.tools
    ]
    instructions = (request.instructions or '').replace('pyai:', '')  # newer releases of pydantic-ai prefix their tags
    return sum(tools) + len(instructions)


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncGenerator[str]:
    """Serve an application on loopback, and yield the address of its MCP server."""
    with socket.create_server(('127.0.0.1', 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(server.serve, sockets=[listener]))
            yield f'http://127.0.0.1:{listener.getsockname()[1]}/mcp'
            server.should_exit = True


async def test_tools_that_only_read_run_and_others_need_approval(make_server: MakeServer, calls: Calls) -> None:
    """A tool with `readOnlyHint` runs without approval; every other tool needs one."""
    result, _ = await run(
        McpServers(servers={'shop': make_server()}), call('shop_add', a=1, b=2), call('shop_order', item='tea')
    )
    assert isinstance(result.output, DeferredToolRequests)
    (pending,) = pending_approvals(result.output)
    assert (pending.tool, pending.arguments, calls()) == ('shop_order', {'item': 'tea'}, ['add 1 2'])


async def test_approved_call_runs(make_server: MakeServer, calls: Calls) -> None:
    """After approval, the server gets the call once."""
    model = ScriptedModel(call('shop_order', item='tea'), 'done')
    agent = create_deep_agent(model, capabilities=[McpServers(servers={'shop': make_server()})], interrupt_on={})
    paused = await agent.run('go', deps=DeepAgentDeps())
    (pending,) = pending_approvals(paused.output)
    done = await agent.run(
        deps=DeepAgentDeps(),
        message_history=paused.all_messages(),
        deferred_tool_results=answer_approvals(paused.output, {pending.id: Approve()}),
    )
    assert (done.output, calls(), results(model)) == ('done', ['order tea'], [('order: tea', 'success')])


@pytest.mark.parametrize(
    ('env', 'failure'),
    [
        ({}, None),
        ({'GONE': ''}, 'is not running'),
        ({'WITHOUT': 'order'}, "no longer has the tool 'shop_order'"),
    ],
    ids=['more tools', 'not running', 'without the tool'],
)
async def test_approved_call_in_another_process_runs_unless_its_server_does_not(
    tmp_path: Path, make_server: MakeServer, calls: Calls, env: dict[str, str], failure: str | None
) -> None:
    """An approved call needs no search if its server has more tools by then. It fails if the server cannot start or no
    longer has the tool.
    """
    model = ScriptedModel([call('shop_order', item='tea'), call('shop_add', a=1, b=2)], 'done')
    paused = await create_deep_agent(
        model, capabilities=[McpServers(servers={'shop': make_server()})], interrupt_on={}
    ).run('go', deps=DeepAgentDeps())
    (pending,) = pending_approvals(paused.output)
    (tmp_path / 'gone').touch()
    env = env | ({'GONE': str(tmp_path / 'gone')} if 'GONE' in env else {})
    servers = McpServers(servers={'other': make_server(), 'shop': make_server(200, **env)})
    done = await create_deep_agent(model, capabilities=[servers], interrupt_on={}).run(
        deps=DeepAgentDeps(),
        message_history=paused.all_messages(),
        deferred_tool_results=answer_approvals(paused.output, {pending.id: Approve()}),
    )
    failed = (f"The MCP server 'shop' {failure}. The call was not made.", 'failed')
    assert (done.output, calls()) == ('done', ['add 1 2'] if failure else ['add 1 2', 'order tea'])
    assert set(results(model)) == {('3', 'success'), failed if failure else ('order: tea', 'success')}
    assert 'shop_order' not in model.requests[-1].tool_names


async def test_effects_follow_from_annotations(make_server: MakeServer) -> None:
    """The metadata of a tool has the effect that recovery and untrusted content use."""
    _, model = await run(McpServers(servers={'shop': make_server()}), 'done')
    effects = {tool.name: (tool.metadata or {})['effect'] for tool in model.requests[0].tools if 'shop' in tool.name}
    assert effects['shop_add'] == 'read'
    assert effects['shop_order'] == 'external'


async def test_allowed_tools_need_no_approval(make_server: MakeServer, calls: Calls) -> None:
    """`allow` names tools that run without approval, by patterns."""
    result, _ = await run(
        McpServers(servers={'shop': make_server()}, allow=['shop_or*']), call('shop_order', item='tea'), 'done'
    )
    assert (result.output, calls()) == ('done', ['order tea'])


async def test_allowed_tools_are_those_of_one_server(make_server: MakeServer, calls: Calls) -> None:
    """Tools of a server whose name begins with that of another need approval of their own."""
    servers = {'shop': make_server(), 'shop_two': make_server()}
    result, model = await run(
        McpServers(servers=servers, allow=['shop_*']),
        call('shop_order', item='tea'),
        call('shop_two_order', item='tea'),
    )
    assert (calls(), len(model.requests)) == (['order tea'], 2)
    assert isinstance(result.output, DeferredToolRequests)


async def test_rules_apply_to_tools_that_need_no_approval(make_server: MakeServer, calls: Calls) -> None:
    """A rule in `interrupt_on` asks about a tool that only reads."""
    rule = ApprovalRule(when=lambda args: args['a'] > 1)
    _, model = await run(
        McpServers(servers={'shop': make_server()}),
        call('shop_add', a=1, b=2),
        call('shop_add', a=2, b=2),
        interrupt_on={'shop_add': rule},
    )
    assert (calls(), len(model.requests)) == (['add 1 2'], 2)


async def test_results_are_untrusted(make_server: MakeServer) -> None:
    """After the result of a server, calls that act outside of the project need approval, even if `allow` names them."""
    servers = McpServers(servers={'shop': make_server()}, allow=['*'])
    result, _ = await run(
        servers, call('shop_add', a=1, b=2), call('shop_order', item='tea'), capabilities=[UntrustedContent()]
    )
    (pending,) = pending_approvals(result.output)
    assert pending.preview is not None
    assert 'Untrusted content was read before this call, which may obey it: shop_add.' in str(pending.preview)


async def test_resource_after_untrusted_content_needs_approval(make_server: MakeServer) -> None:
    """The address of a resource can contain data, so it is a request for a URL."""
    result, _ = await run(
        McpServers(servers={'shop': make_server()}),
        call('read_mcp_resource', server='shop'),
        call('read_mcp_resource', server='shop', uri='note://the-secret'),
        capabilities=[UntrustedContent()],
    )
    assert [pending.tool for pending in pending_approvals(result.output)] == ['read_mcp_resource']


async def test_tool_with_the_name_of_another_is_renamed(make_server: MakeServer, calls: Calls) -> None:
    """A server cannot end a run, or replace a tool of the agent, by the name that it gives to a tool."""

    def shop_add() -> str:
        return 'mine'

    servers = McpServers(servers={'shop': make_server()})
    _, model = await run(servers, call('shop_add'), 'Done.', tools=[shop_add])
    assert (results(model), calls()) == ([('mine', 'success')], [])
    assert sum(name.startswith('shop_add_') for name in model.requests[0].tool_names) == 1


async def test_two_capabilities_are_one_with_the_servers_of_both(make_server: MakeServer, calls: Calls) -> None:
    """Each keeps its own `allow`, so the permissions of one do not apply to the servers of the other."""
    first = McpServers(servers={'shop': make_server(), 'both': BROKEN}, allow=['*'])
    second = McpServers(servers={'bank': make_server(), 'both': make_server()})
    result, model = await run(
        first, call('shop_order', item='tea'), call('bank_order', item='tea'), capabilities=[second]
    )
    assert results(model) == [('order: tea', 'success')]
    assert [approval.tool for approval in pending_approvals(result.output)] == ['bank_order']
    assert 'both_order' in model.requests[0].tool_names
    assert [*McpServers.combine([first, second]).servers] == ['shop', 'both', 'bank']


async def test_failing_tool_is_a_failed_result(make_server: MakeServer) -> None:
    """The error of a tool is a failed result."""
    _, model = await run(McpServers(servers={'shop': make_server()}), call('shop_fail'), 'done')
    assert results(model) == [('It failed.', 'failed')]


async def test_tools_are_listed_again_after_they_have_changed(make_server: MakeServer) -> None:
    """A server that announces new tools has them in the next step."""
    _, model = await run(
        McpServers(servers={'shop': make_server()}), call('shop_add', a=1, b=2), call('shop_grow'), 'done'
    )
    before, _, after = ([tool.name for tool in request.tools] for request in model.requests)
    assert {*after} - {*before} == {'shop_new'}


async def test_log_messages_of_a_server_go_to_our_logger(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """They must not appear on a terminal as they are."""
    with caplog.at_level('WARNING', 'pydantic_deep'):
        await run(McpServers(servers={'shop': make_server()}), call('shop_grow'), 'Done.')
    assert [(each.levelname, each.message) for each in caplog.records if each.name == 'pydantic_deep'] == [
        ('ERROR', r"The MCP server 'shop' logs: It grows.\x1b[2J")
    ]


async def test_server_that_stops_in_a_call_is_started_again(make_server: MakeServer, calls: Calls) -> None:
    """The call fails, other servers keep their tools, and the next call starts the server again."""
    servers = McpServers(servers={'shop': make_server(), 'other': make_server()})
    _, model = await run(servers, call('shop_stop'), call('other_add', a=1, b=1), call('shop_add', a=1, b=2), 'done')
    assert results(model) == [
        ("The MCP server 'shop' failed during this call, which may have taken effect.", 'failed'),
        ('2', 'success'),
        ('3', 'success'),
    ]
    assert calls() == ['stop', 'add 1 1', 'add 1 2']


async def test_reason_of_a_failure_is_for_people_without_secrets(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has the last line that the server wrote, with names of variables instead of their values."""
    server = make_server(KEY='${SHOP_KEY}')
    await run(McpServers(servers={'shop': server}, variables={'SHOP_KEY': 's3cret-value'}), call('shop_stop'), 'done')
    assert "The MCP server 'shop' is not running: Connection closed: the key is ${SHOP_KEY}" in caplog.messages
    assert 's3cret' not in caplog.text


async def test_server_that_cannot_start_costs_only_its_own_tools(make_server: MakeServer) -> None:
    """The model is informed which server is missing, without text by the server, and others work."""
    servers = McpServers(servers={'broken': BROKEN, 'shop': make_server()})
    result, model = await run(servers, call('shop_add', a=1, b=2), 'done')
    assert (result.output, results(model)) == ('done', [('3', 'success')])
    assert 'These MCP servers are not running, so their tools are missing: broken.' in (
        model.requests[0].instructions or ''
    )
    assert list(servers.errors) == ['broken', 'shop']
    assert 'no-such-program' in servers.errors['broken']  # also after the run, when no server is running
    assert servers.errors['shop'] == 'not started'


async def test_silent_server_is_tried_again_after_five_minutes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs do without a server that did not answer when it was started. `status` tries it at once."""
    now = 1_000.0
    monkeypatch.setattr('pydantic_deep.mcp._connection.monotonic', lambda: now + time.monotonic())
    silent = McpServer(command=sys.executable, args=('-c', 'import sys; sys.stdin.read()'))
    servers = McpServers(servers={'silent': silent}, start_timeout_seconds=0.2)

    def attempts() -> int:
        return sum("The MCP server 'silent' is not running" in message for message in caplog.messages)

    for _ in range(2):
        _, model = await run(servers, 'done')
        assert 'their tools are missing: silent.' in (model.requests[0].instructions or '')
    assert attempts() == 1
    now += 299
    await run(servers, 'done')
    assert attempts() == 1
    now += 2
    await run(servers, 'done')
    assert attempts() == 2
    (status,) = await servers.status()
    assert (status.error is not None, attempts()) == (True, 3)


@pytest.mark.parametrize('request_name', ['list_resources', 'list_tools'])
async def test_server_that_lists_nothing_is_silent_too(
    make_server: MakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """A server that starts and then does not answer is waited for once, as long as for the start of a server."""
    create_toolset = _connection._create_toolset  # pyright: ignore[reportPrivateUsage]

    def create(name: str, server: McpServer, timeouts: _connection.Timeouts, *rest: Any) -> Any:
        return create_toolset(name, server, replace(timeouts, start=60), *rest)

    async def hang(client: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(_connection, '_create_toolset', create)
    monkeypatch.setattr(f'fastmcp.Client.{request_name}', hang)
    without_resources = {'NO_RESOURCES': '1'} if request_name == 'list_tools' else {}
    servers = McpServers(servers={'shop': make_server(**without_resources)}, start_timeout_seconds=0.05)
    for _ in range(2):
        _, model = await run(servers, 'done')
        assert 'their tools are missing: shop.' in (model.requests[0].instructions or '')
    assert caplog.messages.count("The MCP server 'shop' is not running: no answer within 0.05 seconds") == 1


async def test_server_that_exits_at_once_has_a_reason() -> None:
    """The state of a server shows the last line of its standard error."""
    server = McpServer(command=sys.executable, args=('-c', 'import sys; sys.exit("no token")'))
    (status,) = await McpServers(servers={'shop': server}).status()
    assert status.error == 'Connection closed: no token'


async def test_rule_may_name_a_tool_of_a_server_that_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    """A rule for an unknown tool is no error while a server is missing that may have it."""
    result, _ = await run(McpServers(servers={'broken': BROKEN}), 'done', interrupt_on={'broken_order': True})
    assert result.output == 'done'
    assert "`interrupt_on` names 'broken_order'; no tool has this name yet" in caplog.messages


async def test_unknown_name_in_a_rule_is_an_error(make_server: MakeServer) -> None:
    """If all servers run, a rule for an unknown tool is an error."""
    with pytest.raises(UserError, match='no tool has this name'):
        await run(McpServers(servers={'shop': make_server()}), interrupt_on={'shop_oder': True})


async def test_lost_server_fails_calls_and_keeps_its_tools(tmp_path: Path, make_server: MakeServer) -> None:
    """If a server cannot start again, its calls fail and were not made; its tools remain, so the prefix does."""
    gone = tmp_path / 'gone'

    def lose(messages: object, info: object) -> Answer:
        gone.touch()
        return call('shop_stop')

    servers = McpServers(servers={'shop': make_server(GONE=str(gone))})
    _, model = await run(servers, lose, call('shop_add', a=1, b=2), 'done')
    assert results(model)[1] == ("The MCP server 'shop' is not running. The call was not made.", 'failed')
    assert model.requests[0].tool_names == model.requests[-1].tool_names


async def test_next_run_starts_a_missing_server(tmp_path: Path, make_server: MakeServer) -> None:
    """If the agent is entered for several runs, each of them tries to start servers that are missing."""
    gone = tmp_path / 'gone'
    gone.touch()
    model = ScriptedModel('one', 'two')
    servers = McpServers(servers={'shop': make_server(GONE=str(gone))})
    agent = create_deep_agent(model, capabilities=[servers], interrupt_on={})
    async with agent:
        await agent.run('go', deps=DeepAgentDeps())
        gone.unlink()
        await agent.run('go', deps=DeepAgentDeps())
    assert ['shop_add' in request.tool_names for request in model.requests] == [False, True]


async def test_servers_live_as_long_as_the_agent_is_entered(make_server: MakeServer, starts: Callable[[], int]) -> None:
    """Runs of an entered agent share one process; without entering it, each run has its own."""
    servers = McpServers(servers={'shop': make_server()})
    agent = create_deep_agent(ScriptedModel('a', 'b', 'c'), capabilities=[servers], interrupt_on={})
    async with agent:
        await agent.run('go', deps=DeepAgentDeps())
        await agent.run('go', deps=DeepAgentDeps())
    assert starts() == 1
    await agent.run('go', deps=DeepAgentDeps())
    assert starts() == 2


async def test_invalid_list_of_tools_is_known_when_the_agent_is_entered(make_server: MakeServer) -> None:
    """People read in `errors` which servers are missing before the first run."""
    servers = McpServers(servers={'bad': make_server(INVALID='1'), 'shop': make_server()})
    async with create_deep_agent(ScriptedModel(), capabilities=[servers], interrupt_on={}):
        assert servers.errors == {'bad': '`tools`: Input should be a valid list'}


async def test_resources_are_read_by_one_tool(make_server: MakeServer) -> None:
    """The tool lists the resources and templates of a server, and reads them by their addresses."""
    _, model = await run(
        McpServers(servers={'shop': make_server()}),
        call('read_mcp_resource', server='shop'),
        call('read_mcp_resource', server='shop', uri='note://today'),
        call('read_mcp_resource', server='none'),
        call('read_mcp_resource', server='shop', uri='other://x'),
        call('read_mcp_resource', server='shop', uri='today'),
        'done',
    )
    listed, today, unknown, missing, no_uri = [text for text, _ in results(model)]
    assert listed == str(
        [
            {'uri': 'note://today', 'name': 'today', 'description': 'The note of today.'},
            {'uri': 'note://{day}', 'name': 'of_day'},
        ]
    )
    assert today == 'Buy milk.'
    assert unknown == "No MCP server 'none' has resources. Servers with resources: shop."
    assert missing == 'It is unknown. (code: -32601)'
    assert results(model)[3][1] == 'failed'
    assert no_uri == (
        "'today' is no URI: Input should be a valid URL, relative URL without a base. Without `uri`, they are listed."
    )


async def test_server_without_templates_has_resources(make_server: MakeServer) -> None:
    """Many servers have resources and refuse to list templates. Nothing else of them is lost."""
    servers = McpServers(servers={'shop': make_server(NO_TEMPLATES='1')})
    steps = [call('shop_grow'), call('read_mcp_resource', server='shop'), 'Done.']
    _, model = await run(servers, *steps)
    listed = model.requests[-1].tool_returns[-1].content
    assert isinstance(listed, list)
    assert [each['uri'] for each in cast('list[dict[str, str]]', listed)] == ['note://today', 'note://grow']


async def test_server_without_resources_adds_no_tool_for_them(make_server: MakeServer) -> None:
    """Only servers with resources cost the definition of the tool that reads them."""
    _, model = await run(McpServers(servers={'shop': make_server(NO_RESOURCES='1')}), 'done')
    assert 'read_mcp_resource' not in model.requests[0].tool_names


@pytest.mark.parametrize('native', [True, False], ids=['native search', 'search_tools'])
async def test_many_tools_are_found_by_search(make_server: MakeServer, calls: Calls, native: bool) -> None:
    """200 tools of a server cost at most 1,000 characters of the first request, and each can be found and called."""
    profile: Any = {
        'supports_inline_system_prompts': True,
        **({} if native else {'supported_native_tools': frozenset[Any]()}),
    }
    bare = ScriptedModel('done', profile=profile)
    await create_deep_agent(bare, interrupt_on={}).run('go', deps=DeepAgentDeps())
    model = ScriptedModel(
        call('search_tools', queries=['record 177']), call('shop_look_up_177', query='q'), 'done', profile=profile
    )
    servers = McpServers(servers={'shop': make_server(200)}, allow=['shop_look_up_*'])
    result = await create_deep_agent(model, capabilities=[servers], interrupt_on={}).run('go', deps=DeepAgentDeps())
    assert (result.output, calls()) == ('done', ['look_up_177 q'])
    assert size(model.requests[0]) - size(bare.requests[0]) <= 1_000


async def test_costs_are_those_of_the_guide(make_server: MakeServer) -> None:
    """The table of the guide has the tools and characters that servers add to the first request."""

    async def cost(*servers: McpServer, native: bool = True) -> tuple[int, int]:
        profile = {
            'supports_inline_system_prompts': True,
            **({} if native else {'supported_native_tools': frozenset[Any]()}),
        }
        model = ScriptedModel('done', profile=cast('ModelProfile', profile))
        capability = McpServers(servers={f's{index}': server for index, server in enumerate(servers)})
        await create_deep_agent(model, capabilities=[capability], interrupt_on={}).run('go', deps=DeepAgentDeps())
        return len(model.requests[0].tools), size(model.requests[0])

    def added(with_servers: tuple[int, int], without: tuple[int, int]) -> tuple[int, int]:
        return with_servers[0] - without[0], with_servers[1] - without[1]

    none = await cost()
    costs = [
        added(none, none),
        added(await cost(make_server(200)), none),
        added(await cost(make_server(200), native=False), await cost(native=False)),
        added(await cost(make_server()), await cost(make_server(NO_RESOURCES='1'))),
        added(await cost(BROKEN), none),
    ]
    rows = re.findall(r'^\|[^|]+\| (\d+) \| (\d+) \|$', GUIDE.read_text(), re.MULTILINE)
    assert costs == [(int(tools), int(chars)) for tools, chars in rows]


async def test_few_tools_are_sent_directly(make_server: MakeServer) -> None:
    """Definitions below `direct_chars` are sent with each request, and cost no search."""
    _, model = await run(McpServers(servers={'shop': make_server()}), 'done')
    assert 'shop_add' in model.requests[0].tool_names


async def test_general_purpose_subagent_has_the_servers_of_the_agent(make_server: MakeServer, calls: Calls) -> None:
    """The general-purpose subagent is the agent itself, and uses the same process."""
    result, _ = await run(
        McpServers(servers={'shop': make_server()}),
        call('task', description='Add.'),
        call('shop_add', a=1, b=2),
        'added',
        'done',
    )
    assert (result.output, calls()) == ('done', ['add 1 2'])


async def test_subagent_has_servers_of_its_own(make_server: MakeServer, calls: Calls) -> None:
    """A subagent with servers pauses for approval, as a subagent with other tools does."""
    child = Subagent('buyer', 'Buys.', capabilities=[McpServers(servers={'shop': make_server()})])
    model = ScriptedModel(call('task', subagent='buyer', description='Buy.'), call('shop_order', item='tea'))
    result = await create_deep_agent(model, subagents=[child], interrupt_on={}).run('go', deps=DeepAgentDeps())
    (pending,) = pending_approvals(result.output)
    assert (pending.path, pending.tool, calls()) == (('buyer',), 'shop_order', [])


async def test_agent_that_cannot_pause_is_refused(make_server: MakeServer) -> None:
    """Without approvals, calls could not be held, so the run does not start."""
    agent = create_deep_agent(ScriptedModel('done'), capabilities=[McpServers(servers={'shop': make_server()})])
    with pytest.raises(UserError, match=r'`McpServers` requires approvals, and this agent cannot pause'):
        await agent.run('go', deps=DeepAgentDeps())


async def test_agent_without_servers_needs_no_approvals() -> None:
    """An empty configuration adds nothing."""
    agent = create_deep_agent(ScriptedModel('done'), capabilities=[McpServers(servers={})])
    assert (await agent.run('go', deps=DeepAgentDeps())).output == 'done'


async def test_state_lists_servers_and_tools(make_server: MakeServer, tmp_path: Path) -> None:
    """`status` connects to the servers, and lists their tools with effects and approvals."""
    servers = McpServers(servers={'shop': make_server(), 'broken': BROKEN}, allow=['shop_fail'])
    shop, broken = await servers.status()
    assert (shop.name, shop.error, shop.resources) == ('shop', None, 2)
    assert shop.tools[:2] == (
        McpToolStatus(name='shop_add', effect='read', needs_approval=False),
        McpToolStatus(name='shop_order', effect='external', needs_approval=True),
    )
    assert broken == McpServerStatus(
        name='broken',
        label='no-such-program',
        error="Client failed to connect: [Errno 2] No such file or directory: 'no-such-program'",
        tools=(),
        resources=0,
    )


async def test_server_over_http() -> None:
    """A server of the SDK works over streamable HTTP. With the current protocol, it cannot ask within a call."""
    async with listening(create_server().streamable_http_app()) as url:
        servers = McpServers(servers={'sdk': McpServer(url='${URL}', headers={'X-Key': 'k'})}, variables={'URL': url})
        _, model = await run(servers, call('sdk_add', a=1, b=2), call('sdk_ask'), 'done')
    (three, _), (refused, outcome) = results(model)
    assert (three, outcome) == ('3', 'failed')
    assert refused.startswith("Cannot send 'elicitation/create'")


async def test_silent_http_server_is_read_as_long_as_a_question_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of fastmcp would stop after 5 minutes, and the question would be lost."""
    seconds: list[float] = []
    send = httpx2.AsyncHTTPTransport.handle_async_request

    async def note(self: httpx2.AsyncHTTPTransport, request: httpx2.Request) -> httpx2.Response:
        seconds.append(request.extensions['timeout']['read'])
        return await send(self, request)

    monkeypatch.setattr(httpx2.AsyncHTTPTransport, 'handle_async_request', note)
    async with listening(create_server().streamable_http_app()) as url:
        for question_seconds, read_seconds in ((900.0, 960.0), (20.0, 300.0)):
            servers = McpServers(
                servers={'sdk': McpServer(url=url)}, call_timeout_seconds=60, question_seconds=question_seconds
            )
            await run(servers, call('sdk_add', a=1, b=2), 'done')
            assert set(seconds) == {read_seconds}
            seconds.clear()


async def test_redirects_to_other_servers_are_not_followed() -> None:
    """The headers of a server, which often hold a secret, are sent to its address only."""
    received: list[str] = []

    async def other(scope: Any, receive: Any, send: Any) -> None:
        received.append(scope['path'])

    async with listening(other) as elsewhere:

        async def redirect(scope: Any, receive: Any, send: Any) -> None:
            headers = [(b'location', elsewhere.encode())]
            await send({'type': 'http.response.start', 'status': 307, 'headers': headers})
            await send({'type': 'http.response.body'})

        async with listening(redirect) as url:
            (status,) = await McpServers(servers={'sdk': McpServer(url=url, headers={'X-Key': 'secret'})}).status()
    assert status.error is not None
    assert received == []


async def test_reason_of_an_http_error_has_its_status() -> None:
    """A wrong key is the most frequent reason, and the SDK does not mention it."""
    async with listening(Response('no', status_code=401)) as url:
        servers = McpServers(servers={'sdk': McpServer(url=url)})
        await run(servers, 'Done.')
    assert servers.errors['sdk'] == 'Server returned an error response: HTTP 401 Unauthorized'


async def test_next_run_uses_a_server_that_was_restarted() -> None:
    """A restarted server has forgotten its sessions, and may have other tools. An approved call runs nevertheless."""
    sessions: set[str] = set()
    tools = ['old']

    async def answer(request: Request) -> Response:
        message = await request.json()
        headers: dict[str, str] = {}
        match message['method']:
            case 'initialize':
                headers['mcp-session-id'] = f's{len(tools)}'
                sessions.add(headers['mcp-session-id'])
                info = {'name': 'shop', 'version': '1'}
                result: dict[str, Any] = {
                    'protocolVersion': '2025-11-25',
                    'capabilities': {'tools': {}},
                    'serverInfo': info,
                }
            case 'server/discover':
                return Response(status_code=404)
            case _ if request.headers.get('mcp-session-id') not in sessions:
                return Response(status_code=404)
            case 'tools/list':
                result = {'tools': [{'name': name, 'inputSchema': {'type': 'object'}} for name in tools]}
            case 'tools/call':
                result = {'content': [{'type': 'text', 'text': f'{message["params"]["name"]} ran'}]}
            case _:
                return Response(status_code=202)
        return JSONResponse({'jsonrpc': '2.0', 'id': message['id'], 'result': result}, headers=headers)

    app = Starlette(routes=[Route('/mcp', answer, methods=['POST'])])
    model = ScriptedModel(call('shop_old'), 'Done.')
    async with listening(app) as url:
        servers = McpServers(servers={'shop': McpServer(url=url)})
        agent = create_deep_agent(model, capabilities=[servers], interrupt_on={})
        async with agent:
            paused = await agent.run('go', deps=DeepAgentDeps())
            sessions.clear()
            tools.append('new')
            (approval,) = pending_approvals(paused.output)
            await agent.run(
                conversation=paused.conversation,
                deferred_tool_results=answer_approvals(paused.output, {approval.id: Approve()}),
                deps=DeepAgentDeps(),
            )
            assert servers.errors == {}
    assert results(model) == [('old ran', 'success')]
    assert 'shop_new' in model.requests[-1].tool_names


async def test_http_server_that_does_not_answer_is_missing() -> None:
    """A connection that is refused is the reason why the server is missing."""
    port = free_port()
    (status,) = await McpServers(servers={'sdk': McpServer(url=f'http://127.0.0.1:{port}/mcp')}).status()
    assert status.error is not None
    assert 'connect' in status.error


def test_servers_are_read_from_a_file(tmp_path: Path) -> None:
    """`from_file` reads the format of other clients."""
    (tmp_path / '.mcp.json').write_text('{"mcpServers": {"shop": {"command": "shop"}}}')
    servers = McpServers.from_file(tmp_path / '.mcp.json', allow=['shop_*'])
    assert servers == McpServers(servers={'shop': McpServer(command='shop', cwd=str(tmp_path))}, allow=['shop_*'])


@pytest.mark.parametrize(
    ('options', 'error', 'text'),
    [
        ({'allow': 'shop_*'}, TypeError, r"`allow` is 'shop_\*'\. Pass a list: `\['shop_\*'\]`\."),
        ({'direct_chars': 0}, ValueError, r'`direct_chars` is 0\. Use a positive number\.'),
        ({'call_timeout_seconds': -1}, ValueError, r'`call_timeout_seconds` is -1\. Use a positive number\.'),
        ({'servers': {' ': BROKEN}}, McpConfigError, r"An MCP server has the name ' '"),
        ({'servers': {'a': McpServer(url='${NONE}')}}, McpConfigError, r'the environment variable NONE'),
    ],
)
def test_invalid_options_are_errors(options: dict[str, Any], error: type[Exception], text: str) -> None:
    """Wrong options fail when the capability is created, with the value."""
    with pytest.raises(error, match=text):
        McpServers(**cast('dict[str, Any]', {'servers': {}, 'variables': {}, **options}))


def _find_nothing(name: str) -> None:
    return None


def test_missing_extra_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error names it."""
    monkeypatch.setattr('pydantic_deep.mcp._capability.find_spec', _find_nothing)
    with pytest.raises(ModuleNotFoundError, match=r'versioned-deep-agents\[mcp\]'):
        McpServers(servers={})
