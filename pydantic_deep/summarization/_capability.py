"""What the agent plugs in: a history that grows too long is replaced by a summary of its head, for good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, cast

import anyio
from pydantic_ai import AgentToolset, ModelRequestContext, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.messages import CompactionPart, ModelMessage, ModelRequest, ModelResponse, SystemPromptPart
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage, RunUsage

from pydantic_deep._messages.summary_metadata import (
    SummaryMetadata,
    find_summary,
    is_summary,
    read_summary,
    replaced_messages,
    usage_of,
    whole,
)
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.extensions import SupportsCarryOver, SupportsDelegationUsage, SupportsHistory, find_capabilities
from pydantic_deep.tokens import MessageTokens, TokenCounter, count_head, count_message, count_tokens_approximately

from ._cut import find_cut
from ._events import HistorySummarizedEvent
from ._overflow import OverflowModel, Prepare
from ._summarizer import Summarizer, Written, write_summary
from ._text import NO_SUMMARY, first_request, last_request, render_summary
from ._toolset import History, function_toolset
from ._types import Fraction, Keep, Messages, Tokens, Trigger

_LOGGER = logging.getLogger('pydantic_deep')

TRIGGER: tuple[Trigger, ...] = (Fraction(0.8), Tokens(20_000))
"""When a history is summarized by default.

