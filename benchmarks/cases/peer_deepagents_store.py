"""`deepagents` with LangGraph's `SqliteSaver`: the cost of persisting each step, and the growth of its database.

The saver and the runs are synchronous: the asynchronous saver adds a thread per statement. Files are a channel of the
graph's state, so the saver stores them too.
"""

from __future__ import annotations

import sqlite3
import statistics
import tempfile
from contextlib import closing
from pathlib import Path

from chat import raw_bytes, size_of, turn
from deepagents import create_deep_agent
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from measure import Figures, Sizes, cpu_seconds, require
from peer_langchain import Scripted, write_and_read


def _steps(sizes: Sizes) -> Figures:
    with tempfile.TemporaryDirectory() as directory, closing(_connect(directory)) as connection:
        model = Scripted()
        graph = create_deep_agent(model, checkpointer=SqliteSaver(connection))
        taken = []
        for repeat in range(sizes.repeats + 1):
            model.play(write_and_read(sizes.steps))
            start = cpu_seconds()
            graph.invoke({'messages': [HumanMessage('Go on.')]}, _thread(f'steps-{repeat}'))
            taken.append(cpu_seconds() - start)
            require(model.last_result, f'value {sizes.steps - 1}')
        return {'stored_step_ms': statistics.median(taken[1:]) * 1000 / sizes.steps}


def _growth(sizes: Sizes) -> Figures:
    with tempfile.TemporaryDirectory() as with_files, tempfile.TemporaryDirectory() as text_only:
        _chat(with_files, sizes.turns, files=True)
        _chat(text_only, sizes.turns, files=False)
        return {
            'growth_ratio': size_of(Path(with_files)) / raw_bytes(sizes.turns),
            'growth_text_ratio': size_of(Path(text_only)) / raw_bytes(sizes.turns, files=False),
        }


def _chat(directory: str, turns: int, *, files: bool) -> None:
    with closing(_connect(directory)) as connection:
        model = Scripted()
        graph = create_deep_agent(model, checkpointer=SqliteSaver(connection))
        for number in range(turns):
            played = turn(number)
            model.play([('write_file', {'file_path': played.path, 'content': played.content})] if files else [])
            model.answer = played.answer
            graph.invoke({'messages': [HumanMessage(played.prompt)]}, _thread('chat'))


def _thread(name: str) -> dict:
    return {'recursion_limit': 100_000, 'configurable': {'thread_id': name}}


def _connect(directory: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f'{directory}/checkpoints.db', check_same_thread=False)
    connection.execute('PRAGMA synchronous = FULL')
    return connection


CASES = {'store-step': _steps, 'store-growth': _growth}
"""The cases of the store, by name."""
