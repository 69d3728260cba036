"""Ours in a session of 100 turns: the requests of `create_deep_agent()` with its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loop import NO_LIMIT
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo
from sessions import Action, Ask, Edit, Grep, Read, Session, Todos
from talk import TOOLS, Say, cases

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent


def begin(played: Session, model: Model) -> Say:
    """Return turns of an agent on the files of a session."""
    backend = StateBackend(files=played.files)
    agent, deps = create_deep_agent(model, tools=TOOLS[played.name]), DeepAgentDeps(backend=backend)

    async def say(prompt: str, history: Sequence[ModelMessage]) -> AgentRunResult[object]:
        return await agent.run(prompt, deps=deps, message_history=history, usage_limits=NO_LIMIT)

    return say


def spell(action: Action) -> tuple[str, Mapping[str, object]]:
    """Return an action as a call of our tools."""
    match action:
        case Read(path=path, first=0, lines=2_000):
            return 'read_file', {'path': path}
        case Read(path=path, first=first, lines=lines):
            return 'read_file', {'path': path, 'offset': first + 1, 'limit': lines}
        case Grep(pattern=pattern, path=path):
            place = {} if path is None else {'path': path}
            return 'grep', {'pattern': pattern.replace('(', r'\('), **place}
        case Edit(path=path, old=old, new=new):
            return 'edit_file', {'path': path, 'old_string': '\n'.join(old), 'new_string': '\n'.join(new)}
        case Todos(items=items):
            return 'write_todos', {'todos': [{'content': content, 'status': status} for content, status in items]}
        case Ask():
            return asked(action)


def asked(ask: Ask) -> tuple[str, Mapping[str, object]]:
    """Return the call of one of the user's tools."""
    return ('fetch', {'url': ask.key}) if ask.tool == 'fetch' else ('find_customer', {'key': ask.key})


def is_summary(messages: Sequence[ModelMessage], _info: AgentInfo) -> bool:
    """Return whether a request ends with our prompt for a summary.

    It includes the tools of the agent, so that they are read from the cache. With a different prompt, the script would
    miss the result of its last call and fail.
    """
    last = messages[-1].parts[-1]
    return isinstance(last, UserPromptPart) and 'Summarize the conversation' in str(last.content)


CASES = cases(begin, spell, is_summary)
"""The session cases, by name."""
