"""What the model may call: `search_history`.

The function is made once for all agents; a run hands it its own history in the place of deps.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.messages import ModelMessage

from ._search import TOOL_NAME, search

NOTHING_REPLACED = 'No message was replaced: all of them are above.'
"""What the model is told where there is no summary."""


@dataclass
class History:
    """What the history of one run was before summaries."""

    earlier: Callable[[], Awaitable[Sequence[ModelMessage]]]
    """Reads the messages that summaries have replaced."""


async def search_history(ctx: RunContext[History], query: str) -> str:
    """Search, by words, messages that a summary has replaced."""
    messages = await ctx.deps.earlier()
    return search(messages, query) if messages else NOTHING_REPLACED


@cache
def function_toolset() -> FunctionToolset[History]:
    """Return the toolset of the function above, whose deps are a `History`."""
    toolset = FunctionToolset[History](id='summarization')
    toolset.add_function(search_history, name=TOOL_NAME, metadata={'effect': 'read'})
    return toolset
