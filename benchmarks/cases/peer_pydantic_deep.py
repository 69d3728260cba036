"""The other project named `pydantic-deep`, through its public interface, with its defaults.

If its environment contains this project's package instead, the script refuses to run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from loop import NO_LIMIT, Run, measure_history, measure_search, measure_steps, measure_surface, measure_tool
from measure import FIRST_GLOB, FIRST_GREP, GLOB, LITERAL, Figures, Sizes, main, measure_creation, measure_memory
from peer_pydantic_deep_context import CASES as CONTEXT_CASES
from peer_pydantic_deep_everything import CASES
from pydantic_ai.capabilities import AbstractCapability, LocalWorkspace
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai_backends import StateBackend, StateWorkspaceBackend

import pydantic_deep
from pydantic_deep import DeepAgentDeps, create_deep_agent


def runs_on(workspace: AbstractCapability | None = None) -> Run:
    """Return runs of one agent; its default workspace is in memory."""
    agent = create_deep_agent(TestModel(), workspace=workspace)

    async def run(model: Model, history: Sequence[ModelMessage]) -> object:
        return await agent.run(
            'Go on.', model=model, deps=DeepAgentDeps(), message_history=list(history), usage_limits=NO_LIMIT
        )

    return run


def _memory(sizes: Sizes) -> Figures:
    documents: dict[str, StateBackend] = {}
    return asyncio.run(measure_memory(sizes, StateWorkspaceBackend(documents).write_bytes))


def _search(sizes: Sizes) -> Figures:
    """Return the search figures: in Python in a read-only workspace, with `find` and `grep` in one that runs
    commands."""
    shell = runs_on(LocalWorkspace(sizes.tree))
    return {
        **measure_search(runs_on(LocalWorkspace(sizes.tree, read_only=True))),
        'shell_glob_ms': measure_tool(shell, ('glob', {'pattern': GLOB}), FIRST_GLOB),
        'shell_grep_ms': measure_tool(shell, ('grep', {'pattern': LITERAL}), FIRST_GREP),
    }


if __name__ == '__main__':
    if hasattr(pydantic_deep, 'LocalBackend'):
        raise SystemExit(f'This is not the peer: {pydantic_deep.__file__}. Remove .cache/bench and start again.')
    main(
        {
            'create': lambda sizes: measure_creation(lambda: create_deep_agent(TestModel())),
            'step': lambda sizes: measure_steps(runs_on(), sizes),
            'history': lambda sizes: measure_history(runs_on(), sizes),
            'search': _search,
            'memory': _memory,
            'surface': lambda sizes: measure_surface(runs_on()),
            **CASES,
            **CONTEXT_CASES,
        }
    )
