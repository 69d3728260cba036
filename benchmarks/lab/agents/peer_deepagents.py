"""LangChain's `deepagents`, with its defaults, on the directory of the task."""

from __future__ import annotations

from deepagents import create_deep_agent
from deepagents.backends import FilesystemBackend
from job import Job, main
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command


async def solve(job: Job) -> str:
    """Return the answer of the agent."""
    graph = create_deep_agent(
        ChatOpenAI(model=job.model, base_url=job.url, api_key='none'),
        backend=FilesystemBackend(job.directory, virtual_mode=True),
        skills=['/skills/'] if job.has_skills else None,
        interrupt_on=dict.fromkeys(('write_file', 'edit_file', 'delete'), True) if job.denied else None,
        checkpointer=InMemorySaver() if job.denied else None,
    )
    config = {'configurable': {'thread_id': 'lab'}, 'recursion_limit': 1_000}
    state = await graph.ainvoke({'messages': [('user', job.prompt)]}, config)
    while pauses := state.get('__interrupt__'):
        decisions = {
            pause.id: {'decisions': [_decide(job, request) for request in pause.value['action_requests']]}
            for pause in pauses
        }
        state = await graph.ainvoke(Command(resume=decisions), config)
    return str(state['messages'][-1].text)


def _decide(job: Job, request: dict) -> dict[str, str]:
    return {'type': 'reject' if job.denies(request['args']) else 'approve'}


if __name__ == '__main__':
    main(solve)
