"""The other `pydantic-deep` in a session of 100 turns, with its defaults; the same model writes its summaries.

One in-memory document and one `DeepAgentDeps` serve all turns. It writes its archive of messages into the working
directory, which is therefore a temporary one.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence

from loop import NO_LIMIT
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai_backends import StateBackend
from pydantic_ai_backends.hashline import line_hash
from pydantic_ai_backends.workspaces import StateWorkspace
from sessions import Action, Ask, Edit, Grep, Read, Session, Todos
from talk import TOOLS, Say, cases

from pydantic_deep import DeepAgentDeps, create_deep_agent


def begin(played: Session, model: Model) -> Say:
    """Return turns of an agent on the files of a session."""
    directory = tempfile.TemporaryDirectory()
    os.chdir(directory.name)
    document = StateBackend()
    for path, text in played.files.items():
        document.write_bytes(path, text.encode())
    agent = create_deep_agent(
        model,
        summarization_model=model,
        tools=TOOLS[played.name],
        workspace=StateWorkspace(store={played.name: document}),
    )
    deps, workspace = DeepAgentDeps(), WorkspaceRef(provider='state', id=played.name)

    async def say(prompt: str, history: Sequence[ModelMessage]) -> AgentRunResult[object]:
        assert os.path.isdir(directory.name)  # exists as long as this function, which refers to it
        return await agent.run(
            prompt, deps=deps, message_history=list(history), usage_limits=NO_LIMIT, workspace=workspace
        )

    return say


def spell(action: Action) -> tuple[str, Mapping[str, object]]:
    """Return an action as a call of its tools. Its edits refer to lines by number and digest."""
    match action:
        case Read(path=path, first=0, lines=2_000):
            return 'read_file', {'path': path}
        case Read(path=path, first=first, lines=lines):
            return 'read_file', {'path': path, 'offset': first, 'limit': lines}
        case Grep(pattern=pattern, path=path):
            place = {} if path is None else {'path': path}
            return 'grep', {'pattern': pattern.replace('(', r'\('), 'output_mode': 'content', **place}
        case Edit(path=path, first=first, old=old, new=new):
            lines = {'start_line': first + 1, 'start_hash': line_hash(old[0])}
            end = {'end_line': first + len(old), 'end_hash': line_hash(old[-1])}
            return 'hashline_edit', {'path': path, **lines, 'new_content': '\n'.join(new), **end}
        case Todos(items=items):
            todos = [{'content': text, 'status': status, 'active_form': text} for text, status in items]
            return 'write_todos', {'todos': todos}
        case Ask(tool=tool, key=key):
            return ('fetch', {'url': key}) if tool == 'fetch' else ('find_customer', {'key': key})


CASES = cases(begin, spell)
"""The session cases, by name."""
