"""How do I let an agent work in a directory, and see what it changed?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, LocalBackend, create_deep_agent


async def main(model: Model | str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, 'sales.csv').write_text('region,sum\nnorth,120\nsouth,80\n')
        backend = LocalBackend(directory)
        before = await backend.snapshot()

        agent = create_deep_agent(model, instructions='You are a careful analyst.')
        result = await agent.run('Summarise sales.csv into report.md.', deps=DeepAgentDeps(backend=backend))
        print(result.output)

        changes = await backend.changes(before)
        print('added:', *changes.added)
        print(Path(directory, 'report.md').read_text())


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
