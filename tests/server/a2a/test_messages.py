"""Decisions in messages: what is accepted, and the errors for what is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from a2a.helpers import new_data_part, new_raw_part, new_text_part, new_url_part
from a2a.types import Part
from fastapi.exceptions import RequestValidationError
from inline_snapshot import snapshot

from pydantic_deep.approvals import Approve, Deny, Edit, Respond
from pydantic_deep.server.a2a._messages import parse_answers, prompt_content
from pydantic_deep.server.compat._dialogue import LinkedFile
from pydantic_deep.server.http._errors import ServerError, refusal_of
from pydantic_deep.views import StoredApproval
from tests.server.a2a.conftest import UNKNOWN

DIGEST = 'd' * 64


def approval(id: str, *, decisions: list[str] | None = None, status: str = 'pending') -> StoredApproval:
    examples: Any = StoredApproval.model_json_schema()['examples']
    fields: dict[str, Any] = {**examples[0], 'id': id, 'pending_id': f'call_{id}', 'status': status}
    fields['view'] = {**fields['view'], 'digest': DIGEST}
    return StoredApproval.model_validate({**fields, 'decisions': decisions or ['approve', 'edit', 'deny', 'respond']})


CALLS = [approval('1'), approval('2')]
QUESTION = [approval('3', decisions=['respond', 'deny'])]


def data(**fields: Any) -> Part:
    return new_data_part(fields)


def test_decisions_are_keyed_by_their_calls() -> None:
    """Each data part is a decision; the text of the message is the reason for all."""
    parts = [
        data(approval='1', decision='approve', digest=DIGEST),
        data(approval='2', decision='deny', reason='No.'),
        new_text_part('Because.'),
    ]
    given = parse_answers(parts, CALLS)
    assert given.answers == {'call_1': Approve(digest=DIGEST), 'call_2': Deny('No.')}
    assert given.reason == 'Because.'


def test_whole_numbers_are_whole_again() -> None:
    """A2A transports all numbers as doubles; arguments of calls get whole numbers back."""
    args = {'lines': [1, 2.5, True, None], 'of': {'n': -3}}
    [edit] = parse_answers([data(approval='1', decision='edit', digest=DIGEST, args=args)], CALLS).answers.values()
    assert isinstance(edit, Edit)
    assert json.dumps(edit.args, sort_keys=True) == json.dumps(args, sort_keys=True)


def test_text_answers_the_only_question() -> None:
    assert parse_answers([new_text_part('Tulip')], QUESTION).answers == {'call_3': Respond('Tulip', digest=DIGEST)}


def test_resume_has_no_decisions() -> None:
    given = parse_answers([data(decision='resume')], [approval('1', status='approved')])
    assert (given.answers, given.reason) == ({}, None)


@pytest.mark.parametrize(
    ('parts', 'error'),
    [
        (
            [],
            snapshot(
                'The message has no decision on a call of this task. Send a message to this task with a data part for each call: {"approval": …, "decision": …, "digest": …}, where `approval` and `digest` are those of the call. A denied call may have a `reason`; `respond` needs `content`, `edit` `args`.'
            ),
        ),
        (
            [new_text_part('approve')],
            snapshot(
                'The message has no decision on a call of this task. Send a message to this task with a data part for each call: {"approval": …, "decision": …, "digest": …}, where `approval` and `digest` are those of the call. A denied call may have a `reason`; `respond` needs `content`, `edit` `args`.'
            ),
        ),
        (
            [new_raw_part(b'x', media_type='image/png')],
            snapshot(
                'A message to a task with pending calls has no files. Send a message to this task with a data part for each call: {"approval": …, "decision": …, "digest": …}, where `approval` and `digest` are those of the call. A denied call may have a `reason`; `respond` needs `content`, `edit` `args`.'
            ),
        ),
        (
            [data(approval=UNKNOWN, decision='deny')],
            snapshot("This task has no approval '00000000-0000-7000-8000-000000000000'. Pending ones: 1, 2."),
        ),
        (
            [data(approval='1', decision='deny'), data(approval='1', decision='deny')],
            snapshot('The approval 1 has two decisions. Send one.'),
        ),
        (
            [data(approval='1', decision='approve')],
            snapshot(
                "The decision 'approve' requires `digest`: the `view.digest` of the approval as the person saw it. Only `deny` works without it."
            ),
        ),
        (
            [data(approval='1', decision='maybe', digest=DIGEST)],
            snapshot("The request is invalid: data.decision: Input should be 'approve', 'edit', 'deny' or 'respond'."),
        ),
        ([data(decision='deny')], snapshot('The request is invalid: data.approval: Field required.')),
        (
            [new_data_part('deny')],
            snapshot(
                'A decision is a JSON object. Send a message to this task with a data part for each call: {"approval": …, "decision": …, "digest": …}, where `approval` and `digest` are those of the call. A denied call may have a `reason`; `respond` needs `content`, `edit` `args`.'
            ),
        ),
        (
            [data(approval='1', decision='edit', digest=DIGEST, args={'n': 2**60})],
            snapshot(
                'The number 1152921504606846976 is not exact in A2A. Send numbers of 9007199254740992 or more as text.'
            ),
        ),
    ],
)
def test_wrong_decisions_are_errors_that_name_the_remedy(parts: list[Part], error: str) -> None:
    """Nothing is decided by a message that is not exactly a decision."""
    with pytest.raises((ServerError, RequestValidationError)) as raised:
        parse_answers(parts, CALLS)
    refusal = refusal_of(raised.value)
    assert refusal is not None
    assert refusal.message == error


def test_text_answers_neither_several_questions_nor_an_approval() -> None:
    for approvals in ([*QUESTION, *QUESTION], CALLS[:1]):
        with pytest.raises(ServerError, match='no decision'):
            parse_answers([new_text_part('yes')], approvals)


def test_answered_calls_are_known_and_left_to_the_common_checks() -> None:
    """A decision on a call that another person has answered is refused where all interfaces refuse it."""
    given = parse_answers([data(approval='1', decision='deny')], [approval('1', status='approved')])
    assert [*given.answers] == ['call_1']
    with pytest.raises(ServerError, match='Pending ones: none'):
        parse_answers([data(approval='2', decision='deny')], [approval('1', status='approved')])


def test_files_by_url_are_fetched_later_and_empty_parts_refused() -> None:
    assert prompt_content([new_url_part('https://a.example/b.png', media_type='image/png')]) == (
        LinkedFile(url='https://a.example/b.png', media_type='image/png'),
    )
    with pytest.raises(ServerError, match='A part is empty'):
        prompt_content([Part()])
