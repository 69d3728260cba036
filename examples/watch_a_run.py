"""How do I show the actions of an agent while it runs?"""

from __future__ import annotations

from pydantic_ai import FunctionToolCallEvent, FunctionToolResultEvent
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResultEvent

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent


async def main(model: Model | str) -> None:
    agent = create_deep_agent(model)
    deps = DeepAgentDeps(backend=StateBackend({'/a.txt': 'one\ntwo\n'}))
    async with agent.run_stream_events('How many lines has a.txt?', deps=deps) as events:
        async for event in events:
            if isinstance(event, FunctionToolCallEvent):
                print('->', event.part.tool_name, event.part.args_as_json_str())
            elif isinstance(event, FunctionToolResultEvent):
                print('<-', str(event.part.content).splitlines()[0])
            elif isinstance(event, AgentRunResultEvent):
                print(event.result.output)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
