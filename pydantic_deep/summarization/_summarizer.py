"""Request a summary from the model of the run, another model, a function, or the provider.

The model of the run receives the messages to be replaced with the same tools and instructions, followed by a question,
so its provider reads all but the question from its cache. Another model, or the same one if this is too long for it,
receives a transcript in sections that fit into its context window, each with the summary of the previous ones.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from pydantic_ai.usage import RunUsage

from pydantic_deep._messages.summary_metadata import usage_of
from pydantic_deep.extensions import SupportsRequestBudget, SupportsSummaryRecording, SupportsSummaryReplay
from pydantic_deep.tokens import CHARS_PER_TOKEN

from ._overflow import sendable
from ._text import ASK, ASK_TRANSCRIPT, render_transcript

Summarizer: TypeAlias = Model[Any] | KnownModelName | str | Callable[[Sequence[ModelMessage]], Awaitable[str]]
"""A model, its name, `'provider'`, or a function that returns a summary of messages."""

PROVIDER: Literal['provider'] = 'provider'
"""Selects the compaction of the model's provider, which OpenAI's Responses API and Anthropic support."""

TRANSCRIPT_FRACTION = 0.6
"""Maximum fraction of the summarizer's context window for a transcript. The rest is for the question, the previous
summary, the answer, and the error of the estimate of four characters per token.
"""


class NoSummaryError(Exception):
    """A model answered, but not with a summary, or it may not be asked for one."""


@dataclass(kw_only=True)
class Written:
    """The result of a summarizer."""

    text: str = ''
    """The text of the summary."""
    native: ModelResponse | None = None
    """The compaction of the provider, in a form that its models can read."""
    responses: list[ModelResponse] = field(default_factory=list[ModelResponse])
    """The responses of models during summarization."""
    failed: list[ModelRequestAttempt] = field(default_factory=list[ModelRequestAttempt])
    """Failed attempts that no response contains."""
    recorders: Sequence[SupportsSummaryRecording] = ()
    """Record each response immediately."""
    budgets: Sequence[SupportsRequestBudget] = ()
    """Count each request."""
    admits: Callable[[], bool] = lambda: True
    """Returns whether the limits of the run allow another request."""
    count: Callable[[RunUsage], None] = lambda usage: None
    """Receives the usage of each response immediately, as a summary may need several."""

    async def ask(self, request: ModelRequestContext, answer: Callable[[], Awaitable[ModelResponse]]) -> ModelResponse:
        """Await the response to a request, and record it."""
        if not self.admits():
            raise NoSummaryError('The limits of the run allow no request for a summary.')
        for budget in self.budgets:
            budget.count_extra_request()
        started_at, begun = time.time_ns() // 1000, time.perf_counter_ns()
        try:
            response = await answer()
        except FallbackExceptionGroup as error:
            self.failed += error.attempts
            raise
        self.responses.append(response)
        self.count(usage_of([response]))
        duration_us = (time.perf_counter_ns() - begun) // 1000
        for recorder in self.recorders:
            await recorder.record_summary(request, response, started_at=started_at, duration_us=duration_us)
        return response


async def write_summary(
    ctx: RunContext[object],
    request: ModelRequestContext,
    replaced: Sequence[ModelMessage],
    summarizer: Summarizer | None,
    written: Written,
) -> None:
    """Request a summary.

    Args:
        ctx: The run.
        request: The current request.
        replaced: The messages to summarize.
        summarizer: The author of the summary; `None` for the model of the request.
        written: Collects the result. It includes responses even if there is no summary.

    Raises:
        NoSummaryError: The model answered without text.
        Exception: An error of a model or function.
    """
    if summarizer is None:
        model = _served(ctx, request.model)
        try:
            await _ask_in_place(model, request, replaced, written)
        except ModelContextWindowExceededError:  # as the rejected request was
            await _ask_with_transcript(model, replaced, written)
    elif summarizer == PROVIDER:
        await _ask_provider(_served(ctx, request.model), request, replaced, written)
    elif isinstance(summarizer, str):
        await _ask_with_transcript(_served(ctx, infer_model(summarizer)), replaced, written)
    elif isinstance(summarizer, Model):
        await _ask_with_transcript(_served(ctx, cast('Model[Any]', summarizer)), replaced, written)
    else:
        summary = cast('Callable[[Sequence[ModelMessage]], Awaitable[str] | str]', summarizer)(replaced)
        written.text = (summary if isinstance(summary, str) else await summary).strip()  # it may lack `async`
        if not written.text:
            raise NoSummaryError('The function returned an empty text.')


def _served(ctx: RunContext[object], model: Model[Any]) -> Model[Any]:
    """Return a model with the wrappers of the run's capabilities, most importantly retries.

    Capabilities that record or replay summaries are skipped: their wrappers only apply to requests in the history. The
    summarization capability itself adds no wrapper while it writes.
    """
    for capability in reversed(list(ctx.capabilities.values())):
        if not isinstance(capability, (SupportsSummaryRecording, SupportsSummaryReplay)):
            model = capability.get_wrapper_model(model) or model
    return model


async def _ask_in_place(
    model: Model, request: ModelRequestContext, replaced: Sequence[ModelMessage], written: Written
) -> None:
    parameters = _answering_with_text(model, request)
    messages = sendable(model, [*replaced, ModelRequest(parts=[UserPromptPart(ASK)])], parameters)
    asked = replace(request, model=model, messages=messages, model_request_parameters=parameters)
    response = await written.ask(
        asked,
        lambda: model_request(
            model, messages, model_settings=request.model_settings, model_request_parameters=parameters
        ),
    )
    written.text = _text_of(response)


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
        written.text = _text_of(await written.ask(asked, partial(model_request, model, messages)))


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
    response = await written.ask(asked, lambda: model.compact_messages(asked))
    if not any(isinstance(part, CompactionPart) for part in response.parts):
        raise NoSummaryError(f'{model.model_name} answered without a compaction.')
    written.native = response


def _text_of(response: ModelResponse) -> str:
    text = '\n'.join(part.content for part in response.parts if isinstance(part, TextPart)).strip()
    if not text:
        kinds = ', '.join(sorted({part.part_kind for part in response.parts})) or 'nothing'
        raise NoSummaryError(f'{response.model_name} answered with {kinds} instead of text.')
    return text


def _answering_with_text(model: Model, request: ModelRequestContext) -> ModelRequestParameters:
    """Return request parameters that allow a text response. Tools and instructions, including those about JSON output,
    remain unchanged, as they precede all messages.
    """
    parameters = request.model_request_parameters
    if parameters.output_mode == 'text':
        return parameters
    _, prepared = model.prepare_request(request.model_settings, parameters)  # only the model knows its default mode
    if prepared.output_mode not in ('native', 'prompted'):
        return replace(parameters, output_mode=prepared.output_mode, allow_text_output=True)
    output_instructions = prepared.prompted_output_instructions
    parts = [
        *(parameters.instruction_parts or []),
        *([InstructionPart(content=output_instructions)] if output_instructions else []),
    ]
    return replace(
        parameters,
        output_mode='text',
        output_object=None,
        output_tools=[],
        prompted_output_template=None,
        allow_text_output=True,
        instruction_parts=InstructionPart.sorted(parts),
    )