Each request pays for the whole history again, a tenth of the price at best. What stays longer than it is needed costs
more than a summary: of the sessions in `benchmarks/`, the one of coding costs 2.4 times as much at 100,000. What is in the summary no more is found again by a search, or read again from its file.
"""

KEEP = Tokens(4_000)
"""What stays by default: the last two or three steps, those that the model is in the middle of."""

TIMEOUT_SECONDS = 120.0
"""How long a summary may take: 600 words are written in less than a minute by the slowest models."""

MIN_GAIN = 0.2
"""How much of a request must go for a summary to be worth it. Where the tail, or the instructions and tools, are too long
themselves, there would be one at each request.
"""

Reason = Literal['fraction', 'tokens', 'messages', 'overflow']


@dataclass(kw_only=True)
class Summarization(AbstractCapability[object]):
    """Replaces the head of a history that has grown too long by a summary: once, for good, in the conversation.

    What is replaced stays: in the store of a `VersionedAgent`, else in the metadata of the summary, which models are
    not sent. The model finds it with `search_history`. Whatever becomes of the summarizer, the run goes on: without it,
    the summary says what was asked and what the rooms carry over.

    A request that the provider refuses as too long is made once more after a cut. If it is the last of its run,
    `result.new_messages()` is empty, for pydantic-ai has counted before; `result.all_messages()` is right.
    """

    id: str | None = 'summarization'
    """Which capability it is: one replaces another."""
    trigger: Trigger | Sequence[Trigger] = TRIGGER
    """How large a history may be; the first that is reached counts. Empty for none: then only an overflow is a reason."""
    keep: Keep = KEEP
    """How much of its end stays word for word; more where a call would be parted from its result."""
    summarizer: Summarizer | None = None
    """Who writes summaries. `None` for the model of the run, which has the conversation in its cache; a model or its
    name, for a cheaper one that is sent a transcript; `'provider'` for the provider's own compaction where the model
    has one; or an async function that takes the messages and returns what is to be remembered."""
    counter: TokenCounter = count_tokens_approximately
    """What counts the tokens of a text where the provider has not told them."""
    timeout_seconds: float = TIMEOUT_SECONDS
    """How long a summary may take."""
    _tokens: MessageTokens = field(default_factory=MessageTokens, init=False, repr=False, compare=False)
    _is_writing: bool = field(default=False, init=False, repr=False, compare=False)
    _windows: dict[int, int | None] = field(
        default_factory=dict[int, 'int | None'], init=False, repr=False, compare=False
    )
    _wrapper: OverflowModel | None = field(default=None, init=False, repr=False, compare=False)
    _keeper: SupportsHistory | None = field(default=None, init=False, repr=False, compare=False)
    """What keeps the messages of the run, if anything does; looked up once."""
    _knows_keeper: bool = field(default=False, init=False, repr=False, compare=False)
    _request: tuple[RunContext[object], ModelRequestContext, ModelRequestContext] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Refuse limits that cannot be met.

        Raises:
            TypeError: A limit does not say what it counts, or nobody can write summaries.
            ValueError: More is to be kept than a trigger allows, or a timeout is no time.
        """
        for trigger in self._triggers:
            if not isinstance(cast('object', trigger), (Fraction, Tokens, Messages)):
                raise TypeError(
                    f'`trigger` is {self.trigger!r}. Pass `Fraction(0.8)`, `Tokens(20_000)` or `Messages(100)` of '
                    '`pydantic_deep.summarization`, or a list of these.'
                )
            if type(trigger) is type(self.keep) and trigger.value <= self.keep.value:
                raise ValueError(f'`keep` is {self.keep} and `trigger` {trigger}: keep less than that.')
        if not isinstance(cast('object', self.keep), (Tokens, Messages)):
            raise TypeError(f'`keep` is {self.keep!r}. Pass `Tokens` or `Messages`.')
        if not (self.summarizer is None or isinstance(self.summarizer, (str, Model)) or callable(self.summarizer)):
            raise TypeError(
                f"`summarizer` is {self.summarizer!r}. Pass a model, its name, `'provider'`, an async function, or leave "
                'it out.'
            )
        if not self.timeout_seconds > 0:
            raise ValueError(f'`timeout_seconds` is {self.timeout_seconds!r}. Pass a number above 0.')

    @property
    def _triggers(self) -> Sequence[Trigger]:
        return self.trigger if isinstance(self.trigger, Sequence) else (self.trigger,)

    def get_ordering(self) -> CapabilityOrdering:
        """Come after all others: what asks a model again opens its stream late, and would not hear that it overflows."""
        return CapabilityOrdering(position='innermost')

    async def for_run(self, ctx: RunContext[object]) -> Summarization:
        """Return this run's instance, which has counted its history."""
        run = replace(self)
        run._tokens = MessageTokens(counter=self.counter)
        return run

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `search_history`.

        It is shown from the beginning: a tool that came with the first summary would change what stands before all
        messages, and nothing of them would be read from the cache, by the request for the summary neither.
        """
        return RunToolset(function_toolset(), self._history)

    def get_wrapper_model(self, model: Model) -> Model | None:
        """Make a request that is refused as too long once more, after a cut; not one for a summary."""
        if self._is_writing:
            return None
        if self._wrapper is None or self._wrapper.wrapped is not model:  # others keep what they put around it, too
            self._wrapper = OverflowModel(model, self._after_overflow)
        return self._wrapper

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Summarize the history if it is too long."""
        if not self._knows_keeper:
            self._knows_keeper, self._keeper = True, next(iter(find_capabilities(ctx, SupportsHistory)), None)
        if self._keeper is not None and self._keeper.has_overflowed():
            await self._summarize(ctx, request_context, 'overflow', self._keep_after_overflow(ctx.messages))
        elif (reason := self._reason(ctx.messages, request_context)) is not None:
            await self._summarize(ctx, request_context, reason, self.keep)
        self._request = ctx, request_context, copy(request_context)  # its model is put into others yet, this room's too
        return request_context

    def _reason(self, messages: Sequence[ModelMessage], request: ModelRequestContext) -> Reason | None:
        """Return why a history is too long; `None` if it is not. Costs what is new in it."""
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
        if id(model) not in self._windows:  # a model puts its profile together each time that it is asked
            self._windows[id(model)] = model.context_window
        window = self._windows[id(model)]
        return None if window is None else window * trigger.value

    async def _summarize(
        self, ctx: RunContext[object], request: ModelRequestContext, reason: Reason, keep: Keep
    ) -> bool:
        """Replace the head of the history; return whether that was worth it."""
        messages = ctx.messages
        sums = list(self._tokens.sums(messages))
        cut = find_cut(messages, sums, keep)
        if cut == 0 and reason == 'messages':  # many short ones, which all fit into what is to be kept
            cut = find_cut(messages, sums, Messages(len(messages) // 2))
        before = self._tokens.context(messages, request.model_request_parameters)
        earlier = 1 if messages and any(map(is_summary, messages[0].parts)) else 0
        if cut <= earlier or not self._is_worth_it(request, reason, sums, cut, earlier):
            return False
        replaced, tail = messages[:cut], messages[cut:]
        keeper = self._keeper
        if keeper is not None:
            await keeper.persist(ctx, messages[:-1])
        recorded = None if keeper is None else keeper.next_summary()
        error = None
        if recorded is not None:
            first = recorded
        else:
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

    def _is_worth_it(
        self, request: ModelRequestContext, reason: Reason, sums: Sequence[int], cut: int, earlier: int
    ) -> bool:
        """Return whether enough goes with a cut: counted alike on both sides, for a provider may tell far more tokens."""
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
        """Return the message that stands for others, and why no model has written it if none has."""
        written, error = await self._write(ctx, request, replaced)
        summarizers_usage = usage_of(written.responses)
        _count(ctx, summarizers_usage)
        earlier = find_summary(replaced)
        known = None if earlier is None else read_summary(earlier)
        goal = (known.goal if known is not None else '') or first_request(replaced)
        latest = last_request(replaced) or (known.latest if known is not None else '')
        earlier_text = known.written if known is not None else ''
        carried = {
            str(getattr(room, 'id', type(room).__name__)): room.carry_over(ctx, replaced)
            for room in find_capabilities(ctx, SupportsCarryOver)
        }
        state = SummaryMetadata(
            reason=reason,
            is_plain=error is not None,
            goal=goal,
            latest=latest,
            written=written.text or earlier_text,
            carried={id: each.state for id, each in carried.items() if each.state is not None},
            usage=usage_of(replaced) + summarizers_usage,
            messages=None if self._keeper is not None else whole(replaced),
        )
        if written.native is not None:
            return _native(written.native, state), error
        text = render_summary(
            goal=goal,
            latest='' if last_request(tail) else latest,
            written=written.text or '\n\n'.join(filter(None, (earlier_text, NO_SUMMARY.format(count=len(replaced))))),
            carried=[each.text for each in carried.values()],
        )
        return _request_with(replaced, state.part(text)), error

    async def _write(
        self, ctx: RunContext[object], request: ModelRequestContext, replaced: Sequence[ModelMessage]
    ) -> tuple[Written, str | None]:
        """Have a summary written; whatever goes wrong with it, the run goes on without one."""
        written, told = Written(keeper=self._keeper), None
        self._is_writing = True
        try:
            with anyio.fail_after(self.timeout_seconds):
                await write_summary(ctx, request, replaced, self.summarizer, written)
        except Exception as error:  # of a model, or of the user's function
            told = f'{type(error).__name__}: {error}' if str(error) else type(error).__name__
            _LOGGER.warning('No summary could be written of %d messages.', len(replaced), exc_info=error)
            written = Written(responses=written.responses, failed=written.failed)
        finally:
            self._is_writing = False
        for attempt in written.failed:
            _count(ctx, attempt.usage or RequestUsage())
        if self._keeper is not None:
            self._keeper.record_billed_attempts(written.failed)
        return written, told

    async def _after_overflow(self, prepare: Prepare) -> list[ModelMessage] | None:
        """Return a shorter history for a request that was refused as too long; `None` if nothing of it can go."""
        if self._request is None:
            return None
        ctx, sent, asked = self._request
        if not await self._summarize(ctx, asked, 'overflow', self._keep_after_overflow(ctx.messages)):
            return None
        sent.messages = prepare(ctx.messages)  # who looks at the request afterwards sees what was sent
        return sent.messages

    def _keep_after_overflow(self, messages: Sequence[ModelMessage]) -> Keep:
        """Return how much stays of what was too long: half of it at most."""
        half = Tokens(max(self._tokens.sums(messages)[-1] // 2, 1))
        return half if isinstance(self.keep, Messages) or half.value < self.keep.value else self.keep

    def _history(self, ctx: RunContext[object]) -> History:
        async def earlier() -> Sequence[ModelMessage]:
            keeper = self._keeper
            return replaced_messages(ctx.messages) if keeper is None else await keeper.earlier_messages(ctx)

        return History(earlier)


def _count(ctx: RunContext[object], usage: RunUsage | RequestUsage) -> None:
    """Count what a summary has used in the run, and in the delegation that it is part of."""
    ctx.usage.incr(usage)
    for delegated in find_capabilities(ctx, SupportsDelegationUsage):
        delegated.add_usage(usage)


def _request_with(replaced: Sequence[ModelMessage], summary: CompactionPart) -> ModelRequest:
    """Return the request that stands for messages: with their system prompts, which belong to the agent."""
    system: list[Any] = list(takewhile(lambda part: isinstance(part, SystemPromptPart), replaced[0].parts))
    return ModelRequest(parts=[*system, summary])


def _native(response: ModelResponse, state: SummaryMetadata) -> ModelResponse:
    """Return the compaction of a provider, with what ours has besides its text."""
    metadata = state.part('').metadata
    return replace(
        response,
        parts=[
            replace(part, metadata=metadata) if isinstance(part, CompactionPart) else part for part in response.parts
        ],
    )
