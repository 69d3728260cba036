"""LangChain's `deepagents` on LangGraph, through its public interface, with its defaults.

Its in-memory files are a channel of the graph's state that exists only during a run, so there is no case for their
memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from deepagents import create_deep_agent
from deepagents.backends import BackendProtocol, FilesystemBackend
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from measure import (
    FIRST_GLOB,
    FIRST_GREP,
    GLOB,
    LITERAL,
    Figures,
    Sizes,
    main,
    measure_cpu_ms,
    measure_creation,
    require,
    surface_figures,
)
from peer_deepagents_context import CASES as CONTEXT_CASES
from peer_deepagents_everything import CASES
from peer_deepagents_store import CASES as STORE_CASES
from peer_langchain import Scripted, player, write_and_read

HISTORY_REQUESTS = 5
"""Number of requests in the run after a long history."""


def default_player(backend: BackendProtocol | None = None) -> Callable[..., Awaitable[Scripted]]:
    """Return a function that runs a script once on a graph with default settings."""
    model = Scripted()
    return player(model, create_deep_agent(model, backend=backend))


def _steps(sizes: Sizes) -> Figures:
    play, calls = default_player(), write_and_read(sizes.steps)

    async def measure() -> float:
        require((await play(calls)).last_result, f'value {sizes.steps - 1}')
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls))

    return {'step_ms': asyncio.run(measure()) / sizes.steps}


def _history(sizes: Sizes) -> Figures:
    play, calls = default_player(), write_and_read(HISTORY_REQUESTS - 1)
    history: list[BaseMessage] = []
    for number in range(sizes.messages // 2):
        history += [HumanMessage(f'Question {number}?'), AIMessage(f'Answer {number}.')]

    async def measure() -> float:
        await play(calls, history)
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls, history))

    return {'history_ms': asyncio.run(measure()) / HISTORY_REQUESTS}


def _search(sizes: Sizes) -> Figures:
    """Return the search figures. Its grep supports literals only."""
    play = default_player(FilesystemBackend(sizes.tree))

    async def measure(call: tuple, wanted: str) -> float:
        require((await play([call])).last_result, wanted)
        return await measure_cpu_ms(1, lambda: play([call]))

    async def measure_both() -> Figures:
        return {
            'glob_ms': await measure(('glob', {'pattern': GLOB}), FIRST_GLOB),
            'grep_ms': await measure(('grep', {'pattern': LITERAL}), FIRST_GREP),
        }

    return asyncio.run(measure_both())


def _surface(sizes: Sizes) -> Figures:
    model = asyncio.run(default_player()([]))
    system = [str(message.text) for message in model.seen if isinstance(message, SystemMessage)]
    return surface_figures(
        [(tool['name'], tool['description'], tool['parameters']) for tool in model.bound], '\n'.join(system)
    )


if __name__ == '__main__':
    main(
        {
            'create': lambda sizes: measure_creation(lambda: create_deep_agent(Scripted())),
            'step': _steps,
            'history': _history,
            'search': _search,
            'surface': _surface,
            **CASES,
            **STORE_CASES,
            **CONTEXT_CASES,
        }
    )
