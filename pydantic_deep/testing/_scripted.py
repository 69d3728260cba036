"""A model with responses that a test defines.

`_recorded` replays responses of a real model; `_requests.canned_stream` streams a response.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, cast, get_args

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

from pydantic_deep._checks import check_key, check_name, check_numbers, check_object
from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.errors import DeepAgentError

Answer: TypeAlias = str | ModelResponsePart | Sequence[str | ModelResponsePart] | ModelResponse
"""A response to one request: a text, a part such as `call(...)`, several of them, or a complete `ModelResponse`."""

Script: TypeAlias = Callable[[list[ModelMessage], AgentInfo], Answer | Awaitable[Answer]]
"""A function that returns a response, like that of `FunctionModel` or in a shorter form."""

Step: TypeAlias = Answer | BaseException | Script
"""The response to one request, an exception to raise, or a function that returns the response."""

USAGE = RequestUsage(input_tokens=100, output_tokens=10)
"""The usage of each response that does not define its own. It is constant, as an estimate would read the complete
history at each request.
"""

_PROFILE = ModelProfile(
    supports_json_schema_output=True,
    supports_json_object_output=True,
    # otherwise pydantic-ai rewrites system prompts, and the wording differs between releases
    supports_inline_system_prompts=True,
)
"""The default capabilities of a scripted model."""

_PARTS: tuple[type, ...] = tuple(get_args(kind)[0] for kind in get_args(get_args(ModelResponsePart)[0]))
"""The classes of parts of a response."""

_SHOWN_MESSAGES = 3
"""Number of messages that the error of an exhausted script shows."""

_SHOWN_CHARS = 400
"""Maximum length of each of these messages, in characters."""


class ScriptExhaustedError(DeepAgentError, AssertionError):
    """The agent made more requests than the script has steps.

    Attributes:
        step_count: The number of steps in the script.
        messages: The messages of the additional request.
    """

    def __init__(self, step_count: int, messages: list[ModelMessage]) -> None:
        self.step_count = step_count
        self.messages = messages
        shown = '\n'.join(f'  {_shorten(message)}' for message in messages[-_SHOWN_MESSAGES:])
        super().__init__(
            f'The script has {step_count} steps, but the agent made another request. Add a step, or pass `then=`. '
            f'The last of {len(messages)} messages:\n{shown}'
        )


@dataclass(frozen=True, kw_only=True)
class SeenRequest:
    """One request that the model received."""

    messages: list[ModelMessage]
    """The history as a provider would receive it, with changed instructions in their positions."""
    instructions: str | None
    """All instructions as one text; `None` if there are none."""
    settings: ModelSettings | None
    """The merged settings of the model, the agent and the run."""
    parameters: ModelRequestParameters
    """All other parameters: output mode, native tools, instruction parts."""

    @property
    def tools(self) -> list[ToolDefinition]:
        """The tools that the model may call, with output tools last."""
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
    """Return a tool call for a script. The model assigns the ids `call-1`, `call-2`, and so on.

    For a specific id, or an argument that is not a Python identifier, use `ToolCallPart`.
    """
    check_key('tool_name', tool_name)
    return ToolCallPart(tool_name, args, tool_call_id='')


class ScriptedModel(CannedModel):
    """A model that returns the responses that you define, one for each request, streamed or not.

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
    Steps are consumed in the order of requests, across all runs that use this object. For concurrent runs, pass a
    function of the messages as `then=`.

    Raises:
        TypeError: A step is neither a response, nor an exception, nor a function.
        ValidationError: Another argument is invalid.
    """

    def __init__(
        self,
        *steps: Step,
        then: Step | None = None,
        model_name: str = 'scripted',
        usage: RequestUsage = USAGE,
        profile: ModelProfileSpec | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        """Define the script.

        Args:
            *steps: The responses, in order.
            then: The step for each request after the last one.
            model_name: The model name in responses.
            usage: The usage of each response that does not define its own.
            profile: The capabilities of the model; by default tools, JSON schema output, and system messages at any
                position.
            settings: The default settings of the model.
        """
        for step in (*steps, *(() if then is None else (then,))):
            if not isinstance(step, BaseException | ModelResponse) and (isinstance(step, type) or not callable(step)):
                _parts(cast('str | ModelResponsePart', step))
        check_name('model_name', model_name)
        check_object('usage', usage, RequestUsage, 'For example, `RequestUsage(input_tokens=100)`.')
        if settings is not None:
            check_object('settings', settings, Mapping, 'For example, `{"temperature": 0}`.')
            check_numbers(settings)
        if not callable(profile or dict):
            check_object('profile', profile, Mapping, 'For example, `{"supports_tools": False}`.')
        super().__init__(settings=settings, profile=_PROFILE if profile is None else profile)
        self._steps = steps
        self._then = then
        self._model_name = model_name
        self._usage = usage
        self._call_count = 0
        self.requests: list[SeenRequest] = []
        """All requests in order, including those that raised an exception."""

    @property
    def remaining(self) -> int:
        """The number of steps that were not requested; 0 after a complete run of the script."""
        return max(len(self._steps) - len(self.requests), 0)

    @property
    def model_name(self) -> str:
        """The model name in responses."""
        return self._model_name

    @property
    def system(self) -> str:
        """The provider name, `scripted`."""
        return 'scripted'

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the response of the next step."""
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
        """Return a new response with ids for calls without one, the model name, and usage."""
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
        """Assign an unused id to each call without one. The history may contain calls from another script."""
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
    """Return the response of a step. Functions are called, and awaited if necessary."""
    if not callable(step):
        return step
    answer = step(seen.messages, _agent_info(seen))
    return await answer if inspect.isawaitable(answer) else answer


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
    """Return the parts of a response."""
    items = answer if isinstance(answer, Sequence) and not isinstance(answer, str | bytes) else [answer]
    for item in items:
        if not isinstance(item, (str, *_PARTS)):
            raise TypeError(
                f'A step of the script is {item!r}, or returned it. Pass or return a text, a part such as `call(name)`, a '
                'list of these, or a `ModelResponse`.'
            )
    return [TextPart(item) if isinstance(item, str) else item for item in items]


def _shorten(message: ModelMessage) -> str:
    """Return a message as one short line."""
    text = f'{message.kind}: ' + ' | '.join(f'{part.part_kind} {part}' for part in message.parts)
    return text if len(text) <= _SHOWN_CHARS else f'{text[:_SHOWN_CHARS]}…'
