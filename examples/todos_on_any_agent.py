"""How do I add only a todo list to an agent of my own?"""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models import Model

from pydantic_deep import Todos


async def main(model: Model | str) -> None:
    agent = Agent(model, capabilities=[Todos()])
    first = await agent.run('Plan a small party.')
    print(first.output)
    second = await agent.run('The cake is here.', message_history=first.all_messages())
    print(second.output)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
