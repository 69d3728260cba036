"""How do I let an agent run commands that can reach only its own directory?"""

from __future__ import annotations

import tempfile

from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep_backends import SandboxBackend, SandboxLimits, SandboxUnavailableError


async def main(model: Model | str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        limits = SandboxLimits(timeout_seconds=60, memory_bytes=512 * 1024 * 1024)
        backend = SandboxBackend(directory, limits=limits)
        try:
            await backend.run(['true'])  # checks the sandbox before the first request to a model
        except SandboxUnavailableError as error:
            print(f'No command runs here. {error}')
            return

        agent = create_deep_agent(model)
        task = 'Compute 6 times 7 with a program, then see what you can find of this machine.'
        result = await agent.run(task, deps=DeepAgentDeps(backend=backend))
        for message in result.new_messages():
            for part in message.parts:
                if isinstance(part, ToolReturnPart) and part.tool_name == 'execute':
                    print(part.content)
        print(result.output)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
