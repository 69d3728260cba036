"""`SendsNotices`: the base of capabilities whose notices stand before the first prompt.

pydantic-ai sends the leading system prompts of a history before the instructions. Notices differ from conversation to
conversation, so no instruction after them would be read from a provider's cache. Many templates of local models put the
tools into the first system message, and such models follow instructions there better than behind a list of files.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._messages.headings import FILES_HEADING, PLAN_MODE_HEADING, PROJECT_HEADING
from pydantic_deep._messages.notice import noticed

HEADINGS: Final = (PROJECT_HEADING, PLAN_MODE_HEADING, FILES_HEADING)
"""The notices that may be before a prompt."""


@dataclass(kw_only=True)
class SendsNotices(BaseCapability[object]):
    """A capability that sends notices before a prompt. Those before the first one are sent after the instructions."""

    _model: NoticesAfterInstructions | None = field(default=None, init=False, repr=False, compare=False)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Return a model that sends the instructions first, cached per model."""
        if self._model is None or self._model.wrapped is not model:
            self._model = NoticesAfterInstructions(model)
        return self._model


class NoticesAfterInstructions(WrapperModel):
    """Sends the notices before the first prompt as the last instructions. The history is not changed."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        messages, model_request_parameters = ordered(messages, model_request_parameters)
        return await self.wrapped.request(messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        messages, model_request_parameters = ordered(messages, model_request_parameters)
        async with self.wrapped.request_stream(
            messages, model_settings, model_request_parameters, run_context
        ) as stream:
            yield stream


def ordered(
    messages: list[ModelMessage], parameters: ModelRequestParameters
) -> tuple[list[ModelMessage], ModelRequestParameters]:
    """Return a request with the notices before the first prompt as its last instructions."""
    first = messages[0]
    leading = takewhile(lambda part: part.part_kind == 'system-prompt', first.parts)
    notices = [part for part in leading if isinstance(part, SystemPromptPart) and is_notice(part)]
    if not isinstance(first, ModelRequest) or not notices or not parameters.instruction_parts:
        return messages, parameters
    rest = [part for part in first.parts if not any(part is notice for notice in notices)]
    instructions = [InstructionPart(notice.content, dynamic=True) for notice in notices]
    return (
        [replace(first, parts=rest), *messages[1:]],
        replace(parameters, instruction_parts=[*parameters.instruction_parts, *instructions]),
    )


def is_notice(part: SystemPromptPart) -> bool:
    """Return whether a system prompt is a notice that may be before a prompt."""
    return any(noticed(part, heading) is not None for heading in HEADINGS)
