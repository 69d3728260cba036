"""The tool `search_history`.

The function is created once for all agents. Each run passes its own history as deps.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage

from ._search import TOOL_NAME, search

NOTHING_REPLACED = 'No message was replaced: all of them are above.'
"""The tool result if no messages were replaced."""


@dataclass
class History:
    """The replaced messages of one run."""

    earlier: Callable[[], Awaitable[Sequence[ModelMessage]]]
    """Returns the messages that summaries have replaced."""


async def search_history(ctx: RunContext[History], query: str) -> str:
    """Search, by words, messages that a summary has replaced."""
    messages = await ctx.deps.earlier()
    return search(messages, query) if messages else NOTHING_REPLACED


@cache
def function_toolset() -> FunctionToolset[History]:
    """Return the toolset of `search_history`. Its deps are a `History`."""
    toolset = FunctionToolset[History](id='summarization')
    toolset.add_function(search_history, name=TOOL_NAME, metadata={'effect': 'read'})
    return toolset
