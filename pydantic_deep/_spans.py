"""OpenTelemetry spans, in addition to those of pydantic-ai for runs, requests and tools.

Nothing is recorded or sent unless the program configures a provider, for example by `logfire.configure()`. Attributes
are ids, names and numbers, never texts of people or models, which may contain secrets. Names with `gen_ai.` are those of
the OpenTelemetry conventions for generative AI; names with `pydantic_deep.` are our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from opentelemetry import context, trace
from opentelemetry.trace import Link, Span, SpanContext, StatusCode

_TRACER = trace.get_tracer('pydantic-deep')

_SUBMITTED: ContextVar[list[Link]] = ContextVar('submitted', default=[])  # noqa: B039 - nobody changes it

VERSION_ID = 'pydantic_deep.version.id'
"""The id of the version at the end, for `VersionedAgent.load`."""

PARENT_ID = 'pydantic_deep.version.parent.id'
"""The id of the version at the start."""

CONVERSATION_ID = 'gen_ai.conversation.id'
"""The id of the conversation."""

AGENT_NAME = 'gen_ai.agent.name'
"""The name of the agent."""


@contextmanager
def open_span(name: str, attributes: Mapping[str, str | int | None], *, links: Sequence[Link] = ()) -> Generator[Span]:
    """Run a block in a span.

    An exception marks the span as an error, with the class of the exception only: its message may contain secrets.

    Args:
        name: The name of the operation, without ids, so that there are few different names.
        attributes: Ids, names and numbers, keyed by the names above. `None` is omitted.
        links: Links to earlier spans.
    """
    named = {key: value for key, value in attributes.items() if value is not None}
    started = _TRACER.start_span(name, attributes=named, links=links)
    task, token = asyncio.current_task(), context.attach(trace.set_span_in_context(started))
    try:
        yield started
    except BaseException as error:
        started.set_attribute('error.type', type(error).__qualname__)
        started.set_status(StatusCode.ERROR)
        raise
    finally:
        if asyncio.current_task() is task:  # a dropped generator is closed in another task, which cannot detach
            context.detach(token)
        started.end()


def trace_id() -> str | None:
    """Return the id of the current trace, in 32 hexadecimal digits; `None` outside of a trace."""
    span = trace.get_current_span().get_span_context()
    return f'{span.trace_id:032x}' if span.is_valid else None


def span_id() -> str | None:
    """Return the id of the current span, in 16 hexadecimal digits; `None` outside of a trace."""
    span = trace.get_current_span().get_span_context()
    return f'{span.span_id:016x}' if span.is_valid else None


@contextmanager
def submitted_in(trace_id: str | None, span_id: str | None) -> Generator[None]:
    """Link the turns in a block with the span of any process that submitted them; with none if it was not traced."""
    token = _SUBMITTED.set(link_to(trace_id, span_id))
    try:
        yield
    finally:
        _SUBMITTED.reset(token)


def submission_links() -> list[Link]:
    """Return the link to the span that submitted the turn; none in a turn that was not queued."""
    return _SUBMITTED.get()


def link_to(trace_id: str | None, span_id: str | None) -> list[Link]:
    """Return a link to a span of any process; none if it was not traced."""
    if trace_id is None or span_id is None:
        return []
    return [Link(SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True))]
