"""The memory of the agent, which is in the store of its versions."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.memory import Memories
from pydantic_deep.store import Store

from ._own_agent import OwnAgent
from ._runtime import AgentRuntime, Settings


class UnusableMemoryError(DeepAgentError):
    """The memory cannot be used: a package is missing, or nothing is stored."""


async def with_memory(runtime: AgentRuntime, settings: Settings, store: Store) -> AgentRuntime:
    """Return a runtime whose agent remembers across conversations, if the settings say so.

    Args:
        runtime: The runtime.
        settings: The settings of its agent.
        store: The store of its versions, which stays open.

    Raises:
        UnusableMemoryError: The harness is not installed.
    """
    if not settings.memory:
        return runtime
    if find_spec('pydantic_ai_harness') is None:
        raise UnusableMemoryError(
            "The memory needs 'pydantic_ai_harness', which is not installed. Install it: "
            '`pip install pydantic-ai-harness`.'
        )
    memory = (await Memories.open(store, runtime.person)).capability()
    return replace(runtime, agent=OwnAgent(runtime.agent, model=None, capabilities=[memory]))


def check_memory(settings: Settings, *, is_persistent: bool) -> None:
    """Check that a memory would outlive the process.

    Raises:
        UnusableMemoryError: It would not.
    """
    if settings.memory and not is_persistent:
        raise UnusableMemoryError('The memory is in the store, and --no-store stores nothing. Add --no-memory.')
