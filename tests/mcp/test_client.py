"""Questions by the protocol 2026-07-28: the server returns them, and the call is repeated with the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pydantic_deep import Approve, DeepAgentDeps, Deny, Edit, Respond, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.approvals import Decision
from pydantic_deep.mcp import McpServer, McpServers
from pydantic_deep.testing import ScriptedModel, Step, call

from .sdk_server import create_server
from .test_capability import listening
from .test_questions import Dialogue

pytestmark = pytest.mark.anyio


def sdk(url: str) -> McpServers:
    return McpServers(servers={'sdk': McpServer(url=url)}, allow=['sdk_book'])


async def test_answers_continue_the_call_in_any_process(tmp_path: Path) -> None:
    """Nothing is held: another agent with the same store, as in another process, continues the call with the answers."""
    booked: list[str] = []
    url = f'sqlite:///{tmp_path}/store.db'

    def agent(address: str, *steps: Step) -> VersionedAgent[DeepAgentDeps, Any]:
        made = create_deep_agent(ScriptedModel(*steps), capabilities=[sdk(address)], interrupt_on={})
        return VersionedAgent(made, store)

    async with listening(create_server(booked.append).streamable_http_app()) as address:
        async with open_store(url) as store:
            paused = await (await agent(address, call('sdk_book', item='tea')).create()).advance('go')
            (first,) = paused.pending
            assert first.preview is not None
            assert first.preview.text == "The MCP server 'sdk' asks:\nWho?"
        async with open_store(url) as store:
            paused = await (await agent(address).load(paused.id)).resume({first.id: Respond('Ada')})
            (second,) = paused.pending
            assert (second.preview is not None, booked) == (True, [])
        async with open_store(url) as store:
            done = await (await agent(address, 'done').load(paused.id)).resume({second.id: Respond(2)})
    assert (done.output, booked) == ('done', ['2 tea for Ada'])


async def test_declined_question_ends_the_call() -> None:
    """The server decides what a declined question means."""
    async with listening(create_server().streamable_http_app()) as address:
        dialogue = Dialogue(sdk(address), call('sdk_book', item='tea'), 'done')
        (first,) = await dialogue.go()
        (second,) = await dialogue.answer({first.id: Deny()})
        await dialogue.answer({second.id: Respond('2')})
    assert 'decline' in str(dialogue.results[0])


@pytest.mark.parametrize(('decision', 'item'), [(Approve(), 'tea'), (Edit({'item': 'coffee'}), 'coffee')])
async def test_approved_call_asks_its_questions(decision: Decision, item: str) -> None:
    """A call that needs approval asks after it, with the arguments that a person has edited."""
    booked: list[str] = []
    async with listening(create_server(booked.append).streamable_http_app()) as address:
        servers = McpServers(servers={'sdk': McpServer(url=address)})
        dialogue = Dialogue(servers, call('sdk_book', item='tea'), 'done')
        (approval,) = await dialogue.go()
        (first,) = await dialogue.answer({approval.id: decision})
        (second,) = await dialogue.answer({first.id: Respond('Ada')})
        await dialogue.answer({second.id: Respond('3')})
    assert (booked, str(dialogue.results[0])[:6]) == ([f'3 {item} for Ada'], 'booked')


async def test_question_that_cannot_be_shown_fails_the_call() -> None:
    """The call of a server that asks to open what is no address fails with a sentence."""
    async with listening(create_server().streamable_http_app()) as address:
        dialogue = Dialogue(sdk(address), call('sdk_odd'), 'done')
        await dialogue.go()
    assert str(dialogue.results[0]).startswith('The server asks a question that cannot be shown: The address')


class Earlier:
    """A server that speaks only protocols before 2026-07-28."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope['type'] == 'http' and scope['method'] == 'POST':
            message = await receive()
            if b'"server/discover"' in message['body']:
                await JSONResponse({'error': 'unknown'}, status_code=400)(scope, receive, send)
                return
            first = [message]

            async def again() -> Message:
                return first.pop() if first else await receive()

            await self.app(scope, again, send)
            return
        await self.app(scope, receive, send)


async def test_parallel_questions_over_http_belong_to_their_calls() -> None:
    """By earlier protocols over HTTP, a question arrives on the stream of its call, so several can ask at once."""
    app = create_server().streamable_http_app()
    async with listening(Earlier(app)) as address:
        dialogue = Dialogue(sdk(address), [call('sdk_ask'), call('sdk_book', item='tea')], 'done')
        async with dialogue.agent:
            name, first = await dialogue.go()
            assert (name.tool, first.tool) == ('sdk_ask', 'sdk_book')
            (second,) = await dialogue.answer({name.id: Respond('Ada'), first.id: Respond('Bob')})
            await dialogue.answer({second.id: Respond('3')})
    assert dialogue.results[0] == "action='accept' data=Name(name='Ada')"
    assert dialogue.results[1] == 'booked'
