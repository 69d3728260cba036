"""Fixtures for filesystem tests: they call tools through an agent, like a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ToolCallPart

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep_backends import BackendProtocol


@pytest.fixture
def play() -> Callable[..., Awaitable[list[str]]]:
    """Run an agent on a backend and return the result of each call, prefixed by its outcome unless it succeeded.

    Each argument after the backend is a response: one call, or a list of concurrent calls.

    """

    async def run(backend: BackendProtocol | Filesystem, *responses: ToolCallPart | list[ToolCallPart]) -> list[str]:
        capability = backend if isinstance(backend, Filesystem) else Filesystem(backend=backend)
        model = ScriptedModel(*responses, 'done')
        await Agent(model, capabilities=[capability]).run('go')
        returns = model.requests[-1].tool_returns
        return [str(p.content) if p.outcome == 'success' else f'{p.outcome}: {p.content}' for p in returns]

    return run


@dataclass
class Tenant:
    """Third-party deps with a backend."""

    backend: object


def script(name: str = 'a.txt') -> ScriptedModel:
    return ScriptedModel(
        call('write_file', path=name, content='one\n'),
        call('edit_file', path=name, old_string='one', new_string='two'),
        call('read_file', path=name),
        'done',
    )


Play: TypeAlias = Callable[..., Awaitable[list[str]]]


def edit(path: str, old: str, new: str, **more: object) -> ToolCallPart:
    return call('edit_file', path=path, old_string=old, new_string=new, **more)


def write(path: str, content: str) -> ToolCallPart:
    return call('write_file', path=path, content=content)
