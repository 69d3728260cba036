"""How do I run an agent today and let a person decide on its calls tomorrow, in another process?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai import Agent, ConversationTypeAdapter, DeferredToolRequests
from pydantic_ai.models import Model

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    LocalBackend,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
    render_approval,
)


def build(model: Model | str) -> Agent[DeepAgentDeps, str | DeferredToolRequests]:
    return create_deep_agent(model, interrupt_on={'write_file': True, 'edit_file': True})


async def ask(model: Model | str, files: Path, saved: Path) -> None:
    """The first process: run until a decision is needed, and save the conversation."""
    result = await build(model).run('Raise the price of tea by one.', deps=DeepAgentDeps(backend=LocalBackend(files)))
    saved.write_bytes(ConversationTypeAdapter.dump_json(result.conversation))


async def answer(model: Model | str, files: Path, saved: Path) -> None:
    """The second process: show the pending calls, answer them, and resume."""
    conversation = ConversationTypeAdapter.validate_json(saved.read_bytes())
    requests = conversation.deferred_tool_requests
    pending = pending_approvals(requests)
    for approval in pending:
        print(render_approval(approval))
    results = answer_approvals(requests, {approval.id: Approve() for approval in pending})
    deps = DeepAgentDeps(backend=LocalBackend(files))
    result = await build(model).run(conversation=conversation, deferred_tool_results=results, deps=deps)
    print(result.output)


async def main(model: Model | str) -> None:
    """Run both processes. They share only the two paths."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as elsewhere:
        Path(directory, 'prices.csv').write_text('cake,3\ntea,2\n')
        await ask(model, Path(directory), Path(elsewhere, 'conversation.json'))
        await answer(model, Path(directory), Path(elsewhere, 'conversation.json'))
        print(Path(directory, 'prices.csv').read_text())


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
