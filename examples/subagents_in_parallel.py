"""How do I delegate work to several subagents in parallel, within limits, and inspect their results?"""

from __future__ import annotations

from pydantic import BaseModel
from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, StateBackend, Subagent, create_deep_agent


class Total(BaseModel):
    """The output of the counter."""

    region: str
    total: int


SUBAGENTS = (
    Subagent('counter', 'Adds up one CSV file.', output_type=Total, usage_limits=UsageLimits(request_limit=3)),
    Subagent('critic', 'Says what a heading lacks.', agent=Agent(instructions='Answer in one short sentence.')),
    Subagent('editor', 'Changes a file, on a view of its own.', isolation='fork'),
)
FILES = {'/north.csv': 'cake,70\ntea,50\n', '/south.csv': 'cake,80\n', '/title.md': '# Sales\n'}
TASK = (
    'At the same time: let counters add up north.csv and south.csv, let the critic look at the heading of title.md, '
    'and let two editors each put another heading there. Then say what came back.'
)


async def main(model: Model | str) -> None:
    agent = create_deep_agent(model, subagents=SUBAGENTS)
    deps = DeepAgentDeps(backend=StateBackend(FILES))
    result = await agent.run(TASK, deps=deps)

    parts = [part for message in result.new_messages() for part in message.parts]
    returned = [part for part in parts if isinstance(part, ToolReturnPart) and part.tool_name == 'task']
    merges = [part.metadata['merge'] for part in returned if part.metadata and 'merge' in part.metadata]
    for part in returned:
        if part.metadata is None:
            print('failed:', str(part.content).partition(':')[0])
        elif 'merge' not in part.metadata:
            print(f'{part.metadata["subagent"]}:', part.model_response_str())
    print('changed:', [path for merge in merges for path in merge['changed']])
    print('conflicts:', [conflict['path'] for merge in merges for conflict in merge['conflicts']])
    print(result.output)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
