"""The capability that replaces the head of a long history by a summary, permanently."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Literal, cast

import anyio
from pydantic_ai import AgentToolset, ModelRequestContext, RunContext
from pydantic_ai.capabilities import CapabilityOrdering
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_member
from pydantic_deep._messages.summary_metadata import (
    SummaryMetadata,
    find_summary,
    is_summary,
    read_summary,
    usage_of,
    whole,
)
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.extensions import (
    SupportsBilledAttempts,
    SupportsCarryOver,
    SupportsDelegationUsage,
    SupportsHistory,
    SupportsRequestBudget,
    SupportsSummaryRecording,
    SupportsSummaryReplay,
    find_capabilities,
)
from pydantic_deep.tokens import MessageTokens, TokenCounter, count_head, count_message, count_tokens_approximately

from ._cut import find_cut
from ._events import HistorySummarizedEvent
from ._overflow import OverflowModel, Prepare
from ._summarizer import NoSummaryError, Summarizer, Written, write_summary
from ._text import NO_SUMMARY, first_request, last_request, render_summary
from ._toolset import function_toolset, offered_parameters
from ._types import Fraction, Keep, Messages, Tokens, Trigger

_LOGGER = logging.getLogger('pydantic_deep')

TRIGGER: tuple[Trigger, ...] = (Fraction(0.8), Tokens(20_000))
"""The default triggers of summarization.

