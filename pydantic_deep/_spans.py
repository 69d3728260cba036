"""OpenTelemetry spans, in addition to those of pydantic-ai for runs, requests and tools.

Nothing is recorded or sent unless the program configures a provider, for example by `logfire.configure()`. Attributes
are ids, names and numbers, never texts of people or models, which may contain secrets. Names with `gen_ai.` are those of
the OpenTelemetry conventions for generative AI; names with `pydantic_deep.` are our own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.trace import Span, StatusCode

_TRACER = trace.get_tracer('pydantic-deep')

VERSION_ID = 'pydantic_deep.version.id'
"""The id of the version at the end, for `VersionedAgent.load`."""

PARENT_ID = 'pydantic_deep.version.parent.id'
"""The id of the version at the start."""

CONVERSATION_ID = 'gen_ai.conversation.id'
"""The id of the conversation."""

AGENT_NAME = 'gen_ai.agent.name'
"""The name of the agent."""


@contextmanager
def open_span(name: str, attributes: Mapping[str, str | int | None]) -> Generator[Span]:
    """Run a block in a span.

    An exception marks the span as an error, with the class of the exception only: its message may contain secrets.

    Args:
        name: The name of the operation, without ids, so that there are few different names.
        attributes: Ids, names and numbers, keyed by the names above. `None` is omitted.
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
    """Return the id of the current trace, in 32 hexadecimal digits; `None` outside of a trace."""
    context = trace.get_current_span().get_span_context()
    return f'{context.trace_id:032x}' if context.is_valid else None
