"""The scripted model and its player for LangChain, the equivalent of `loop.py` for pydantic-ai."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field


class Scripted(BaseChatModel):
    """Calls tools, one per request, then answers; each response reports its usage."""

    answer: str = 'Done.'
    calls: list = Field(default_factory=list)
    asked: int = 0
    last_result: str = ''
    bound: list = Field(default_factory=list)
    seen: list = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return 'scripted'

    def bind_tools(self, tools, **kwargs):
        """Record the tools as they would be sent."""
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
            answer = AIMessage(content=self.answer, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=answer)])


def player(model: Scripted, graph) -> Callable[..., Awaitable[Scripted]]:
    """Return a function that runs a script once, in a new thread. It raises if the graph made other requests."""
    threads = itertools.count()

    async def play(calls: Sequence, history: Sequence[BaseMessage] = ()) -> Scripted:
        model.play(calls)
        messages = [*history, HumanMessage('Go on.')]
        config = {'recursion_limit': 100_000, 'configurable': {'thread_id': str(next(threads))}}
        await graph.ainvoke({'messages': messages}, config)
        if model.asked != len(calls) + 1:
            raise RuntimeError(f'The model was asked {model.asked} times, not {len(calls) + 1}.')
        return model

    return play


def write_and_read(count: int) -> list:
    """Return calls that alternately write a new file and read it."""
    calls = []
    for number in range(count):
        path = f'/notes/{number // 2}.txt'
        wrote = ('write_file', {'file_path': path, 'content': f'value {number + 1}\n'})
        calls.append(wrote if number % 2 == 0 else ('read_file', {'file_path': path}))
    return calls
