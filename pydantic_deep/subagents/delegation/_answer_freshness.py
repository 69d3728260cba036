"""Checks that answers are for the calls that are pending now, before anything runs.

pydantic-ai refuses answers for calls that have a result. A subagent that was answered in part stays suspended under the
same call, and answers for its earlier pause would run the same calls again. So each pause of a child has a number, stored
with the pause and, while the child is suspended, in the `details` of the usage, which a `Conversation` carries along.
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
"""How keys of `RunUsage.details` begin that are ours; the conversation of the child follows."""


def number_pause(usage: RunUsage, conversation_id: str) -> int:
    """Return the number of a new pause of a child, and note that it is the one that waits."""
    key = _PREFIX + conversation_id
    number = usage.details.get(key, 0) + 1
    usage.details[key] = number
    return number


def forget_pauses(usage: RunUsage, conversation_id: str) -> None:
    """Forget the pauses of a child that has ended."""
    usage.details.pop(_PREFIX + conversation_id, None)


def conversation_of(messages: list[ModelMessage]) -> str | None:
    """Return the conversation in which the last response was given: a fork of it keeps that."""
    return next((each.conversation_id for each in reversed(messages) if isinstance(each, ModelResponse)), None)


def check_answers(
    response: ModelResponse,
    metadata_by_id: Mapping[str, Mapping[str, Any]] | None,
    usage: RunUsage,
    names: Collection[str],
) -> None:
    """Refuse answers for a subagent that are not for what it waits for now.

    Args:
        response: The response whose calls are answered.
        metadata_by_id: The metadata of the answers, by the id of the call.
        usage: The usage of the run.
        names: The subagents that there are.

    Raises:
        UserError: They are for another conversation, for an earlier pause, or for a subagent that there is not.
    """
    for call_id, metadata in (metadata_by_id or {}).items():
        try:
            answer = parse_answer(metadata)
            if not isinstance(answer, DelegationAnswers):
                continue
            state = PausedChild.model_validate(answer.request.state)
        except (ValidationError, ValueError):
            continue  # what is damaged is refused where it would be used
        if answer.request.subagent not in names:
            raise UserError(
                f'The answers are for the subagent {answer.request.subagent!r}, and this agent has '
                f'{", ".join(names) or "none"}. Go on with an agent that has it; nothing has run.'
            )
        if state.parent_conversation_id != response.conversation_id:
            raise UserError(
                f'The answers for the subagent {answer.request.subagent!r} (call {call_id!r}) are of another '
                'conversation. List what waits in this one with `pending_approvals`, and answer that.'
            )
        waiting = usage.details.get(_PREFIX + answer.request.conversation_id)
        if waiting is not None and waiting != state.pause_number:
            raise UserError(
                f'The answers for the subagent {answer.request.subagent!r} (call {call_id!r}) were used before: it has '
                'gone on since, and waits for something else. List it with `pending_approvals`, and answer that.'
            )


def refuse_plain_approvals(
    response: ModelResponse, results: Mapping[str, object], metadata_by_id: Mapping[str, object] | None, tool: str
) -> None:
    """Refuse to approve a subagent that waits without an answer for what it waits for.

    Args:
        response: The response whose calls are answered.
        results: The answers, by the id of the call.
        metadata_by_id: The metadata of the answers, by the id of the call.
        tool: The name of the tool that runs subagents, whose own calls nobody gates.

    Raises:
        UserError: There is such an approval.
    """
    for call in response.tool_calls:
        is_plain = call.tool_call_id not in (metadata_by_id or {})
        if call.tool_name == tool and is_plain and isinstance(results.get(call.tool_call_id), ToolApproved):
            raise UserError(
                f'The call {call.tool_call_id!r} of {tool!r} is approved, and what its subagent waits for is not '
                'answered. Make the results with `answer_approvals`; nothing has run, and the conversation waits on.'
            )
