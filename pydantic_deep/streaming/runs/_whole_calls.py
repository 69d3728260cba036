"""A capability for runs that are streamed: an answer that was cut inside a call ends the run."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import IncompleteToolCall
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_core import from_json


@dataclass(kw_only=True)
class WholeCalls(AbstractCapability[object]):
    """Ends a run whose model came to its token limit while it wrote a tool call.

    pydantic-ai takes such arguments for a mistake of the model and asks again, as often as the tool may be retried: each
    answer is paid for, and is as long as the one before.
    """

    id: str | None = 'whole_calls'

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Refuse a response that was cut inside a call.

        Raises:
            IncompleteToolCall: It was.
        """
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        if response.finish_reason == 'length' and calls and not _is_whole(calls[-1]):
            raise IncompleteToolCall(
                f'The model came to its token limit inside a call of {calls[-1].tool_name!r}, and the call was not run. '
                'Raise `max_tokens` in the model settings, or ask for less at once.'
            )
        return response


def _is_whole(call: ToolCallPart) -> bool:
    try:
        return not isinstance(call.args, str) or isinstance(from_json(call.args), dict)
    except ValueError:
        return False
