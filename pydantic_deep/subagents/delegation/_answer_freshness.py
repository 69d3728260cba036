"""Check that answers belong to the calls that are pending now, before any tool runs.

pydantic-ai rejects answers for calls with a result. A subagent that was answered in part, however, stays suspended
under the same call, and answers for its earlier pause would run the same calls again. So each pause of a child has a
number. It is stored with the pause and, while the child is suspended, in the `details` of the usage, which a
`Conversation` contains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_ai import ToolApproved, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.deferred_metadata import DelegationAnswers, parse_answer
from pydantic_deep.subagents._tree_position import PausedChild

_PREFIX = 'pydantic_deep.pause.'
"""Prefix of our keys in `RunUsage.details`, followed by the conversation id of the child."""


def number_pause(usage: RunUsage, conversation_id: str) -> int:
    """Return the number of a new pause of a child, and record it as the current one."""
    key = _PREFIX + conversation_id
    number = usage.details.get(key, 0) + 1
    usage.details[key] = number
    return number


def forget_pauses(usage: RunUsage, conversation_id: str) -> None:
    """Remove the recorded pause of a child that has ended."""
    usage.details.pop(_PREFIX + conversation_id, None)


def conversation_of(messages: list[ModelMessage]) -> str | None:
    """Return the conversation id of the last response, which a forked conversation retains."""
    return next((message.conversation_id for message in reversed(messages) if isinstance(message, ModelResponse)), None)


def check_answers(
    response: ModelResponse,
    metadata_by_id: Mapping[str, Mapping[str, Any]] | None,
    usage: RunUsage,
    names: Collection[str],
) -> None:
    """Raise for answers that do not belong to the current pause of a subagent.

    Args:
        response: The response with the answered calls.
        metadata_by_id: The metadata of the answers, keyed by call id.
        usage: The usage of the run.
        names: The names of the subagents.

    Raises:
        UserError: The answers belong to another conversation, an earlier pause, or an unknown subagent.
    """
    for call_id, metadata in (metadata_by_id or {}).items():
        try:
            answer = parse_answer(metadata)
            if not isinstance(answer, DelegationAnswers):
                continue
            state = PausedChild.model_validate(answer.request.state)
        except (ValidationError, ValueError):
            continue  # damaged answers are refused where they are used
        if answer.request.subagent not in names:
            raise UserError(
                f'The answers are for the subagent {answer.request.subagent!r}, and this agent has '
                f'{", ".join(names) or "none"}. Resume with an agent that has it; nothing has run.'
            )
        if state.parent_conversation_id != response.conversation_id:
            raise UserError(
                f'The answers for the subagent {answer.request.subagent!r} (call {call_id!r}) belong to another '
                'conversation. List the pending calls of this one with `pending_approvals`, and answer those.'
            )
        waiting = usage.details.get(_PREFIX + answer.request.conversation_id)
        if waiting is not None and waiting != state.pause_number:
            raise UserError(
                f'The answers for the subagent {answer.request.subagent!r} (call {call_id!r}) were already used: it '
                'has resumed since, and other calls are pending. List them with `pending_approvals`, and answer those.'
            )


def refuse_plain_approvals(
    response: ModelResponse, results: Mapping[str, object], metadata_by_id: Mapping[str, object] | None, tool: str
) -> None:
    """Raise for an approval of a suspended subagent without answers to its pending calls.

    Args:
        response: The response with the answered calls.
        results: The results, keyed by call id.
        metadata_by_id: The metadata of the answers, keyed by call id.
        tool: The name of the tool that runs subagents. Its own calls are not gated.

    Raises:
        UserError: There is such an approval.
    """
    for call in response.tool_calls:
        is_plain = call.tool_call_id not in (metadata_by_id or {})
        if call.tool_name == tool and is_plain and isinstance(results.get(call.tool_call_id), ToolApproved):
            raise UserError(
                f'The call {call.tool_call_id!r} of {tool!r} is approved, but the pending calls of its subagent are not '
                'answered. Create the results with `answer_approvals`. Nothing has run, and the calls are still pending.'
            )
