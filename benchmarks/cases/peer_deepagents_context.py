"""`deepagents` in a session of 100 turns, with its defaults; the same model writes its summaries.

Its files are a channel of the graph's state, which LangGraph's in-memory checkpointer stores between turns. It has no
todos by default: the session with todos adds LangChain's `TodoListMiddleware`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from deepagents import create_deep_agent
from deepagents.backends.utils import create_file_data
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from measure import Figures, Sizes
from player import WINDOW_TOKENS, Player, Request
from sessions import NAMES_OF_SESSIONS, Action, Ask, Edit, Grep, Read, Session, Todos, lookup, page, session


def fetch(url: str) -> str:
    """Return the text of a page."""
    return page(url)


def find_customer(key: str) -> str:
    """Return what is known of a customer."""
    return lookup(key)


TOOLS = {'coding': [], 'research': [fetch], 'support': [find_customer], 'todos': [find_customer]}
"""The user's tools in each session."""


class Played(BaseChatModel):
    """The model that the player answers for. A request without tools is a request for a summary."""

    player: object

    @property
    def _llm_type(self) -> str:
        return 'scripted'

    def bind_tools(self, tools, **kwargs):
        """Bind the tools to one request, like the models of providers."""
        return self.bind(tools=[convert_to_openai_tool(tool)['function'] for tool in tools])

    def _generate(self, messages: list[BaseMessage], stop=None, run_manager=None, **kwargs) -> ChatResult:
        tools = kwargs.get('tools') or []
        head = [('head', json.dumps(tools, ensure_ascii=False, separators=(',', ':')))] if tools else []
        request = Request(
            segments=head + [segment for message in messages for segment in _segments(message)],
            is_summary=not tools,
            result_by_id=_results(messages),
        )
        reply = self.player.respond(request)
        usage = {
            'input_tokens': reply.usage.input,
            'output_tokens': reply.usage.output,
            'total_tokens': reply.usage.input + reply.usage.output,
            'input_token_details': {'cache_read': reply.usage.cached},
        }
        calls = [{'name': call.name, 'args': dict(call.args), 'id': call.id} for call in reply.calls]
        return ChatResult(
            generations=[ChatGeneration(message=AIMessage(content=reply.text, tool_calls=calls, usage_metadata=usage))]
        )


def _segments(message: BaseMessage) -> list[tuple]:
    text = message.text
    if isinstance(message, SystemMessage):
        return [('head', text)]
    if isinstance(message, ToolMessage):
        return [('results', f'{message.tool_call_id} {text}')]
    if isinstance(message, AIMessage):
        calls = [
            ('calls', f'{call["id"]} {call["name"]} {json.dumps(call["args"], ensure_ascii=False)}')
            for call in message.tool_calls
        ]
        return [('said', text)] * bool(text) + calls
    return [('said', text)]


def _results(messages: list[BaseMessage]) -> dict[str, str]:
    """Return the tool results after the last response."""
    results = {}
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message.text
    return results


def spell(action: Action) -> tuple[str, Mapping[str, object]]:
    """Return an action as a call of its tools."""
    match action:
        case Read(path=path, first=first, lines=lines):
            start = {} if not first else {'offset': first}
            return 'read_file', {'file_path': path, **start, 'limit': lines}
        case Grep(pattern=pattern, path=path):
            place = {} if path is None else {'path': path}
            return 'grep', {'pattern': pattern, 'output_mode': 'content', **place}
        case Edit(path=path, old=old, new=new):
            return 'edit_file', {'file_path': path, 'old_string': '\n'.join(old), 'new_string': '\n'.join(new)}
        case Todos(items=items):
            return 'write_todos', {'todos': [{'content': content, 'status': status} for content, status in items]}
        case Ask(tool=tool, key=key):
            return ('fetch', {'url': key}) if tool == 'fetch' else ('find_customer', {'key': key})


def _play(played: Session) -> Player:
    player = Player(played, spell)
    todos = [TodoListMiddleware()] if played.name == 'todos' else []
    graph = create_deep_agent(
        Played(player=player, profile={'max_input_tokens': WINDOW_TOKENS}),
        tools=TOOLS[played.name],
        middleware=todos,
        checkpointer=InMemorySaver(),
    )
    config = {'recursion_limit': 100_000, 'configurable': {'thread_id': played.name}}
    given = {'files': {path: create_file_data(text) for path, text in played.files.items()}}
    for turn in played.turns:
        player.start(turn)
        graph.invoke({'messages': [HumanMessage(turn.prompt)], **given}, config)
        given = {}
    player.end()
    return player


def _case(name: str):
    def measure(sizes: Sizes) -> Figures:
        return _play(session(name, sizes.session_turns)).ledger.figures(name)

    return measure


CASES = {f'context-{name}': _case(name) for name in NAMES_OF_SESSIONS}
"""The session cases, by name."""
