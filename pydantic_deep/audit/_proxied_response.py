"""`audit_response`: the record of a provider stream that a `HybridResponse` proxied.

No agent runs, so nothing observes the stream. The caller creates the record when it has read the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from pydantic_deep._checks import check_name, check_names
from pydantic_deep._requests.prices import price_of
from pydantic_deep._session_id import current_session_id
from pydantic_deep.repository import Repository
from pydantic_deep.store import new_id
from pydantic_deep.streaming import HybridResponse

from ._record_from_events import JsonObject, calls_of, dump_messages, dump_value, label_of, question_of, storable
from ._redact import Redact, redact
from ._run_observer import now
from ._types import AuditedError, AuditedUsage, AuditRecord


async def audit_response(
    response: HybridResponse,
    repository: Repository[AuditRecord],
    *,
    messages: Sequence[ModelMessage] = (),
    agent_name: str = 'proxy',
    provider: str | None = None,
    model_settings: Mapping[str, object] | None = None,
    conversation_id: str | None = None,
    parent_run_id: str | None = None,
    session_id: str | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
    redact: Redact = redact,
) -> AuditRecord:
    """Write the record of a proxied provider stream, and return it.

    Call this function when no more of the stream will be read. The status is `success` for a complete response,
    `failed` for one with an error, and `interrupted` for a partial one. Tool calls are `deferred`, as the client
    executes them.

    Args:
        response: The proxied response.
        repository: The repository for the record.
        messages: The complete history that was sent to the provider, including the last prompt.
        agent_name: The agent name in the record.
        provider: The pydantic-ai name of the provider, such as `openai`. It is needed to compute the cost.
        model_settings: The settings of the request.
        conversation_id: The id of the conversation.
        parent_run_id: The id of the run that made the request.
        session_id: The client's session id; by default the one in `metadata`, or of `session_scope`.
        metadata: Further values. `owner` and `tenant` become fields of the record, as they do for runs.
        redact: Redacts secrets.

    Returns:
        The record, with secrets redacted. Its messages are the history and the response; `rehydrate` reads them.

    Raises:
        RepositoryError: The record could not be written.
        ValidationError: A name or an id is blank or not a string.
    """
    check_name('agent_name', agent_name)
    check_names(provider=provider, conversation_id=conversation_id, parent_run_id=parent_run_id, session_id=session_id)

    def clean(value: object) -> JsonValue:
        return storable(redact(dump_value(value)))

    run_id = new_id()
    answer = await _answer_of(response, provider, run_id, conversation_id)
    history = storable(redact(cast('JsonValue', dump_messages([*messages, answer]))))
    known = cast('list[JsonValue]', history)
    labels = cast('JsonObject', clean(dict(metadata or {})))
    session = {
        'session_id': current_session_id(),
        **labels,
        **({} if session_id is None else {'session_id': session_id}),
    }
    is_ended = response.finish_reason is not None and response.error is None
    status = 'failed' if response.error is not None else 'success' if is_ended else 'interrupted'
    record = AuditRecord(
        id=new_id(),
        run_id=run_id,
        conversation_id=conversation_id,
        parent_run_id=parent_run_id,
        agent_name=agent_name,
        owner=label_of(labels, 'owner'),
        tenant=label_of(labels, 'tenant'),
        session_id=label_of(cast('JsonObject', clean(session)), 'session_id'),
        metadata=labels,
        question=question_of(known[:-1]),
        messages=known,
        first_new=len(messages),
        model=':'.join(filter(None, (provider, response.model))) or None,
        model_settings=cast('JsonObject', clean(dict(model_settings or {}))),
        usage=AuditedUsage.model_validate(answer.usage, from_attributes=True),
        cost=price_of(answer),
        status=status,
        error=None
        if response.error is None
        else AuditedError(kind=response.error.kind, message=cast('str', clean(response.error.message))),
        tool_calls=calls_of(known, len(messages), {}, is_waiting=is_ended),
        output=clean(answer.text) if is_ended else None,
        started_at=response.started_at,
        ended_at=now(),
    )
    await repository.upsert(record)
    return record


async def _answer_of(
    response: HybridResponse, provider: str | None, run_id: str, conversation_id: str | None
) -> ModelResponse:
    """Return the received parts as a message."""
    text = await response.content()
    parts: list[ModelResponsePart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(call.name, call.arguments, call.id) for call in response.tool_calls]
    usage = response.usage
    return ModelResponse(
        parts,
        usage=RequestUsage()
        if usage is None
        else RequestUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        model_name=response.model,
        provider_name=provider,
        timestamp=response.started_at,
        finish_reason=response.finish_reason,
        run_id=run_id,
        conversation_id=conversation_id,
        state='complete' if response.finish_reason is not None else 'interrupted',
    )
