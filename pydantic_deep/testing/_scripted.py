"""A model whose answers a test writes down.

Not here: answers that a real model gave (`_recorded`), and how an answer is streamed (`_requests.canned_stream`).
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.profiles import ModelProfile, ModelProfileSpec
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.errors import DeepAgentError

Answer: TypeAlias = str | ModelResponsePart | Sequence[str | ModelResponsePart] | ModelResponse
"""What a model says to one request: a text, a part such as `call(...)`, several of them, or a whole response."""

Script: TypeAlias = Callable[[list[ModelMessage], AgentInfo], Answer | Awaitable[Answer]]
"""A function that answers: what `FunctionModel` takes, or one that returns something shorter."""

Step: TypeAlias = Answer | BaseException | Script
"""The answer to one request, an exception that the request raises, or a function that answers it."""

USAGE = RequestUsage(input_tokens=100, output_tokens=10)
"""What each response reports unless it has usage of its own: constant, because an estimate would read all of the
history at each request."""

_PROFILE = ModelProfile(
    supports_json_schema_output=True,
    supports_json_object_output=True,
    # Without it, pydantic-ai words what it sends, and each release words it otherwise.
    supports_inline_system_prompts=True,
)
"""What a scripted model can do unless a test says otherwise."""

_SHOWN_MESSAGES = 3
"""How many of the last messages an exhausted script shows."""

_SHOWN_CHARS = 400
"""How much of each of them."""


class ScriptExhaustedError(DeepAgentError, AssertionError):
    """The agent asked more often than the script answers.

    Attributes:
        step_count: How many answers the script had.
        messages: What the model was sent this time.
    """

    def __init__(self, step_count: int, messages: list[ModelMessage]) -> None:
        self.step_count = step_count
        self.messages = messages
        shown = '\n'.join(f'  {_shorten(message)}' for message in messages[-_SHOWN_MESSAGES:])
        super().__init__(
            f'The script has {step_count} answers, and the model was asked once more. Add a step, or pass `then=`. '
            f'The last of {len(messages)} messages:\n{shown}'
        )


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """What the model was sent in one request."""

    messages: list[ModelMessage]
    """The history as a provider would get it, with changed instructions already in their places."""
    instructions: str | None
    """The instructions, joined."""
    settings: ModelSettings | None
    """The settings of the model, the agent and the run, merged."""
    parameters: ModelRequestParameters
    """Everything else: output mode, native tools, instruction parts."""

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools that the model may call, output tools last."""
        return [*self.parameters.declared_function_tools, *self.parameters.output_tools]

    @property
    def tool_names(self) -> list[str]:
        """The names of `tools`."""
        return [tool.name for tool in self.tools]

    @property
    def tool_returns(self) -> list[ToolReturnPart]:
        """The results of all tool calls in the history, oldest first."""
        requests = [message for message in self.messages if isinstance(message, ModelRequest)]
        return [part for request in requests for part in request.parts if isinstance(part, ToolReturnPart)]


def call(tool_name: str, /, **args: object) -> ToolCallPart:
    """Return a tool call for a script; the model that plays it numbers it `call-1`, `call-2`, …

    For an id of your own, or an argument that is no Python name, write a `ToolCallPart`.
    """
    return ToolCallPart(tool_name, args, tool_call_id='')


