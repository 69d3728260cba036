"""What the agent plugs in: subagents as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import cast

from pydantic_ai import AgentToolset, CallToolsNode, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, AgentNode
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart

from pydantic_deep._messages.deferred_metadata import Preview

from ._catalogue import GENERAL, GENERAL_DESCRIPTION, render_catalogue
from ._children import Builder, agent_of, check_plain, plain_builder
from ._deps import depth_of
from ._errors import InvalidSubagentError
from ._hidden_tools import tool_names
from ._planner import TOOL_NAME, Planner
from ._toolset import TOOLSET_ID, TaskToolset
from ._tree_position import position_of
from ._types import Subagent, list_problem
from .delegation._answer_freshness import check_answers, refuse_plain_approvals


@dataclass
class Subagents(AbstractCapability[object]):
    """Work handed to agents with a history of their own: `Agent(model, capabilities=[Subagents([...])])`.

    The model has one tool, `task`, and a line on each subagent. A child sees nothing of the conversation but its task,
    works with deps of its own that share the files, and shares usage, limits and model settings with its parent, which
    gets its answer, or a failed result with what it had done.

    A subagent has subagents of its own if it declares some. `deps.max_depth` is a limit on the levels below a run; each
    level leaves one less, and with 0 there is neither the tool nor a word of it. Deps that know nothing of subagents are
    passed on as they are, and the level is in the `metadata` of the child's run.

    Raises:
        TypeError: `subagents` is no list of `Subagent`s.
        InvalidSubagentError: Two subagents have one name, or one has `skills` or `interrupt_on` and no `build` that
            could read them.
        UserError: At the start of a run with deps that have no files to fork, where a subagent wants a fork.
    """

    subagents: Sequence[Subagent] = ()
    """The subagents that there are, besides the general one."""
    _: KW_ONLY
    build: Builder | None = None
    """Makes the agent of a `Subagent` that is not ready; without it a plain `pydantic_ai.Agent`."""
    general_purpose: bool = True
    """Whether there is one named `general-purpose`, which is the agent itself. A `Subagent` of that name replaces it."""
    id: str | None = 'subagents'
    _room: Planner = field(init=False, repr=False, compare=False)
    _is_told: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        problem = list_problem(self.subagents)
        if problem is not None:
            raise TypeError(problem)
        repeated = [name for name, count in Counter(each.name for each in self.subagents).items() if count > 1]
        if repeated:
            raise InvalidSubagentError(repeated[0], 'another one has that name. Rename one of them.')
        if self.build is None:
            check_plain(self.subagents)
        self._room = self._new_room()

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Subagents:
        """Return one with the subagents of all, built by the last `build` that there is.

        Raises:
            InvalidSubagentError: Two of them have a subagent of one name.
        """
        rooms = cast('Sequence[Subagents]', capabilities)
        return cls(
            [subagent for room in rooms for subagent in room.subagents],
            build=next((room.build for room in reversed(rooms) if room.build is not None), None),
            general_purpose=all(room.general_purpose for room in rooms),
            id=rooms[-1].id,
        )

    async def for_run(self, ctx: RunContext[object]) -> Subagents:
        """Return this run's instance, which knows what its requests are like."""
        run = replace(self)
        run._is_told = depth_of(ctx.deps, position_of(ctx.metadata)) != 0
        return run

    def get_instructions(self) -> str | None:
        """Return a line on each subagent, where there may be any."""
        if not self._is_told or not self._room.subagents:
            return None
        named = self._room.subagents.items()
        return render_catalogue({name: each.description if each else GENERAL_DESCRIPTION for name, each in named})

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `task`."""
        return TaskToolset(self._room)

    async def before_node_run(self, ctx: RunContext[object], *, node: AgentNode[object]) -> AgentNode[object]:
        """Refuse answers that are not for what waits now, before anything runs on them.

        Raises:
            UserError: They are for an earlier pause or another conversation, or approve without an answer.
        """
        if isinstance(node, CallToolsNode) and node.tool_call_results:
            check_answers(node.model_response, node.tool_call_metadata, ctx.usage, self._room.subagents)
            if not self._room.is_gated(ctx):
                refuse_plain_approvals(node.model_response, node.tool_call_results, node.tool_call_metadata, TOOL_NAME)
        return node

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Note what the request was like, because the calls in the response do not know."""
        self._room.settings = request_context.model_settings
        self._room.is_streamed = request_context.streaming
        return response

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, object]
    ) -> Preview | None:
        """Return why a delegation would fail; `None` for one that would begin, which its description says all of."""
        if tool_def.toolset_id != TOOLSET_ID:
            return None
        try:
            self._room.refuse(ctx, str(args.get('subagent')))
        except (ModelRetry, ToolFailed) as error:
            return Preview(kind='call', failure=error.message)
        return None

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the names of the tools of all subagents, at any depth.

        The agents are built for it. The general one has the tools of the run, which are not hidden.
        """
        declared = [each for each in self._room.subagents.values() if each is not None]
        return await tool_names(
            ctx, [agent_of(each, self._room.build, self._room.cache_of(ctx.deps)) for each in declared]
        )

    def _new_room(self) -> Planner:
        general = {GENERAL: None} if self.general_purpose else {}
        declared = {each.name: each for each in self.subagents}
        return Planner(subagents={**general, **declared}, build=self.build or _build_plain)


_build_plain = plain_builder(lambda subagents: Subagents(subagents, general_purpose=False))
