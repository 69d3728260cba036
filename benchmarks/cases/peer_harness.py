"""`pydantic-ai-harness`: a bare pydantic-ai agent with `StepPersistence` on its SQLite store, with its defaults.

It stores messages and metadata of tool calls, but no files.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bare import INSTRUCTIONS
from chat import raw_bytes, size_of, turn
from loop import NO_LIMIT, Run, Script, measure_steps
from measure import Figures, Sizes, main
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai_harness.step_persistence import SqliteStepStore, StepPersistence


def runs_in(directory: str) -> Run:
    """Return runs of an agent with persisted steps and tools that read and write a dict."""
    files: dict[str, str] = {}

    async def write_file(path: str, content: str) -> str:
        """Create or replace a file."""
        files[path] = content
        return f'Wrote {path}.'

    async def read_file(path: str) -> str:
        """Read a file."""
        return files[path]

    store = SqliteStepStore(database=f'{directory}/steps.db')
    agent = Agent(instructions=INSTRUCTIONS, tools=[write_file, read_file], capabilities=[StepPersistence(store=store)])
    conversations = itertools.count()

    async def run(model: Model, history: Sequence[ModelMessage], prompt: str = 'Go on.') -> object:
        conversation = 'chat' if prompt != 'Go on.' else f'conversation-{next(conversations)}'
        return await agent.run(
            prompt, model=model, message_history=list(history), conversation_id=conversation, usage_limits=NO_LIMIT
        )

    return run


def _steps(sizes: Sizes) -> Figures:
    with tempfile.TemporaryDirectory() as directory:
        return measure_steps(runs_in(directory), sizes, key='stored_step_ms')


def _growth(sizes: Sizes) -> Figures:
    with tempfile.TemporaryDirectory() as with_files, tempfile.TemporaryDirectory() as text_only:
        asyncio.run(_chat(with_files, sizes.turns, files=True))
        asyncio.run(_chat(text_only, sizes.turns, files=False))
        return {
            'growth_ratio': size_of(Path(with_files)) / raw_bytes(sizes.turns),
            'growth_text_ratio': size_of(Path(text_only)) / raw_bytes(sizes.turns, files=False),
        }


async def _chat(directory: str, turns: int, *, files: bool) -> None:
    run, history = runs_in(directory), []
    for number in range(turns):
        played = turn(number)
        calls = [('write_file', {'path': played.path, 'content': played.content})] if files else []
        result = await run(Script(calls, played.answer).model, history, played.prompt)
        history = result.all_messages()


if __name__ == '__main__':
    main({'store-step': _steps, 'store-growth': _growth})