class ScriptedModel(CannedModel):
    """A model that gives the answers that you write down, one for each request, streamed or not.

    ```python
    from pydantic_ai import Agent

    from pydantic_deep.testing import ScriptedModel, call

    agent = Agent(ScriptedModel(call('add', a=1, b=2), 'The sum is 3.'))


    @agent.tool_plain
    def add(a: int, b: int) -> int:
        return a + b


    print(agent.run_sync('What is 1 + 2?').output)
    #> The sum is 3.
    ```
    Steps are used up in the order in which requests arrive, over all runs of this object. For runs at the same time
    pass `then=` a function that reads the messages.
    """

    def __init__(
        self,
        *steps: Step,
        then: Script | None = None,
        model_name: str = 'scripted',
        usage: RequestUsage = USAGE,
        profile: ModelProfileSpec | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        """Write the script.

        Args:
            *steps: The answers, in order.
            then: Answers every request after the steps.
            model_name: The name that responses bear.
            usage: What each response reports, unless it brings usage of its own.
            profile: What the model can do; by default tools, output by JSON schema, and system messages anywhere.
            settings: Settings that the model brings.
        """
        super().__init__(settings=settings, profile=_PROFILE if profile is None else profile)
        self._steps = steps
        self._then = then
        self._model_name = model_name
        self._usage = usage
        self._call_count = 0
        self.requests: list[SeenRequest] = []
        """What the model was sent, request by request, those that raised included."""

    @property
    def remaining(self) -> int:
        """How many steps were not asked for; 0 when the script was played to its end."""
        return max(len(self._steps) - len(self.requests), 0)

    @property
    def model_name(self) -> str:
        """The name that responses bear."""
        return self._model_name

    @property
    def system(self) -> str:
        """No provider: `scripted`."""
        return 'scripted'

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the answer of the next step."""
        settings, parameters = self.prepare_request(settings, parameters)
        seen = SeenRequest(
            messages=list(messages),
            instructions=InstructionPart.join(parameters.instruction_parts or []),
            settings=settings,
            parameters=parameters,
        )
        self.requests.append(seen)
        step = self._next_step(len(self.requests), messages)
        if isinstance(step, BaseException):
            raise step
        return self._respond(await _ask(step, seen), messages)

    def _next_step(self, number: int, messages: list[ModelMessage]) -> Step:
        if number <= len(self._steps):
            return self._steps[number - 1]
        if self._then is None:
            raise ScriptExhaustedError(len(self._steps), messages)
        return self._then

    def _respond(self, answer: Answer, messages: list[ModelMessage]) -> ModelResponse:
        """Return a new response: ids for calls that have none, the name of the model, usage."""
        response = answer if isinstance(answer, ModelResponse) else ModelResponse(parts=_parts(answer))
        return replace(
            response,
            parts=self._number_calls(response.parts, messages),
            model_name=response.model_name or self._model_name,
            usage=response.usage if response.usage.has_values() else replace(self._usage),
        )

    def _number_calls(
        self, parts: Sequence[ModelResponsePart], messages: list[ModelMessage]
    ) -> list[ModelResponsePart]:
        """Give calls without an id one that the history does not have: it may come from another script."""
        if not any(isinstance(part, ToolCallPart) and not part.tool_call_id for part in parts):
            return list(parts)
        taken = {p.tool_call_id for m in messages for p in m.parts if isinstance(p, ToolCallPart)}
        numbered: list[ModelResponsePart] = []
        for part in parts:
            if isinstance(part, ToolCallPart) and not part.tool_call_id:
                part = replace(part, tool_call_id=self._next_call_id(taken))
            numbered.append(part)
        return numbered

    def _next_call_id(self, taken: set[str]) -> str:
        self._call_count += 1
        while f'call-{self._call_count}' in taken:
            self._call_count += 1
        return f'call-{self._call_count}'


async def _ask(step: Answer | Script, seen: SeenRequest) -> Answer:
    """Return what a step says; a function is called, and awaited if it wants."""
    if not callable(step):
        return step
    said = step(seen.messages, _agent_info(seen))
    return await said if inspect.isawaitable(said) else said


def _agent_info(seen: SeenRequest) -> AgentInfo:
    parameters = seen.parameters
    return AgentInfo(
        function_tools=parameters.declared_function_tools,
        allow_text_output=parameters.allow_text_output,
        output_tools=parameters.output_tools,
        model_settings=seen.settings,
        model_request_parameters=parameters,
        instructions=seen.instructions,
    )


def _parts(answer: str | ModelResponsePart | Sequence[str | ModelResponsePart]) -> list[ModelResponsePart]:
    """Return the parts of what a step says."""
    items = answer if isinstance(answer, Sequence) and not isinstance(answer, str) else [answer]
    return [TextPart(item) if isinstance(item, str) else item for item in items]


def _shorten(message: ModelMessage) -> str:
    """Return a message as one short line."""
    text = f'{message.kind}: ' + ' | '.join(f'{part.part_kind} {part}' for part in message.parts)
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'
