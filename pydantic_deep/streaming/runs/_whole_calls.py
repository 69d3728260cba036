"""A capability for streamed runs: a response that was cut inside a tool call ends the run."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.exceptions import IncompleteToolCall
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_core import from_json

from pydantic_deep._capabilities.base import BaseCapability


@dataclass(kw_only=True)
class WholeCalls(BaseCapability[object]):
    """Ends a run in which the model reached its token limit while writing a tool call.

    pydantic-ai treats the cut arguments as a mistake of the model and retries as often as the tool allows. Each retry
    is billed, and is as long as the one before.
    """

    id: str | None = 'whole_calls'

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Refuse a response that was cut inside a call.

        Raises:
            IncompleteToolCall: The response was cut inside its last call.
        """
        calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
        if response.finish_reason == 'length' and calls and not _is_whole(calls[-1]):
            raise IncompleteToolCall(
                f'The model reached its token limit inside a call of {calls[-1].tool_name!r}, and the call was not '
                'run. Raise `max_tokens` in the model settings, or ask for less at once.'
            )
        return response


def _is_whole(call: ToolCallPart) -> bool:
    try:
        return not isinstance(call.args, str) or isinstance(from_json(call.args), dict)
    except ValueError:
        return False
