"""AG-UI and Vercel AI: user interfaces with these protocols can use an agent without further code.

Such clients send their whole history, but the server's history is authoritative. Only new prompts, answers to pending
approvals, and results of pending external calls are read from it. The ids of answers name their runs, so that a prompt
after an edit continues on a branch. A run continues if the client disconnects, and each event has an id from which
reading can resume.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Header
from starlette.responses import Response

from pydantic_deep.server.http._errors import describe_errors
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.runs._event_stream import FRAME_SCHEMA
from pydantic_deep.server.ui._ag_ui import AG_UI, AgUiRequest, parse_ag_ui_request, place_in_ag_ui, render_ag_ui
from pydantic_deep.server.ui._turns import start_thread_run, tail_after, tail_run, tail_thread
from pydantic_deep.server.ui._vercel import (
    HEADER,
    VERCEL,
    VercelRequest,
    parse_vercel_request,
    place_in_vercel,
    render_vercel,
)

from ._parameters import Runner

router = APIRouter(tags=['ui'], route_class=JsonRoute)

LastEventId = Annotated[str | None, Header(description='The id of the last event that was read.', max_length=200)]


def _streams(example: str) -> dict[int | str, dict[str, Any]]:
    return {
        200: {
            'description': 'The events of the run as they occur.',
            'content': {'text/event-stream': {'itemSchema': FRAME_SCHEMA, 'example': example}},
        },
        204: {'description': 'No more events, or no active run.'},
        **describe_errors('not_found', 'conflict', 'too_large'),
    }


_AG_UI_RESPONSES = _streams('id: …\ndata: {"type":"RUN_STARTED","threadId":"t1","runId":"r1"}\n\n')
_VERCEL_RESPONSES = _streams('id: …\ndata: {"type":"text-delta","id":"1","delta":"Read"}\n\n')

_AG_UI_PROMPT: dict[str, Any] = {
    'threadId': 't1',
    'runId': 'r1',
    'state': {},
    'messages': [{'id': 'm1', 'role': 'user', 'content': 'Read sales.csv.'}],
    'tools': [],
    'context': [],
    'forwardedProps': {},
}
_AG_UI_DECISION: dict[str, Any] = {
    **_AG_UI_PROMPT,
    'runId': 'r2',
    'messages': [],
    'resume': [{'interruptId': 'call_1', 'status': 'resolved', 'payload': {'approved': True}}],
}
_VERCEL_PROMPT: dict[str, Any] = {
    'id': 'c1',
    'trigger': 'submit-message',
    'messages': [{'id': 'm1', 'role': 'user', 'parts': [{'type': 'text', 'text': 'Read sales.csv.'}]}],
}
_VERCEL_DECISION: dict[str, Any] = {
    'id': 'c1',
    'messages': [
        {
            'id': 'm2',
            'role': 'assistant',
            'parts': [
                {
                    'type': 'tool-write_file',
                    'toolCallId': 'call_1',
                    'state': 'approval-responded',
                    'input': {'path': '/a.txt', 'content': 'x'},
                    'approval': {'id': 'call_1', 'approved': True},
                }
            ],
        }
    ],
}


@router.post('/ag-ui/{agent}', summary='AG-UI: continue a thread', response_class=Response, responses=_AG_UI_RESPONSES)
async def run_ag_ui(
    agent: str,
    body: Annotated[
        AgUiRequest, Body(openapi_examples={'words': {'value': _AG_UI_PROMPT}, 'answers': {'value': _AG_UI_DECISION}})
    ],
    access: Runner,
    last_event_id: LastEventId = None,
) -> Response:
    """Requires the scope `run`; for answers to interrupts, also `approve`.

    Repeating a request with `Last-Event-ID` resumes the stream and starts no run.
    The server's history is authoritative: only prompts and results of tools after the last answer are read. They continue
    after that answer, on a branch if it is not the newest one.
    A call of one of the `tools` ends the run, and its result in a message with the role `tool` continues the turn.
    A pending approval is an interrupt: its `metadata` describes the call, and its `responseSchema` the accepted
    answers. The plan is the shared state. Other events are custom events: `pydantic-deep.file` and
    `pydantic-deep.status`.
    """
    render = render_ag_ui(access.agent(agent), body.thread_id, body.run_id)
    if last_event_id:
        return await tail_after(access, AG_UI, render, last_event_id)
    dialogue, place = parse_ag_ui_request(body), place_in_ag_ui(body)
    run = await start_thread_run(access, agent, body.thread_id, dialogue, place=place, form=AG_UI, render=render)
    return tail_run(access.state, run, AG_UI)


@router.get(
    '/ag-ui/{agent}/{thread}/stream',
    summary='AG-UI: stream the active run of a thread',
    response_class=Response,
    responses=_AG_UI_RESPONSES,
)
async def watch_ag_ui(agent: str, thread: str, access: Runner, last_event_id: LastEventId = None) -> Response:
    """Streams the active run from its beginning, or any run after the last event read. Several clients may watch."""
    render = render_ag_ui(access.agent(agent), thread)
    return await tail_thread(access, agent, thread, AG_UI, render, last_event_id)


@router.post(
    '/vercel/{agent}', summary='Vercel AI: continue a chat', response_class=Response, responses=_VERCEL_RESPONSES
)
async def run_vercel(
    agent: str,
    body: Annotated[
        VercelRequest,
        Body(openapi_examples={'words': {'value': _VERCEL_PROMPT}, 'answers': {'value': _VERCEL_DECISION}}),
    ],
    access: Runner,
    last_event_id: LastEventId = None,
) -> Response:
    """Requires the scope `run`; for answers to approvals, also `approve`.

    Repeating a request with `Last-Event-ID` resumes the stream and starts no run.
    The server's history is authoritative: only prompts after the last answer are read. A message that replaces
    `messageId`, and an answer that is generated again, are on a branch.
    A pending approval is a `tool-approval-request` with a part `data-approval` that describes the call. The output of an
    external call of the agent continues its turn. The plan is the part `data-todos`; other events are `data-file` and,
    transient, `data-status`.
    """
    if last_event_id:
        response = await tail_after(access, VERCEL, render_vercel(access, agent), last_event_id)
    else:
        dialogue, place = parse_vercel_request(body), place_in_vercel(body)
        render = render_vercel(access, agent, continues_answer=not dialogue.prompt)
        run = await start_thread_run(access, agent, body.id, dialogue, place=place, form=VERCEL, render=render)
        response = tail_run(access.state, run, VERCEL)
    response.headers.update(HEADER)
    return response


@router.get(
    '/vercel/{agent}/{thread}/stream',
    summary='Vercel AI: resume the stream of a chat',
    response_class=Response,
    responses=_VERCEL_RESPONSES,
)
async def watch_vercel(agent: str, thread: str, access: Runner, last_event_id: LastEventId = None) -> Response:
    """The endpoint of `resumeStream`: streams the active run from its beginning, or returns 204 if there is none.

    Several clients may watch.
    """
    response = await tail_thread(access, agent, thread, VERCEL, render_vercel(access, agent), last_event_id)
    response.headers.update(HEADER)
    return response
