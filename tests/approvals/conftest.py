"""A desk with a person at it: the agent is rebuilt for every run, and only JSON is passed between runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pytest
from pydantic import TypeAdapter
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    ConversationTypeAdapter,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    ToolDefinition,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RequestUsage

from pydantic_deep._messages.deferred_metadata import (
    DELEGATES,
    CallRequest,
    DelegationAnswers,
    DelegationRequest,
    dump,
    parse_answer,
)
from pydantic_deep.approvals import (
    Approvals,
    Decision,
    InterruptOn,
    PendingApproval,
    Preview,
    answer_approvals,
    pending_approvals,
)
from pydantic_deep.extensions import SupportsInheritance, find_capabilities

Build: TypeAlias = Callable[[], Sequence[Any]]

OUT = [str, DeferredToolRequests]


class Desk:
    """A conversation of an agent with a person who answers approvals."""

    def __init__(
        self,
        *responses: Sequence[ToolCallPart] | ToolCallPart,
        tools: Sequence[Callable[..., object]] = (),
        toolset: AbstractToolset[Any] | None = None,
        interrupt_on: InterruptOn | None = None,
        capabilities: Build = tuple,
        approvals: bool = True,
    ) -> None:
        self.responses = [[each] if isinstance(each, ToolCallPart) else list(each) for each in responses]
        self.requests = 0
        """Number of requests sent to the model."""
        self.built = 0
        """Number of times the agent was built, which equals the number of runs."""
        self.output: object = None
        self._tools = tools
        self._toolset = toolset
        self._interrupt_on = interrupt_on or {}
        self._capabilities = capabilities
        self._approvals = approvals
        self._conversation = b''

    @property
    def pending(self) -> list[PendingApproval]:
        return pending_approvals(self.output)

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.pending]

    @property
    def messages(self) -> list[ModelMessage]:
        return list(ConversationTypeAdapter.validate_json(self._conversation).messages)

    @property
    def returns(self) -> list[ToolReturnPart[Any]]:
        requests = [each for each in self.messages if isinstance(each, ModelRequest)]
        return [part for each in requests for part in each.parts if isinstance(part, ToolReturnPart)]

    @property
    def results(self) -> dict[str, tuple[str, object]]:
        """Outcome and content of each completed call. Fails if a call has two results."""
        assert len(self.returns) == len({part.tool_call_id for part in self.returns})
        return {part.tool_call_id: (part.outcome, part.content) for part in self.returns}

    @property
    def metadata(self) -> list[object]:
        """Metadata of each result."""
        return [part.metadata for part in self.returns]

    @property
    def told(self) -> list[str]:
        """User prompts sent to the model after the first one."""
        parts = [
            p for m in self.messages if isinstance(m, ModelRequest) for p in m.parts if isinstance(p, UserPromptPart)
        ]
        said = [p.content for p in parts[1:]]
        return [text for each in said for text in ([each] if isinstance(each, str) else map(str, each))]

    def agent(self) -> Agent[None, Any]:
        """Return a freshly built agent."""
        self.built += 1
        approvals = [Approvals(interrupt_on=self._interrupt_on)] if self._approvals else []
        return Agent(
            FunctionModel(self._respond),
            deps_type=type(None),
            output_type=OUT,
            tools=self._tools,
            toolsets=[] if self._toolset is None else [self._toolset],
            capabilities=[*self._capabilities(), *approvals],
            retries={'tools': 3},
        )

    async def start(self) -> Desk:
        return self._keep(await self.agent().run('go'))

    async def answer(self, *decisions: Decision | None, **by_id: Decision) -> Desk:
        """Decide pending calls in order; `None` leaves a call pending."""
        given = dict(by_id)
        given |= {id: decision for id, decision in zip(self.ids, decisions, strict=False) if decision is not None}
        return await self.decide(given)

    async def decide(self, decisions: Mapping[str, Decision]) -> Desk:
        """Load the conversation from JSON, as another process would, and resume it."""
        conversation = ConversationTypeAdapter.validate_json(self._conversation)
        return await self.resume(answer_approvals(conversation.deferred_tool_requests, decisions))

    async def resume(self, results: DeferredToolResults) -> Desk:
        conversation = ConversationTypeAdapter.validate_json(self._conversation)
        return self._keep(await self.agent().run(conversation=conversation, deferred_tool_results=results))

    def _keep(self, result: Any) -> Desk:
        self._conversation = ConversationTypeAdapter.dump_json(result.conversation)
        self.output = ConversationTypeAdapter.validate_json(self._conversation).deferred_tool_requests or result.output
        return self

    def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        step = sum(isinstance(each, ModelResponse) for each in messages)
        parts = list(self.responses[step]) if step < len(self.responses) else [TextPart('done')]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=1, output_tokens=1))


class FakePreviews(AbstractCapability[object]):
    """A capability that previews tools with an argument `path`, from its own files."""

    def __init__(self, files: dict[str, str], *, binds: bool = False, effect: str = 'write') -> None:
        self.id = 'fake_files'
        self.description = None
        self.defer_loading = False
        self.files = files
        self.binds = binds
        self.asked = 0

    async def preview(
        self, ctx: object, *, call: ToolCallPart, tool_def: object, args: dict[str, Any]
    ) -> Preview | None:
        self.asked += 1
        if 'path' not in args:
            return None
        path: str | list[str] = args['path']
        files = {each: self.files.get(each) for each in (path if isinstance(path, list) else [path])}
        return Preview(kind='diff', text=f'+{args.get("content", "")}', files=files, binds=self.binds)


REQUESTS = TypeAdapter(DeferredToolRequests)


def task_toolset(children: Mapping[str, Callable[[], Agent[None, Any]]]) -> FunctionToolset[Any]:
    """Return a toolset with `task`, which runs a child that inherits capabilities as subagents do."""
    toolset = FunctionToolset[Any]()

    @toolset.tool(metadata={DELEGATES: True})
    async def task(ctx: RunContext[Any], subagent: str, description: str) -> str:
        child = children[subagent]()
        inherited = [each.for_subagent() for each in find_capabilities(ctx, SupportsInheritance)]
        common: dict[str, Any] = {'usage': ctx.usage, 'output_type': OUT, 'capabilities': inherited}
        answer = parse_answer(ctx.tool_call_metadata) if ctx.tool_call_approved else None
        if isinstance(answer, DelegationAnswers):
            result = await child.run(
                message_history=ModelMessagesTypeAdapter.validate_python(answer.request.messages),
                conversation_id=answer.request.conversation_id,
                deferred_tool_results=answer.results,
                **common,
            )
        else:
            result = await child.run(description, conversation_id='new', **common)
        if isinstance(result.output, DeferredToolRequests):
            request = DelegationRequest(
                subagent=subagent,
                conversation_id=result.conversation_id or '',
                messages=ModelMessagesTypeAdapter.dump_python(result.all_messages(), mode='json'),
                requests=result.output,
            )
            raise ApprovalRequired(metadata=dump(request))
        return str(result.output)

    return toolset


@pytest.fixture
def desk() -> type[Desk]:
    return Desk


@pytest.fixture
def fake_previews() -> type[FakePreviews]:
    return FakePreviews


@pytest.fixture
def tasks() -> Callable[[Mapping[str, Callable[[], Agent[None, Any]]]], FunctionToolset[Any]]:
    return task_toolset


DeskType = Callable[..., Any]


ran: list[object] = []


def wipe(x: str) -> str:
    ran.append(x)
    return f'wiped {x}'


def look() -> str:
    ran.append('look')
    return 'seen'


class Preapproving(AbstractCapability[Any]):
    """A capability that preapproves all calls and protects files."""

    def __init__(self, *, protected: Sequence[str] = (), hidden: frozenset[str] = frozenset()) -> None:
        self.id = None
        self.description = None
        self.defer_loading = False
        self.protected_paths = protected
        self.hidden = hidden

    def is_preapproved(self, *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]) -> bool:
        return True

    async def hidden_tool_names(self, ctx: object) -> frozenset[str]:
        return self.hidden


def wiping(x: object = 'a', id: str = 'c1') -> ToolCallPart:
    return ToolCallPart('wipe', {'x': x}, tool_call_id=id)


GATED = {'wipe': True}


def nested(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


NESTED = nested(3_000)


def part(id: str, tool: str = 'wipe', **args: object) -> ToolCallPart:
    return ToolCallPart(tool, args, tool_call_id=id)


def waiting(*ids: str) -> DeferredToolRequests:
    metadata = {id: dump(CallRequest(decisions=('approve', 'edit', 'deny', 'respond'))) for id in ids}
    return DeferredToolRequests(approvals=[part(id, x='a') for id in ids], metadata=metadata)


def delegated(id: str, requests: DeferredToolRequests, *, subagent: str = 'child') -> DeferredToolRequests:
    request = DelegationRequest(subagent=subagent, conversation_id='c', messages=[], requests=requests)
    return DeferredToolRequests(approvals=[part(id, 'task')], metadata={id: dump(request)})
