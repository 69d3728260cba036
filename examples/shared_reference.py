"""How do I give every user private files, and all of them the same read-only documents?"""

from __future__ import annotations

from pydantic_ai.models import Model

from pydantic_deep import CompositeBackend, DeepAgentDeps, ReadOnlyBackend, StateBackend, create_deep_agent

HANDBOOK = StateBackend({'/tone.md': 'Write short sentences.\n'})


def deps_for(user: str) -> DeepAgentDeps:
    """Return deps with a shared, read-only `/handbook`; all other files are the user's own."""
    own = StateBackend()
    return DeepAgentDeps(
        backend=CompositeBackend(own, {'/handbook': ReadOnlyBackend(HANDBOOK)}), metadata={'user': user}
    )


async def main(model: Model | str) -> None:
    agent = create_deep_agent(model)
    ada, ben = deps_for('ada'), deps_for('ben')
    await agent.run('Read the handbook and write hello.md.', deps=ada)
    print(await ada.backend.exists('/hello.md'), await ben.backend.exists('/hello.md'))
    print((await ben.backend.read_bytes('/handbook/tone.md')).decode())


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
