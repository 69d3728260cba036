"""Forms: a client that can show one answers approvals with it, in both generations of the protocol."""

from __future__ import annotations

from typing import Any

import pytest
from inline_snapshot import snapshot
from mcp.server.session import ServerSession
from mcp_types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    InputResponses,
    ListRootsResult,
)

from pydantic_deep.server.mcp._elicitation import FORM, QUESTION_FORM
from tests.server.conftest import Served
from tests.server.mcp.conftest import Connect, Mode, error_of, over_http, result_of

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize('mode', ['legacy', 'auto'])


class Person:
    """Fills the forms in order, and has them."""

    def __init__(self, *answers: ElicitResult | ErrorData) -> None:
        self.forms: list[ElicitRequestParams] = []
        self._answers = list(answers)

    async def __call__(self, context: object, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        self.forms.append(params)
        return self._answers.pop(0)


def filled(decision: str, **content: Any) -> ElicitResult:
    return ElicitResult(action='accept', content={'decision': decision, **content})


@MODES
async def test_person_approves_in_a_form(connect: Connect, mode: Mode) -> None:
    """The form shows the complete call; the accepted call runs, and `run` returns the end of the turn."""
    person = Person(filled('approve'))
    async with connect(mode=mode, elicitation_callback=person) as client:
        done = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert (done['state'], done['output']) == ('complete', 'Written.')
    [form] = person.forms
    assert isinstance(form, ElicitRequestFormParams)
    assert form.requested_schema == FORM
    assert form.message == snapshot("""\
The agent asks for permission.

Tool: write_file
Argument path: /a.txt
Argument content:
  | a
Preview (diff):
  | --- /dev/null
  | +++ b/a.txt
  | @@ -0,0 +1 @@
  | +a\
""")


@MODES
async def test_each_pending_call_has_a_form(connect: Connect, mode: Mode) -> None:
    """Two pending calls are two forms, and the turn resumes after both, with the reason of a denial."""
    person = Person(filled('approve'), filled('deny', reason='Not this one.'))
    async with connect(mode=mode, elicitation_callback=person) as client:
        done = result_of(await client.call_tool('run', {'prompt': '/a.txt=a /b.txt=b', 'agent': 'asker'}))
        files = result_of(await client.call_tool('diff', {'version': done['version']}))['files']
    assert len(person.forms) == 2
    assert [file['path'] for file in files] == ['/a.txt']


async def test_progress_increases_across_the_runs_of_a_call(connect: Connect) -> None:
    """A call that shows a form waits for two runs. Their progress belongs to one request."""
    received: list[float] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    async with connect(mode='legacy', elicitation_callback=Person(filled('approve'))) as client:
        task = {'prompt': '/a.txt=a', 'agent': 'asker'}
        result_of(await client.call_tool('run', task, progress_callback=note))
    assert received == [1, 2]


@MODES
@pytest.mark.parametrize(
    'answer', [ElicitResult(action='decline'), ElicitResult(action='cancel'), ElicitResult(action='accept', content={})]
)
async def test_dismissed_form_leaves_the_approval_pending(connect: Connect, mode: Mode, answer: ElicitResult) -> None:
    """Without a decision, the run is returned with its pending approvals, and can be answered with the tool."""
    async with connect(mode=mode, elicitation_callback=Person(answer)) as client:
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert (paused['state'], len(paused['approvals'])) == ('awaiting_approval', 1)


async def test_client_that_fails_to_show_the_form_gets_the_approvals(connect: Connect) -> None:
    """An error of the client in a form is no decision either."""
    person = Person(ErrorData(code=-32603, message='no window'))
    async with connect(mode='legacy', elicitation_callback=person) as client:
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert len(paused['approvals']) == 1


@MODES
async def test_form_that_another_client_answers_meanwhile_has_no_effect(connect: Connect, mode: Mode) -> None:
    """The first answer counts. The client whose form was open gets the run, and can continue it if nobody has."""
    async with connect('approve') as other:

        async def deny_late(context: object, params: ElicitRequestParams) -> ElicitResult:
            [shown] = result_of(await other.call_tool('list_approvals', {}))['approvals']
            answer = {'approval': shown['approval'], 'decision': 'approve', 'digest': shown['digest']}
            await other.call_tool('answer_approval', answer)
            return filled('deny')

        async with connect(mode=mode, elicitation_callback=deny_late) as client:
            run = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
            assert (run['state'], run['approvals']) == ('awaiting_approval', [])
            assert 'call `resume_run`' in run['next']
            done = result_of(await client.call_tool('resume_run', {'run': run['run']}))
            files = result_of(await client.call_tool('diff', {'version': done['version']}))['files']
    assert [file['path'] for file in files] == ['/a.txt']


@MODES
async def test_reason_that_is_too_long_is_refused(connect: Connect, mode: Mode) -> None:
    """The form has the maximum length of a reason. A longer one is an error, and the approval is pending."""
    async with connect(mode=mode, elicitation_callback=Person(filled('deny', reason='x' * 10_001))) as client:
        refused = error_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
        assert refused == 'The reason is longer than 10,000 characters. Shorten it.'
        assert len(result_of(await client.call_tool('list_approvals', {}))['approvals']) == 1


async def test_client_that_responds_with_no_form_gets_the_approvals(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A response that the protocol does not know is no decision either, and no defect of the server."""

    async def respond(*arguments: object) -> ElicitResult:
        return ElicitResult.model_validate({'action': 'later'})

    monkeypatch.setattr(ServerSession, 'elicit_form', respond)  # a stock client checks what it sends
    async with connect(mode='legacy', elicitation_callback=Person()) as client:
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert len(paused['approvals']) == 1


@MODES
@pytest.mark.parametrize('tool', ['get_run', 'resume_run', 'answer_approval'])
async def test_every_tool_that_waits_shows_forms(connect: Connect, mode: Mode, tool: str) -> None:
    """A pause that `get_run`, `resume_run` or `answer_approval` meets is shown as a form too."""
    person = Person(filled('approve'), filled('approve'))
    async with connect() as plain, connect(mode=mode, elicitation_callback=person) as client:
        paused = result_of(await plain.call_tool('run', {'prompt': 'twice', 'agent': 'asker'}))
        [shown] = paused['approvals']
        answer = {'approval': shown['approval'], 'decision': 'approve', 'digest': shown['digest']}
        if tool == 'resume_run':
            async with connect('approve') as other:
                await other.call_tool('answer_approval', answer)
        arguments = answer if tool == 'answer_approval' else {'run': paused['run']}
        done = result_of(await client.call_tool(tool, arguments))
    assert (done['run'] if tool == 'answer_approval' else done)['state'] == 'complete'
    assert len(person.forms) == (2 if tool == 'get_run' else 1)


async def test_client_over_http_repeats_the_call_with_the_form(served: Served) -> None:
    """The newer protocol needs no connection in both directions, so forms work over HTTP without sessions."""
    person = Person(filled('approve'))
    async with over_http(served, elicitation=person) as client:
        done = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
    assert (done['state'], len(person.forms)) == ('complete', 1)


async def test_repeated_call_without_answers_returns_the_approvals(connect: Connect) -> None:
    """A client that repeats a call with no answer, with another kind, or for another call, gets the run as it is."""
    async with connect(elicitation_callback=Person()) as client, connect() as plain:
        paused = result_of(await plain.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
        [shown] = paused['approvals']
        wrong: InputResponses = {f'{shown["approval"]}:{shown["digest"]}': ListRootsResult(roots=[])}
        other: InputResponses = {f'{shown["approval"]}:{"0" * 64}': filled('approve')}
        for given in (InputResponses(), wrong, other):
            again = await client.call_tool(
                'get_run', {'run': paused['run']}, request_state=paused['run'], input_responses=given
            )
            assert result_of(again) == paused


@MODES
async def test_key_without_the_scope_sees_no_forms(connect: Connect, mode: Mode) -> None:
    """A key that may not approve cannot approve with a form either."""
    person = Person()
    async with connect('run', mode=mode, elicitation_callback=person) as client:
        paused = result_of(await client.call_tool('run', {'prompt': '/a.txt=a', 'agent': 'asker'}))
        assert person.forms == []
        forged = await client.call_tool('run', {'prompt': 'x'}, request_state=paused['run'], input_responses={})
    if mode == 'auto':
        assert error_of(forged) == snapshot('Answering approvals requires a key with the scope `approve`.')


@MODES
async def test_question_has_a_form_for_its_answer(connect: Connect, mode: Mode) -> None:
    """A question of the agent is a form with one text, which is the answer."""
    person = Person(ElicitResult(action='accept', content={'answer': 'rose'}))
    async with connect(mode=mode, elicitation_callback=person) as client:
        done = result_of(await client.call_tool('run', {'prompt': 'Go', 'agent': 'curious'}))
    assert (done['state'], done['output']) == ('complete', 'rose')
    [form] = person.forms
    assert isinstance(form, ElicitRequestFormParams)
    assert form.requested_schema == QUESTION_FORM
    assert form.message.startswith('The agent asks a question.')


@MODES
async def test_question_without_an_answer_stays_pending(connect: Connect, mode: Mode) -> None:
    """A dismissed form, or one without an answer, leaves the question in the inbox."""
    person = Person(ElicitResult(action='accept', content={}))
    async with connect(mode=mode, elicitation_callback=person) as client:
        paused = result_of(await client.call_tool('run', {'prompt': 'Go', 'agent': 'curious'}))
    assert (paused['state'], len(paused['approvals'])) == ('awaiting_approval', 1)
