"""Questions of servers to the user (elicitation), their answers, and the metadata of a call that is paused by one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from pydantic_deep._messages.deferred_metadata import (
    QUESTION_DECISIONS,
    Answered,
    Approved,
    CallRequest,
    Edited,
    Preview,
    dump,
    parse_answer,
    with_notice,
)
from pydantic_deep._messages.form_fields import FormField, form_fields, read_answer, suggested_answers

KEY: Final = 'pydantic_deep_mcp'
"""The key of a `PausedCall` in the metadata of a deferred call."""

LOST: Final = 'The server no longer waits for the answer to its question, and this call may have taken effect. '
"""The beginning of the text about a call whose server or process has ended."""

RUN_AGAIN: Final = 'Approve it to run it (again), with the answers that were given, or deny it.'
"""The rest of the text for a person."""

DECLINED: Final = 'The question was declined.'
"""The rest of the text for the model."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class Question(_Model):
    """A question of a server."""

    message: str
    """The question."""
    form: dict[str, JsonValue] | None = None
    """The JSON Schema of the answer; `None` for a question with an address."""
    url: str | None = None
    """The address that the user should open."""

    @property
    def fields(self) -> tuple[FormField, ...]:
        """The fields of the answer.

        Raises:
            ValueError: A field is of a kind that MCP does not allow.
        """
        return form_fields(self.form or {})

    def preview(self, server: str) -> Preview:
        """Return the question for a person, with the name of the server."""
        return Preview(
            kind='question',
            text=f'The MCP server {server!r} asks:\n{self.message}',
            choices=suggested_answers(self.fields),
            fields=self.fields,
            has_form=True,
            link=self.url or '',
        )

    def response(self, answer: Answered) -> Response:
        """Return the answer of a person for the server.

        Raises:
            ValueError: It does not fit the fields.
        """
        if answer.is_declined:
            return Response(action='decline')
        content = read_answer(self.fields, answer.content)
        return Response(action='accept', content=None if self.url else content)


class Response(_Model):
    """The answer to a question, for the server."""

    action: Literal['accept', 'decline', 'cancel']
    content: dict[str, JsonValue] | None = None


class PausedCall(_Model):
    """A call that waits for answers. It has all that is needed to continue it."""

    questions: dict[str, Question] = {}
    """The questions without an answer, by their keys at the server. The first one is shown."""
    responses: dict[str, Response] = {}
    """The answers to other questions that the server asked at the same time."""
    request_state: str | None = None
    """The state with which the call is repeated, as the server returned it (since the protocol 2026-07-28)."""
    held: str | None = None
    """Identifies the question in the process that holds the call, if the server waits for the answer within its call."""
    earlier: tuple[tuple[Question, Response], ...] = ()
    """The answers that the call has used. If it has to run again, they answer the same questions."""

    def request(self, server: str) -> dict[str, Any]:
        """Return the metadata of the request for an answer."""
        question = next(iter(self.questions.values()))
        preview = question.preview(server)
        return self._dump(CallRequest(preview=preview, decisions=QUESTION_DECISIONS, has_begun=True))

    def request_to_repeat(self) -> dict[str, Any]:
        """Return the metadata of the request to a person to run a call again that may have taken effect."""
        return self._dump(CallRequest(preview=with_notice(None, LOST + RUN_AGAIN), decisions=('approve', 'deny')))

    def _dump(self, request: CallRequest) -> dict[str, Any]:
        return {**dump(request), KEY: self.model_dump(mode='json')}


class Asked(Exception):
    """A call waits for an answer. This is no error, and never leaves the package."""

    def __init__(self, paused: PausedCall) -> None:
        self.paused = paused
        super().__init__('A server asks the user.')


def question_of(params: object) -> Question:
    """Return a question of the protocol.

    Raises:
        ValueError: It cannot be shown.
    """
    question = Question(
        message=getattr(params, 'message', ''),
        form=getattr(params, 'requested_schema', None),
        url=getattr(params, 'url', None),
    )
    if question.url is not None and not question.url.startswith(('https://', 'http://')):
        raise ValueError('The address of a question starts with https:// or http://.')
    _ = question.fields  # raises if the form cannot be shown
    return question


def paused_call(metadata: Mapping[str, Any] | None) -> tuple[PausedCall, Answered | None] | None:
    """Return the paused call that a person decided on, with the answer; `None` for a new call.

    The answer is `None` if the person approved running the call again.
    """
    answer = parse_answer(metadata)
    if not isinstance(answer, (Answered, Approved, Edited)) or KEY not in answer.request:
        return None
    paused = PausedCall.model_validate(answer.request[KEY])
    return paused, answer if isinstance(answer, Answered) else None
