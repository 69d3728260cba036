"""Who writes a summary: the run's own model, another one, a function, or the provider of the model.

The run's own model is sent the very messages that are to be replaced, with the same tools and instructions, and a
question at their end: so its provider reads all but the question from its cache. Another model, and the same one where
that is too long for it, is sent a transcript, in pieces that fit into its window, each with the summary of those before.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from pydantic_ai import RunContext
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelContextWindowExceededError
from pydantic_ai.messages import (
    CompactionPart,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestAttempt,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import KnownModelName, Model, ModelRequestContext, ModelRequestParameters, infer_model

from pydantic_deep.extensions import SupportsHistory
from pydantic_deep.tokens import CHARS_PER_TOKEN

from ._overflow import sendable
from ._text import ASK, ASK_TRANSCRIPT, render_transcript

Summarizer: TypeAlias = Model[Any] | KnownModelName | str | Callable[[Sequence[ModelMessage]], Awaitable[str]]
"""A model, the name of one, `'provider'`, or a function that returns what is to be remembered of messages."""

PROVIDER: Literal['provider'] = 'provider'
"""The summarizer that is the provider of the run's model: OpenAI's Responses API and Anthropic have one."""

TRANSCRIPT_FRACTION = 0.6
"""How much of a summarizer's window a transcript may fill: the question, the summary so far and the answer need room,
and four characters are a token only about.
"""


class NoSummaryError(Exception):
    """A model has answered, and not with a summary."""


@dataclass(kw_only=True)
class Written:
    """What a summarizer has made."""

    text: str = ''
    """The text of the summary."""
    native: ModelResponse | None = None
    """The summary of the provider, in a form that its models read."""
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """The responses of models that it took."""
    failed: list[ModelRequestAttempt] = field(default_factory=list[ModelRequestAttempt])
    """The attempts that failed and that no response tells of."""
    keeper: SupportsHistory | None = None
    """What is told of each response at once."""

    async def ask(self, request: ModelRequestContext, answer: Awaitable[ModelResponse]) -> ModelResponse:
        """Return the response to a request, which counts from now on."""
        started_at, begun = time.time_ns() // 1000, time.perf_counter_ns()
        try:
            response = await answer
        except FallbackExceptionGroup as error:
            self.failed += error.attempts
            raise
        self.responses.append(response)
        if self.keeper is not None:
            duration_us = (time.perf_counter_ns() - begun) // 1000
            await self.keeper.record_summary(request, response, started_at=started_at, duration_us=duration_us)
        return response


async def write_summary(
    ctx: RunContext[object],
    request: ModelRequestContext,
    replaced: Sequence[ModelMessage],
    summarizer: Summarizer | None,
    written: Written,
) -> None:
    """Have a summary written.

    Args:
        ctx: The run.
        request: The request that is being made.
        replaced: What is to be summarized.
        summarizer: Who writes it; `None` for the model of the request.
        written: Takes what is made: responses also where there is no summary in the end.

    Raises:
        NoSummaryError: The model has answered without a text.
        Exception: Whatever a model or a function raises.
    """
    if summarizer is None:
        model = _served(ctx, request.model)
        try:
            await _ask_in_place(model, request, replaced, written)
        except ModelContextWindowExceededError:  # as after a request that was
            await _ask_with_transcript(model, replaced, written)
    elif summarizer == PROVIDER:
        await _ask_provider(_served(ctx, request.model), request, replaced, written)
    elif isinstance(summarizer, str):
        await _ask_with_transcript(_served(ctx, infer_model(summarizer)), replaced, written)
    elif isinstance(summarizer, Model):
        await _ask_with_transcript(_served(ctx, cast('Model[Any]', summarizer)), replaced, written)
    else:
        written.text = (await summarizer(replaced)).strip()
        if not written.text:
            raise NoSummaryError('The function has returned an empty text.')


def _served(ctx: RunContext[object], model: Model[Any]) -> Model[Any]:
    """Return a model with what the capabilities of the run put around it: that it is asked again, above all.

    Those that record and replay a run do it for requests that are in its history. Whoever summarizes puts nothing
    around a model while it does.
    """
    for capability in reversed(list(ctx.capabilities.values())):
        if not isinstance(capability, SupportsHistory):
            model = capability.get_wrapper_model(model) or model
    return model


async def _ask_in_place(
    model: Model, request: ModelRequestContext, replaced: Sequence[ModelMessage], written: Written
) -> None:
    parameters = _answering_with_text(model, request)
    messages = sendable(model, [*replaced, ModelRequest(parts=[UserPromptPart(ASK)])], parameters)
    asked = replace(request, model=model, messages=messages, model_request_parameters=parameters)
    answer = model_request(model, messages, model_settings=request.model_settings, model_request_parameters=parameters)
    written.text = _text_of(await written.ask(asked, answer))


async def _ask_with_transcript(model: Model, replaced: Sequence[ModelMessage], written: Written) -> None:
    window = model.context_window
    transcript = render_transcript(replaced)
    size = len(transcript) if window is None else int(window * CHARS_PER_TOKEN * TRANSCRIPT_FRACTION)
    for start in range(0, len(transcript), max(size, 1)):
        earlier = f'summary: {written.text}\n' if written.text else ''
        prompt = ASK_TRANSCRIPT.format(transcript=earlier + transcript[start : start + size])
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(prompt)])]
        asked = ModelRequestContext(
            model=model, messages=messages, model_settings=None, model_request_parameters=ModelRequestParameters()
        )
        written.text = _text_of(await written.ask(asked, model_request(model, messages)))


async def _ask_provider(
    model: Model, request: ModelRequestContext, replaced: Sequence[ModelMessage], written: Written
) -> None:
    messages = sendable(model, replaced, request.model_request_parameters)
    asked = ModelRequestContext(
        model=model,
        messages=messages,
        model_settings=request.model_settings,
        model_request_parameters=request.model_request_parameters,
    )
    response = await written.ask(asked, model.compact_messages(asked))
    if not any(isinstance(part, CompactionPart) for part in response.parts):
        raise NoSummaryError(f'{model.model_name} has answered without a compaction.')
    written.native = response


def _text_of(response: ModelResponse) -> str:
    text = '\n'.join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
    if not text:
        kinds = ', '.join(sorted({part.part_kind for part in response.parts})) or 'nothing'
        raise NoSummaryError(f'{response.model_name} has answered with {kinds} instead of a text.')
    return text


def _answering_with_text(model: Model, request: ModelRequestContext) -> ModelRequestParameters:
    """Return parameters with which a model may answer with a text. Tools and instructions stay as they are, also what
    they say of an output in JSON: they come before all messages.
    """
    parameters = request.model_request_parameters
    if parameters.output_mode == 'text':
        return parameters
    _, prepared = model.prepare_request(request.model_settings, parameters)  # only a model knows its default mode
    if prepared.output_mode not in ('native', 'prompted'):
        return replace(parameters, output_mode=prepared.output_mode, allow_text_output=True)
    said = prepared.prompted_output_instructions
    parts = [*(parameters.instruction_parts or []), *([InstructionPart(content=said)] if said else [])]
    return replace(
        parameters,
        output_mode='text',
        output_object=None,
        output_tools=[],
        prompted_output_template=None,
        allow_text_output=True,
        instruction_parts=InstructionPart.sorted(parts),
    )