Each request pays for the complete history, at a tenth of the price at best, so a history that is longer than necessary
costs more than a summary: in the sessions of `benchmarks/`, the coding session costs 2.4 times as much with a trigger
of 100,000 tokens. Details that are missing from a summary can be searched, or read again from files.
"""

KEEP = Tokens(4_000)
"""The default size of the part that is retained: the last two or three steps, which the model is working on."""

TIMEOUT_SECONDS = 120.0
"""Default timeout for a summary, in seconds. The slowest models write 600 words in less than a minute."""

MIN_GAIN = 0.2
"""Minimum part of a request that a summary must remove. Otherwise, a long tail or long instructions and tools would
cause a summary at each request.
"""

Reason = Literal['fraction', 'tokens', 'messages', 'overflow']


@dataclass(kw_only=True)
class Summarization(BaseCapability[object]):
    """Replaces the head of a history that has grown too long by a summary, permanently.

    The replaced messages are stored in the store of a `VersionedAgent`, otherwise in the metadata of the summary, which
    models do not receive. The model can search them with `search_history`. No summary is written before the last
    request that a budget or pydantic-ai's `request_limit` allows. If the summarizer fails, the run continues:
    the summary then consists of the user's requests and the state that other capabilities carry over.

    If a provider rejects a request as too long, the history is shortened and the request retried once. If it is the
    last request of a run, `result.new_messages()` is empty, as pydantic-ai determines its start beforehand;
    `result.all_messages()` is correct.
    """

    id: str | None = 'summarization'
    """The id of the capability. A capability with the same id replaces it."""
    trigger: Trigger | Sequence[Trigger] = TRIGGER
    """The size of a history that triggers a summary; with several triggers, the first one that is reached. If empty,
    only a rejected request triggers one.
    """
    keep: Keep = KEEP
    """The size of the part that is retained unchanged. It is larger where a call would be separated from its result."""
    summarizer: Summarizer | None = None
    """The author of summaries. `None` means the model of the run, which has the conversation in its cache. A model or
    its name receives a transcript, and may be cheaper. `'provider'` means the provider's own compaction, if the model
    supports it. An async function receives the messages and returns the summary.
    """
    counter: TokenCounter = count_tokens_approximately
    """Counts the tokens of texts for which the provider has not reported a count."""
    timeout_seconds: float = TIMEOUT_SECONDS
    """Maximum time for a summary, in seconds."""
    _tokens: MessageTokens = field(default_factory=MessageTokens, init=False, repr=False, compare=False)
    _is_writing: bool = field(default=False, init=False, repr=False, compare=False)
    _windows: dict[int, int | None] = field(
        default_factory=dict[int, 'int | None'], init=False, repr=False, compare=False
    )
    _wrapper: OverflowModel | None = field(default=None, init=False, repr=False, compare=False)
    _replays: Sequence[SupportsSummaryReplay] | None = field(default=None, init=False, repr=False, compare=False)
    """The capabilities that replay summaries; `None` before the first request. They are looked up once."""
    _request: tuple[RunContext[object], ModelRequestContext, ModelRequestContext] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Validate the configuration.

        Raises:
            TypeError: A limit or the summarizer has an invalid type.
            ValueError: `keep` is not less than a trigger, or the timeout is not positive.
        """
        for trigger in self._triggers:
            if not isinstance(cast('object', trigger), (Fraction, Tokens, Messages)):
                raise TypeError(
                    f'`trigger` is {self.trigger!r}. Pass `Fraction(0.8)`, `Tokens(20_000)` or `Messages(100)` of '
                    '`pydantic_deep.summarization`, or a list of these.'
                )
            if type(trigger) is type(self.keep) and trigger.value <= self.keep.value:
                raise ValueError(f'`keep` is {self.keep} and `trigger` {trigger}: `keep` must be less.')
        if not isinstance(cast('object', self.keep), (Tokens, Messages)):
            raise TypeError(f'`keep` is {self.keep!r}. Pass `Tokens` or `Messages`.')
        if not (self.summarizer is None or isinstance(self.summarizer, (str, Model)) or callable(self.summarizer)):
            raise TypeError(
                f"`summarizer` is {self.summarizer!r}. Pass a model, its name, `'provider'`, an async function, or remove "
                'it.'
            )
        check_member('counter', self.counter, '__call__', 'TokenCounter', 'For example, `count_tokens_approximately`.')
        if not isinstance(cast('object', self.timeout_seconds), int | float) or not self.timeout_seconds > 0:
            raise ValueError(f'`timeout_seconds` is {self.timeout_seconds!r}. Pass a number above 0.')

    @property
    def _triggers(self) -> Sequence[Trigger]:
        return self.trigger if isinstance(self.trigger, Sequence) else (self.trigger,)

    def get_ordering(self) -> CapabilityOrdering:
        """Run innermost: an outer capability that retries requests opens its stream lazily, and would not see an
        overflow.
        """
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> Summarization:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._tokens = MessageTokens(counter=self.counter)
        return run

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `search_history`. Only requests after a summary contain it.

        The first of them has a new prefix anyway. The request for the summary does not contain it, as its prefix is
        cached.
        """
        return RunToolset(function_toolset(), lambda ctx: ctx)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Wrap the model to offer `search_history` after a summary, and to retry a rejected request after shortening the
        history, except for requests for summaries.
        """
        if self._is_writing:
            return None
        # Other capabilities cache their wrapper of this one, too.
        if self._wrapper is None or self._wrapper.wrapped is not model:
            self._wrapper = OverflowModel(model, self._after_overflow, self._offered)
        return self._wrapper

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Summarize the history if it is too long."""
        if self._replays is None:
            self._replays = find_capabilities(ctx, SupportsSummaryReplay)
        if any(replay.has_overflowed() for replay in self._replays):
            await self._summarize(ctx, request_context, 'overflow', self._keep_after_overflow(ctx.messages))
        elif (reason := self._reason(ctx.messages, request_context)) is not None:
            await self._summarize(ctx, request_context, reason, self.keep)
        self._request = ctx, request_context, copy(request_context)  # pydantic-ai has yet to wrap its model
        return request_context

    def _reason(self, messages: Sequence[ModelMessage], request: ModelRequestContext) -> Reason | None:
        """Return the trigger that the history exceeds; `None` if there is none. The cost depends only on new messages."""
        tokens: int | None = None
        for trigger in self._triggers:
            if isinstance(trigger, Messages):
                if len(messages) > trigger.value:
                    return 'messages'
                continue
            limit = self._limit(trigger, request.model)
            if limit is None:
                continue
            if tokens is None:
                tokens = self._tokens.context(messages, request.model_request_parameters)
            if tokens > limit:
                return 'tokens' if isinstance(trigger, Tokens) else 'fraction'
        return None

    def _limit(self, trigger: Tokens | Fraction, model: Model) -> float | None:
        if isinstance(trigger, Tokens):
            return trigger.value
        if id(model) not in self._windows:  # computing the profile of a model is slow
            self._windows[id(model)] = model.context_window
        window = self._windows[id(model)]
        return None if window is None else window * trigger.value

    async def _summarize(
        self, ctx: RunContext[object], request: ModelRequestContext, reason: Reason, keep: Keep
    ) -> bool:
        """Replace the head of the history, and return whether that was worthwhile."""
        messages = ctx.messages
        sums = list(self._tokens.sums(messages))
        cut = find_cut(messages, sums, keep)
        if cut == 0 and reason == 'messages':  # many short messages, which all fit into the retained part
            cut = find_cut(messages, sums, Messages(len(messages) // 2))
        before = self._tokens.context(messages, request.model_request_parameters)
        earlier = int(_has_summary(messages))
        if cut <= earlier or not self._is_worth_it(request, reason, sums, cut, earlier):
            return False
        first, error = next(filter(None, (replay.next_summary() for replay in self._replays or ())), None), None
        if first is None and reason != 'overflow' and not _admits_summary(ctx):
            return False
        replaced, tail = messages[:cut], messages[cut:]
        if first is not None and self._is_replay and (recorded := find_summary([first])) is not None:
            _count(ctx, read_summary(recorded).usage - usage_of(replaced))
        for history in find_capabilities(ctx, SupportsHistory):
            await history.persist(ctx, messages[:-1])
        if first is None:
            first, error = await self._first(ctx, request, reason, replaced, tail)
        ctx.messages[:] = [first, *tail]
        request.messages = [first, *tail]
        summary = find_summary([first])
        await ctx.emit(
            HistorySummarizedEvent(
                reason=reason,
                replaced_messages=cut,
                tokens_before=before,
                tokens_after=sums[-1] - sums[cut] + count_message(first, self.counter),
                is_plain=summary is not None and read_summary(summary).is_plain,
                error=error,
            )
        )
        return True

    @property
    def _is_replay(self) -> bool:
        """Whether no model may be asked for a summary."""
        return not all(replay.may_request_summary() for replay in self._replays or ())

    def _is_worth_it(
        self, request: ModelRequestContext, reason: Reason, sums: Sequence[int], cut: int, earlier: int
    ) -> bool:
        """Return whether a cut removes enough. Both sides are estimates, as providers may report many more tokens."""
        gain = sums[cut] - sums[earlier]
        match reason:
            case 'overflow':
                return gain > 0
            case 'messages':
                return cut - earlier > MIN_GAIN * (len(sums) - 1)
            case _:
                return gain > MIN_GAIN * (sums[-1] + count_head(request.model_request_parameters, self.counter))

    async def _first(
        self,
        ctx: RunContext[object],
        request: ModelRequestContext,
        reason: Reason,
        replaced: Sequence[ModelMessage],
        tail: Sequence[ModelMessage],
    ) -> tuple[ModelMessage, str | None]:
        """Return the message that replaces others, and the error of the summarizer if it failed."""
        written, error = await self._write(ctx, request, replaced)
        earlier = find_summary(replaced)
        known = None if earlier is None else read_summary(earlier)
        goal = (known.goal if known is not None else '') or first_request(replaced)
        latest = last_request(replaced) or (known.latest if known is not None else '')
        earlier_text = known.written if known is not None else ''
        carried = {
            str(getattr(capability, 'id', type(capability).__name__)): capability.carry_over(ctx, replaced)
            for capability in find_capabilities(ctx, SupportsCarryOver)
        }
        state = SummaryMetadata(
            reason=reason,
            is_plain=error is not None,
            goal=goal,
            latest=latest,
            written=written.text or earlier_text,
            carried={id: item.state for id, item in carried.items() if item.state is not None},
            usage=usage_of([*replaced, *written.responses]),
            messages=None if find_capabilities(ctx, SupportsHistory) else whole(replaced),
        )
        if written.native is not None:
            return _native(written.native, state), error
        text = render_summary(
            goal=goal,
            latest='' if last_request(tail) else latest,
            written=written.text or '\n\n'.join(filter(None, (earlier_text, NO_SUMMARY.format(count=len(replaced))))),
            carried=[item.text for item in carried.values()],
        )
        return _request_with(replaced, state.part(text)), error

    async def _write(
        self, ctx: RunContext[object], request: ModelRequestContext, replaced: Sequence[ModelMessage]
    ) -> tuple[Written, str | None]:
        """Request a summary. If that fails for any reason, the run continues without one."""
        error_text = None
        written = Written(
            recorders=find_capabilities(ctx, SupportsSummaryRecording),
            budgets=find_capabilities(ctx, SupportsRequestBudget),
            admits=partial(_admits_summary, ctx),
            count=partial(_count, ctx),
        )
        self._is_writing = True
        try:
            if self._is_replay:
                raise NoSummaryError('A replay requests no summary.')
            with anyio.fail_after(self.timeout_seconds):
                offered = offered_parameters(request.model_request_parameters, is_summarized=_has_summary(replaced))
                as_before = replace(request, model_request_parameters=offered)
                await write_summary(ctx, as_before, replaced, self.summarizer, written)
        except Exception as error:  # of a model or of the user's function
            error_text = f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
            _LOGGER.warning('No summary could be written of %d messages.', len(replaced), exc_info=error)
            written = Written(responses=written.responses, failed=written.failed)
        finally:
            self._is_writing = False
        for attempt in written.failed:
            _count(ctx, attempt.usage or RequestUsage())
        for accounting in find_capabilities(ctx, SupportsBilledAttempts):
            accounting.record_billed_attempts(written.failed)
        return written, error_text

    def _offered(self, parameters: ModelRequestParameters) -> ModelRequestParameters:
        return offered_parameters(
            parameters, is_summarized=self._request is not None and _has_summary(self._request[0].messages)
        )

    async def _after_overflow(self, prepare: Prepare) -> list[ModelMessage] | None:
        """Return a shortened history after a request was rejected as too long; `None` if it cannot be shortened."""
        if self._request is None:
            return None
        ctx, sent, asked = self._request
        if not await self._summarize(ctx, asked, 'overflow', self._keep_after_overflow(ctx.messages)):
            return None
        sent.messages = prepare(ctx.messages)  # for hooks that inspect the request afterwards
        return sent.messages

    def _keep_after_overflow(self, messages: Sequence[ModelMessage]) -> Keep:
        """Return the size to retain of a history that was too long: at most half of it."""
        half = Tokens(max(self._tokens.sums(messages)[-1] // 2, 1))
        return half if isinstance(self.keep, Messages) or half.value < self.keep.value else self.keep


def _has_summary(messages: Sequence[ModelMessage]) -> bool:
    """Return whether a history starts with a summary."""
    return bool(messages) and any(map(is_summary, messages[0].parts))


def _admits_summary(ctx: RunContext[object]) -> bool:
    """Return whether the limits of the run admit its next request also after a request for a summary."""
    limit = None if ctx.usage_limits is None else ctx.usage_limits.request_limit
    if limit is not None and ctx.usage.requests + 2 > limit:
        return False
    return all(budget.admits_extra_request() for budget in find_capabilities(ctx, SupportsRequestBudget))


def _count(ctx: RunContext[object], usage: RunUsage | RequestUsage) -> None:
    """Add the usage of a summary to the run and to its delegation."""
    ctx.usage.incr(usage)
    for delegated in find_capabilities(ctx, SupportsDelegationUsage):
        delegated.add_usage(usage)


def _request_with(replaced: Sequence[ModelMessage], summary: CompactionPart) -> ModelRequest:
    """Return the request that replaces messages: their system prompts, which belong to the agent, and the summary."""
    system: list[Any] = list(takewhile(lambda part: isinstance(part, SystemPromptPart), replaced[0].parts))
    return ModelRequest(parts=[*system, summary])


def _native(response: ModelResponse, state: SummaryMetadata) -> ModelResponse:
    """Return a provider's compaction with our metadata added."""
    metadata = state.part('').metadata
    return replace(
        response,
        parts=[
            replace(part, metadata=metadata) if isinstance(part, CompactionPart) else part for part in response.parts
        ],
    )
