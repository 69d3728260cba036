"""The other project named `pydantic-deep`, with its defaults, without commands and the web."""

from __future__ import annotations

from pathlib import Path

from chat_model import NO_LIMIT, chat_model
from job import Job, main
from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.capabilities import LocalWorkspace

import pydantic_deep
from pydantic_deep import DeepAgentDeps, create_deep_agent


async def solve(job: Job) -> str:
    """Return the answer of the agent."""
    agent = create_deep_agent(
        chat_model(job),
        workspace=LocalWorkspace(job.directory),
        skill_directories=[str(Path(job.directory, 'skills'))] if job.has_skills else None,
        interrupt_on={'write_file': True, 'hashline_edit': True} if job.denied else None,
        include_execute=False,
        include_monitoring=False,  # it runs commands in the background
        web_search=False,
        web_fetch=False,
        thinking=False,
    )
    deps = DeepAgentDeps()
    result = await agent.run(job.prompt, deps=deps, usage_limits=NO_LIMIT)
    while isinstance(result.output, DeferredToolRequests):
        answers = {
            call.tool_call_id: ToolDenied() if job.denies(call.args_as_dict()) else True
            for call in result.output.approvals
        }
        result = await agent.run(
            deps=deps,
            message_history=result.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals=answers),
            usage_limits=NO_LIMIT,
        )
    return str(result.output)


if __name__ == '__main__':
    if hasattr(pydantic_deep, 'LocalBackend'):
        raise SystemExit(f'This is not the peer: {pydantic_deep.__file__}. Remove .cache/bench and start again.')
    main(solve)
