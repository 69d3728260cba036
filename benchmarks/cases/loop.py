"""Cases that are the same for every contestant on pydantic-ai, with a scripted model.

All of them use `FunctionModel`, and each response reports its usage: otherwise the model would estimate it from the
whole history at each request, which would dominate the measurement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from measure import (
    FIRST_GLOB,
    FIRST_GREP,
    GLOB,
    LITERAL,
    REGEX,
    Figures,
    Sizes,
    measure_cpu_ms,
    require,
    surface_figures,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

Run: TypeAlias = Callable[[Model, Sequence[ModelMessage]], Awaitable[object]]
"""One run of the contestant's agent on its own files, with this model, after this history."""

Call: TypeAlias = tuple[str, Mapping[str, object]]
"""The name of a tool and its arguments."""

NO_LIMIT = UsageLimits(request_limit=None)
"""Lifts pydantic-ai's default limit of 50 requests."""

HISTORY_REQUESTS = 5
"""Number of requests in the run after a long history."""


class Script:
    """Calls tools, one per request, then answers. Records the last result and the number of requests."""

    def __init__(self, calls: Sequence[Call], answer: str = 'Done.') -> None:
        self.calls = calls
        self.answer = answer
        self.asked = 0
        self.last_result = ''
        self.info: AgentInfo | None = None
        self.messages: list[ModelMessage] = []

    @property
    def model(self) -> FunctionModel:
        """The model that follows the script."""
        return FunctionModel(self._answer, model_name='scripted')

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        self.info, self.messages = info, messages
        usage = RequestUsage(input_tokens=100, output_tokens=10)
        if self.asked <= len(self.calls):
            name, args = self.calls[self.asked - 1]
            part = ToolCallPart(name, dict(args), tool_call_id=f'measured-{self.asked}')
            return ModelResponse(parts=[part], usage=usage, model_name='scripted')
        returns = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
        self.last_result = '\n'.join(part.model_response_str() for part in returns)
        return ModelResponse(parts=[TextPart(self.answer)], usage=usage, model_name='scripted')


def write_and_read(count: int) -> list[Call]:
    """Return calls that alternately write a new file and read it."""
    calls: list[Call] = []
    for number in range(count):
        path = f'/notes/{number // 2}.txt'
        wrote = ('write_file', {'path': path, 'content': f'value {number + 1}\n'})
        calls.append(wrote if number % 2 == 0 else ('read_file', {'path': path}))
    return calls


async def play(run: Run, calls: Sequence[Call], history: Sequence[ModelMessage] = ()) -> Script:
    """Run the script once. Raises if the contestant made a different number of requests."""
    script = Script(calls)
    await run(script.model, history)
    if script.asked != len(calls) + 1:
        raise RuntimeError(f'The model was asked {script.asked} times, not {len(calls) + 1}.')
    return script


def measure_steps(run: Run, sizes: Sizes, *, key: str = 'step_ms') -> Figures:
    """Return the CPU time of a tool step: request, call, result."""
    calls = write_and_read(sizes.steps)

    async def measure() -> float:
        script = await play(run, calls)
        require(script.last_result, f'value {sizes.steps - 1}')
        return await measure_cpu_ms(sizes.repeats, lambda: play(run, calls))

    return {key: asyncio.run(measure()) / sizes.steps}


def measure_history(run: Run, sizes: Sizes) -> Figures:
    """Return the CPU time of a request after a long history."""
    history = build_history(sizes.messages)
    calls = write_and_read(HISTORY_REQUESTS - 1)

    async def measure() -> float:
        await play(run, calls, history)
        return await measure_cpu_ms(sizes.repeats, lambda: play(run, calls, history))

    return {'history_ms': asyncio.run(measure()) / HISTORY_REQUESTS}


def build_history(count: int) -> list[ModelMessage]:
    """Return a history of questions and answers, short enough that no contestant summarizes it."""
    messages: list[ModelMessage] = []
    for number in range(count // 2):
        messages.append(ModelRequest(parts=[UserPromptPart(f'Question {number}?')]))
        messages.append(ModelResponse(parts=[TextPart(f'Answer {number}.')], usage=RequestUsage(input_tokens=9)))
    return messages


def measure_search(run: Run) -> Figures:
    """Return the CPU time of a glob and of two greps, each called by the model in a separate run."""
    return {
        'glob_ms': measure_tool(run, ('glob', {'pattern': GLOB}), FIRST_GLOB),
        'grep_ms': measure_tool(run, ('grep', {'pattern': LITERAL}), FIRST_GREP),
        'grep_regex_ms': measure_tool(run, ('grep', {'pattern': REGEX}), FIRST_GREP),
    }


def measure_tool(run: Run, call: Call, wanted: str) -> float:
    """Return the CPU milliseconds of a run that calls one tool. Its result must contain `wanted`."""

    async def measure() -> float:
        script = await play(run, [call])
        require(script.last_result, wanted)
        return await measure_cpu_ms(1, lambda: play(run, [call]))

    return asyncio.run(measure())


def measure_surface(run: Run, *, prefix: str = 'surface') -> Figures:
    """Return the size of the request before the first word of a user."""
    script = asyncio.run(play(run, []))
    if script.info is None:
        raise RuntimeError('The model was not asked.')
    tools = [*script.info.function_tools, *script.info.output_tools]
    system = [p.content for m in script.messages for p in m.parts if isinstance(p, SystemPromptPart)]
    return surface_figures(
        [(tool.name, tool.description or '', tool.parameters_json_schema) for tool in tools],
        '\n'.join([*system, script.info.instructions or '']),
        prefix=prefix,
    )
