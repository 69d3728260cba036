"""LangChain's `deepagents` on LangGraph, by its public interface, with its defaults.

Its files in memory are a channel of the graph's state and exist only in a run, so there is no case for their memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from deepagents import create_deep_agent
from deepagents.backends import BackendProtocol, FilesystemBackend
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
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
from pydantic import Field

HISTORY_REQUESTS = 5
"""Requests of the run after a long history."""


class Scripted(BaseChatModel):
    """Calls tools, one a request, then says that it is done; each response carries its usage."""

    calls: list = Field(default_factory=list)
    asked: int = 0
    last_result: str = ''
    bound: list = Field(default_factory=list)
    seen: list = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return 'scripted'

    def bind_tools(self, tools, **kwargs):
        """Remember the tools, as they would be sent."""
        self.bound = [convert_to_openai_tool(tool)['function'] for tool in tools]
        return self

    def play(self, calls: Sequence) -> None:
        """Start another script."""
        self.calls, self.asked, self.last_result = list(calls), 0, ''

    def _generate(self, messages: list[BaseMessage], stop=None, run_manager=None, **kwargs) -> ChatResult:
        self.asked += 1
        usage = {'input_tokens': 100, 'output_tokens': 10, 'total_tokens': 110}
        if self.asked <= len(self.calls):
            name, args = self.calls[self.asked - 1]
            call = {'name': name, 'args': args, 'id': f'measured-{self.asked}'}
            answer = AIMessage(content='', tool_calls=[call], usage_metadata=usage)
        else:
            self.last_result = str(messages[-1].content)
            self.seen = messages
            answer = AIMessage(content='Done.', usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def player(backend: BackendProtocol | None = None) -> Callable[..., Awaitable[Scripted]]:
    """Return what plays a script once; a graph that asked the model for anything else is refused."""
    model = Scripted()
    graph = create_deep_agent(model, backend=backend)

    async def play(calls: Sequence, history: Sequence[BaseMessage] = ()) -> Scripted:
        model.play(calls)
        messages = [*history, HumanMessage('Go on.')]
        await graph.ainvoke({'messages': messages}, {'recursion_limit': 100_000})
        if model.asked != len(calls) + 1:
            raise RuntimeError(f'The model was asked {model.asked} times, not {len(calls) + 1}.')
        return model

    return play


def write_and_read(count: int) -> list:
    """Return calls that write a new file and read it, by turns."""
    calls = []
    for number in range(count):
        path = f'/notes/{number // 2}.txt'
        wrote = ('write_file', {'file_path': path, 'content': f'value {number + 1}\n'})
        calls.append(wrote if number % 2 == 0 else ('read_file', {'file_path': path}))
    return calls


def _steps(sizes: Sizes) -> Figures:
    play, calls = player(), write_and_read(sizes.steps)

    async def measure() -> float:
        require((await play(calls)).last_result, f'value {sizes.steps - 1}')
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls))

    return {'step_ms': asyncio.run(measure()) / sizes.steps}


def _history(sizes: Sizes) -> Figures:
    play, calls = player(), write_and_read(HISTORY_REQUESTS - 1)
    history: list[BaseMessage] = []
    for number in range(sizes.messages // 2):
        history += [HumanMessage(f'Question {number}?'), AIMessage(f'Answer {number}.')]

    async def measure() -> float:
        await play(calls, history)
        return await measure_cpu_ms(sizes.repeats, lambda: play(calls, history))

    return {'history_ms': asyncio.run(measure()) / HISTORY_REQUESTS}


def _search(sizes: Sizes) -> Figures:
    """Its grep takes literals only."""
    play = player(FilesystemBackend(sizes.tree))

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
    model = asyncio.run(player()([]))
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
        }
    )
