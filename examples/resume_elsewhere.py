"""How does a person approve a call from a process that has neither the agent nor its files?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai.models import Model

from pydantic_deep import ApprovalInbox, Approve, LocalBackend, VersionedAgent, create_deep_agent, open_store


async def ask(model: Model | str, url: str, files: Path) -> None:
    """The first process: a turn that pauses for a decision. Nothing of it stays in memory."""
    agent = create_deep_agent(model, name='clerk', interrupt_on={'write_file': True, 'edit_file': True})
    async with open_store(url) as store:
        root = await VersionedAgent(agent, store).create(backend=LocalBackend(files))
        paused = await root.advance('Raise the price of tea by one.')
        print(paused.state)


async def answer(url: str) -> str:
    """The second process: a person reads the inbox and decides. It runs no agent."""
    async with open_store(url) as store:
        inbox = ApprovalInbox(store)
        [item] = await inbox.list()
        print(item.agent_name, item.tool, item.preview or '')
        decided = await inbox.answer(item.id, Approve(digest=item.digest), by='ada', reason='Tea is dearer now.')
        print(decided.status, decided.decided_by)
        return item.version_id


async def go_on(model: Model | str, url: str, version_id: str) -> None:
    """The third process: resume with the stored answers. The version knows its directory."""
    agent = create_deep_agent(model, name='clerk', interrupt_on={'write_file': True, 'edit_file': True})
    async with open_store(url) as store:
        paused = await VersionedAgent(agent, store).load(version_id)
        done = await paused.resume()
        print(done.state, done.output)


async def main(model: Model | str) -> None:
    """Run all three processes. They share only the store."""
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as elsewhere:
        Path(directory, 'prices.csv').write_text('cake,3\ntea,2\n')
        url = f'sqlite:///{elsewhere}/agents.db'
        await ask(model, url, Path(directory))
        await go_on(model, url, await answer(url))
        print(Path(directory, 'prices.csv').read_text())


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
