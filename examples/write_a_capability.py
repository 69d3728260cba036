"""How do I write a capability that works with approvals, summaries and subagents?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import DeferredToolRequests, FunctionToolset, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
    render_approval,
)
from pydantic_deep.extensions import CarriedOver, Preview


@dataclass
class Newsletter(AbstractCapability[object]):
    """Sends a newsletter. Only a person may change the list of subscribers."""

    protected_paths: Sequence[str] = ('/subscribers.txt',)
    sent: list[str] = field(default_factory=list[str])

    def get_toolset(self) -> FunctionToolset[object]:
        toolset = FunctionToolset[object]()

        @toolset.tool_plain
        def send_newsletter(subject: str) -> str:
            """Send the newsletter to all subscribers."""
            self.sent.append(subject)
            return f'Sent {subject!r}.'

        return toolset

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return the preview of a call of our tool (`SupportsPreview`)."""
        if tool_def.name != 'send_newsletter':
            return None
        return Preview(kind='call', text=f'Sends {args["subject"]!r} to all subscribers.')

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the state that a summary must preserve (`SupportsCarryOver`)."""
        text = f'Newsletters sent: {", ".join(self.sent)}' if self.sent else ''
        return CarriedOver(text=text, state=list(self.sent))

    def for_subagent(self) -> AbstractCapability[object]:
        """Give subagents the same tool (`SupportsInheritance`)."""
        return self


async def main(model: Model | str) -> None:
    newsletter = Newsletter()
    agent = create_deep_agent(
        model, capabilities=[newsletter], interrupt_on={'send_newsletter': True, 'write_file': False}
    )
    deps = DeepAgentDeps()
    result = await agent.run('Send the newsletter and add Ann to the subscribers.', deps=deps)
    while isinstance(result.output, DeferredToolRequests):
        pending = pending_approvals(result.output)
        for approval in pending:
            print(render_approval(approval))
        answers = answer_approvals(result.output, {approval.id: Approve() for approval in pending})
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=answers, deps=deps)
    print(result.output)
    print(newsletter.sent)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
