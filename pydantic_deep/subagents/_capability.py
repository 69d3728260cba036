"""Subagents as a capability for any pydantic-ai agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import cast

from pydantic_ai import AgentToolset, CallToolsNode, ModelRequestContext, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, AgentNode
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelResponse, ToolCallPart

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_flags, check_functions
from pydantic_deep._messages.deferred_metadata import Preview

from ._catalogue import GENERAL, GENERAL_DESCRIPTION, WITHOUT_CHOICE, render_catalogue
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
class Subagents(BaseCapability[object]):
    """Delegate work to agents with their own history: `Agent(model, capabilities=[Subagents([...])])`.

    The model gets one tool, `task`, and one line of instructions for each subagent. A child sees only its task and
    nothing of the conversation. It has its own deps, which share the files, and it shares usage, limits and model
    settings with its parent. The parent gets its output, or a failed result with a report of its work.

    A subagent may declare subagents of its own. `deps.max_depth` limits the levels below a run and decreases by one at
    each level; with 0 there are neither the tool nor the instructions. Deps without support for subagents are passed to
    the child unchanged, and the level is stored in the `metadata` of the child's run.

    Raises:
        TypeError: `subagents` is not a list of `Subagent`s.
        InvalidSubagentError: Two subagents have the same name, or one has `skills` or `interrupt_on` but no `build`
            supports them.
        UserError: At the start of a run, if a subagent requires a fork and the deps have no files.
    """

    subagents: Sequence[Subagent] = ()
    """The subagents, in addition to the general-purpose one."""
    _: KW_ONLY
    build: Builder | None = None
    """Builds the agent of a `Subagent` without `agent`; by default a plain `pydantic_ai.Agent`."""
    general_purpose: bool = True
    """Whether there is a subagent `general-purpose`, which is the agent itself. A `Subagent` of that name replaces it.
    """
    id: str | None = 'subagents'
    _planner: Planner = field(init=False, repr=False, compare=False)
    _is_available: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_functions(build=self.build)
        check_flags(general_purpose=self.general_purpose)
        problem = list_problem(self.subagents)
        if problem is not None:
            raise TypeError(problem)
        repeated = [name for name, count in Counter(subagent.name for subagent in self.subagents).items() if count > 1]
        if repeated:
            raise InvalidSubagentError(repeated[0], 'another one has the same name. Rename one of them.')
        if self.build is None:
            check_plain(self.subagents)
        self._planner = self._new_planner()

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Subagents:
        """Return one capability with the subagents of all, using the last `build` that is set.

        Raises:
            InvalidSubagentError: Two subagents have the same name.
        """
        instances = cast('Sequence[Subagents]', capabilities)
        return cls(
            [subagent for instance in instances for subagent in instance.subagents],
            build=next((instance.build for instance in reversed(instances) if instance.build is not None), None),
            general_purpose=all(instance.general_purpose for instance in instances),
            id=instances[-1].id,
        )

    async def for_run(self, ctx: RunContext[object]) -> Subagents:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._is_available = depth_of(ctx.deps, position_of(ctx.metadata)) != 0
        return run

    def get_instructions(self) -> str | None:
        """Return one line for each subagent, or what `task` is for if there is no choice; `None` if there can be none."""
        if not self._is_available or not self._planner.subagents:
            return None
        if self._planner.subagents == {GENERAL: None}:
            return WITHOUT_CHOICE
        subagents = self._planner.subagents.items()
        return render_catalogue(
            {name: subagent.description if subagent else GENERAL_DESCRIPTION for name, subagent in subagents}
        )

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `task`."""
        return TaskToolset(self._planner)

    async def before_node_run(self, ctx: RunContext[object], *, node: AgentNode[object]) -> AgentNode[object]:
        """Raise for answers that do not belong to the pending calls, before any tool runs.

        Raises:
            UserError: The answers belong to an earlier pause or another conversation, or approve without an answer.
        """
        if isinstance(node, CallToolsNode) and node.tool_call_results:
            check_answers(node.model_response, node.tool_call_metadata, ctx.usage, self._planner.subagents)
            if not self._planner.is_gated(ctx):
                refuse_plain_approvals(node.model_response, node.tool_call_results, node.tool_call_metadata, TOOL_NAME)
        return node

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Store the settings of the request, which tool calls cannot access."""
        self._planner.settings = request_context.model_settings
        self._planner.is_streamed = request_context.streaming
        return response

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, object]
    ) -> Preview | None:
        """Return the reason why a delegation would fail; `None` if it can start, as its arguments describe it
        completely.
        """
        if tool_def.toolset_id != TOOLSET_ID:
            return None
        try:
            self._planner.refuse(ctx, str(args.get('subagent')))
        except (ModelRetry, ToolFailed) as error:
            return Preview(kind='call', failure=error.message)
        return None

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return `task`, which a run at the deepest level lacks, and the tools of all subagents, at any depth.

        This builds the agents. The general-purpose subagent is skipped, as its tools are those of the run.
        """
        declared = [subagent for subagent in self._planner.subagents.values() if subagent is not None]
        agents = [agent_of(subagent, self._planner.build, self._planner.cache_of(ctx.deps)) for subagent in declared]
        return await tool_names(ctx, agents) | {TOOL_NAME}

    def _new_planner(self) -> Planner:
        general = {GENERAL: None} if self.general_purpose else {}
        declared = {subagent.name: subagent for subagent in self.subagents}
        return Planner(subagents={**general, **declared}, build=self.build or _build_plain)


_build_plain = plain_builder(lambda subagents: Subagents(subagents, general_purpose=False))
