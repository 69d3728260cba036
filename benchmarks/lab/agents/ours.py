"""Ours, as `create_deep_agent` makes it, on the directory of the task."""

from __future__ import annotations

from pathlib import Path

from chat_model import NO_LIMIT, chat_model
from job import Job, main

from pydantic_deep import (
    Approve,
    DeepAgentDeps,
    Deny,
    LocalBackend,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)


async def solve(job: Job) -> str:
    """Return the answer of the agent."""
    model = chat_model(job)
    skills = [Path(job.directory, 'skills')] if job.has_skills else []
    deps = DeepAgentDeps(backend=LocalBackend(job.directory))
    if not job.denied:
        return (await create_deep_agent(model, skills=skills).run(job.prompt, deps=deps, usage_limits=NO_LIMIT)).output
    agent = create_deep_agent(model, skills=skills, interrupt_on={'write_file': True, 'edit_file': True})
    result = await agent.run(job.prompt, deps=deps, usage_limits=NO_LIMIT)
    while pending := pending_approvals(result.output):
        decisions = {call.id: Deny() if job.denies(dict(call.arguments)) else Approve() for call in pending}
        result = await agent.run(
            deps=deps,
            message_history=result.all_messages(),
            deferred_tool_results=answer_approvals(result.output, decisions),
            usage_limits=NO_LIMIT,
        )
    return str(result.output)


if __name__ == '__main__':
    main(solve)
