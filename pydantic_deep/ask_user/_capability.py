"""The tool `ask_user` as a capability. The pause and the answer are those of `Approvals`."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic_ai import AgentToolset, FunctionToolset, RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._pause_check import check_can_pause
from pydantic_deep._toolsets.tool_schema import ToolSchema
from pydantic_deep.extensions import Preview

TOOL_NAME = 'ask_user'


@dataclass(kw_only=True)
class AskUser(BaseCapability[object]):
    """Let the model ask the user a question, with choices if it likes.

    The run pauses with the question as a pending call. Answer it with `Respond('the answer')`, or decline with `Deny`;
    the user may always give another answer than the choices. Subagents do not have the tool, unless their own
    `capabilities` contain it.
    """

    id: str | None = 'ask_user'

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with `ask_user`."""
        return _toolset()

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Check that the run can pause.

        Raises:
            UserError: It has no approvals.
        """
        check_can_pause(ctx, 'AskUser')

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return the question and its choices; `None` for other tools."""
        if tool_def.name != TOOL_NAME:
            return None
        question, choices = args['question'], args.get('choices', ())
        if not question.strip() or not all(choice.strip() for choice in choices):
            return Preview(kind='question', failure='A question and its choices need text.')
        return Preview(kind='question', text=question, choices=tuple(choices))


async def ask_user(question: str, choices: Sequence[str] = ()) -> str:
    """Ask the user. Offer choices if there are few answers."""
    raise ToolFailed('The user was not asked. Only a person can answer this call.')


@cache
def _toolset() -> FunctionToolset[object]:
    toolset = FunctionToolset[object](id=TOOL_NAME, schema_generator=ToolSchema)
    metadata = {'effect': 'read', 'trusted': True}
    toolset.add_function(ask_user, requires_approval=True, metadata=metadata)
    return toolset
