"""Spans: what happens, as OpenTelemetry has it, beside the spans that pydantic-ai makes of runs, requests and tools.

Nothing is recorded or sent until a program configures a provider, with `logfire.configure()` for one. Attributes hold
ids, names and numbers, never contents: what people or models write may hold secrets. `gen_ai.…` are the names of the
OpenTelemetry conventions for generative AI, `pydantic_deep.…` are ours.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode

_TRACER = trace.get_tracer('pydantic-deep')

VERSION_ID = 'pydantic_deep.version.id'
"""The version that something ended with: `VersionedAgent.load` takes it."""

PARENT_ID = 'pydantic_deep.version.parent.id'
"""The version that something began from."""

CONVERSATION_ID = 'gen_ai.conversation.id'
"""The conversation."""

AGENT_NAME = 'gen_ai.agent.name'
"""The name of the agent."""


@contextmanager
def open_span(name: str, attributes: Mapping[str, str | int | None]) -> Generator[Span]:
    """Be within a span. An exception that leaves it makes it an error, by its class: its text may hold secrets.

    Args:
        name: What happens; few different ones.
        attributes: Ids, names and numbers by the names above; `None` is left out.
    """
    named = {key: value for key, value in attributes.items() if value is not None}
    started = _TRACER.start_span(name, attributes=named)
    with trace.use_span(started, end_on_exit=True, record_exception=False, set_status_on_exception=False) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute('error.type', type(error).__qualname__)
            span.set_status(StatusCode.ERROR)
            raise


def trace_id() -> str | None:
    """Return the trace that is going on, 32 hexadecimal digits; `None` outside of any."""
    context = trace.get_current_span().get_span_context()
    return f'{context.trace_id:032x}' if context.is_valid else None
