"""Approvals as forms of the client: elicitation.

A client that declares it shows the form to its user. Clients of protocol versions before 2026-07-28 receive it as a
request while the tool runs, which needs a connection in both directions: standard input and output, or a session over
HTTP. Later ones receive it as the result of the call, and repeat the call with the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    InputResponse,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, refusal_of
from pydantic_deep.server.routes import _approvals, _turns
from pydantic_deep.server.schemas._approvals import Answer, PendingCall
from pydantic_deep.server.schemas._fields import MAX_REASON_CHARS

from ._call import Call
from ._runs import run_result, wait_for_run
from ._shapes import RunResult

FORM: Final[dict[str, Any]] = {
    'type': 'object',
    'properties': {
        'decision': {'type': 'string', 'title': 'Decision', 'enum': ['approve', 'deny']},
        'reason': {
            'type': 'string',
            'title': 'Reason',
            'description': 'The agent receives it if you deny the call.',
            'maxLength': MAX_REASON_CHARS,
        },
    },
    'required': ['decision'],
}
"""The form of an approval. Other decisions are possible on the page, at the command line, and with `answer_approval`."""

QUESTION_FORM: Final[dict[str, Any]] = {
    'type': 'object',
    'properties': {
        'answer': {
            'type': 'string',
            'title': 'Answer',
            'description': 'If there are several fields: a line `name: value` for each, or JSON.',
        }
    },
    'required': ['answer'],
}
"""The form of a question. A question can be declined elsewhere."""


async def wait_and_ask(call: Call, run_id: str, *, seconds: float) -> RunResult | InputRequiredResult:
    """Wait for a run, show its approvals to the person if the client can, and continue with the answers.

    Args:
        call: The call.
        run_id: The run.
        seconds: The maximum time to wait for each run. Forms are waited for without a limit.
    """
    while True:
        run = await wait_for_run(call.access, run_id, seconds=seconds, report=call.report)
        result = run_result(call.access, run)
        if call.params.request_state == run_id or not result.approvals or not can_ask(call.access, call.session):
            return result
        if _repeats_calls(call.session):
            return _ask_by_result(run.id, result.approvals)
        resumed = await _ask_for_all(call, result.approvals)
        if resumed is None:
            return run_result(call.access, await _turns.read_run(run_id, call.access))
        run_id = resumed


async def continued_run(call: Call) -> str | None:
    """Answer approvals with the forms in a repeated call, and return the run to wait for; `None` for a first call.

    The id of the run comes from the client, so it is checked like any other.
    """
    run_id = call.params.request_state
    if run_id is None:
        return None
    if not call.access.has('approve'):
        raise ServerError('forbidden', 'Answering approvals requires a key with the scope `approve`.')
    pending = run_result(call.access, await _turns.read_run(run_id, call.access)).approvals
    for shown, answer in filled_forms(pending, call.params.input_responses or {}):
        run_id = await answer_form(call.access, shown, answer, resume=True) or run_id
    return run_id


def filled_forms(
    pending: Sequence[PendingCall], responses: Mapping[str, InputResponse]
) -> list[tuple[PendingCall, Answer]]:
    """Return the pending calls that filled forms answer, each with its answer."""
    found = ((shown, responses.get(_key(shown))) for shown in pending)
    answers = ((shown, _answer_of(shown, form)) for shown, form in found if isinstance(form, ElicitResult))
    return [(shown, answer) for shown, answer in answers if answer is not None]


async def _ask_for_all(call: Call, pending: Sequence[PendingCall]) -> str | None:
    """Show a form for each call, and return the run that resumes after the last one; `None` if one was dismissed."""
    resumed: str | None = None
    for shown in pending:
        try:
            answer = _answer_of(shown, await call.session.elicit_form(_message(shown), _form(shown), call.request_id))
        except (MCPError, ValidationError):  # the client cannot show the form now: the approval stays pending
            return None
        if answer is None:
            return None
        resumed = await answer_form(call.access, shown, answer, resume=True)
    return resumed


async def answer_form(access: Access, pending: PendingCall, answer: Answer, *, resume: bool) -> str | None:
    """Answer an approval through the route, and return the run that resumes with it, if it was the last one.

    The answer has no effect if the approval was answered while the form was open, or the call has changed since.
    """
    try:
        return (await _approvals.answer_approval(pending.approval, answer, access, resume=resume)).run_id
    except DeepAgentError as error:
        refusal = refusal_of(error)
        if refusal is None or refusal.type != 'conflict':
            raise
    return None


def can_ask(access: Access, session: ServerSession) -> bool:
    """Return whether the caller may approve, the client shows forms, and this connection can transport them."""
    capabilities = session.client_capabilities
    if not access.has('approve') or capabilities is None or capabilities.elicitation is None:
        return False
    declared = capabilities.elicitation
    has_forms = declared.form is not None or declared.url is None  # older clients declare an empty object
    return has_forms and (_repeats_calls(session) or session.can_send_request)


def _repeats_calls(session: ServerSession) -> bool:
    """Return whether the client receives forms as results, and repeats the call with the answers."""
    return session.protocol_version in MODERN_PROTOCOL_VERSIONS


def _ask_by_result(run_id: str, pending: Sequence[PendingCall]) -> InputRequiredResult:
    """Return the result that asks the client for answers and for a repetition of the call."""
    return InputRequiredResult(input_requests=forms_of(pending), request_state=run_id)


def forms_of(pending: Sequence[PendingCall]) -> InputRequests:
    """Return the forms of pending calls, by key."""
    return {
        _key(shown): ElicitRequest(
            params=ElicitRequestFormParams(message=_message(shown), requested_schema=_form(shown))
        )
        for shown in pending
    }


def _key(pending: PendingCall) -> str:
    """Return the key of a form, which names the call as shown: an answer to another one is none."""
    return f'{pending.approval}:{pending.digest}'


def _answer_of(pending: PendingCall, result: ElicitResult) -> Answer | None:
    """Return the answer in a filled form; `None` if it was dismissed, or has neither a decision nor an answer.

    A dismissed form leaves the approval pending: it is no decision about the call.

    Raises:
        ServerError: The reason is too long.
    """
    content = result.content or {}
    if pending.is_question:
        given = content.get('answer')
        is_given = result.action == 'accept' and given is not None
        return Answer(decision='respond', content=str(given), digest=pending.digest) if is_given else None
    decision, reason = content.get('decision'), content.get('reason')
    if result.action != 'accept' or decision not in ('approve', 'deny'):
        return None
    if reason and len(str(reason)) > MAX_REASON_CHARS:
        raise ServerError('invalid', f'The reason is longer than {MAX_REASON_CHARS:,} characters. Shorten it.')
    return Answer(decision=decision, reason=str(reason) if reason else None, digest=pending.digest)


def _message(pending: PendingCall) -> str:
    return f'The agent asks {"a question" if pending.is_question else "for permission"}.\n\n{pending.call}'


def _form(pending: PendingCall) -> dict[str, Any]:
    return QUESTION_FORM if pending.is_question else FORM
