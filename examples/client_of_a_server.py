"""How do I use the agents of a server from a Python program?"""

from __future__ import annotations

import httpx2
from pydantic_ai.models import Model

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.approvals import Approve
from pydantic_deep.client import Client
from pydantic_deep.server import create_api_key, create_app


async def main(model: Model | str) -> None:
    async with open_store('memory:') as store:
        app = create_app({'clerk': create_deep_agent(model, interrupt_on={'write_file': True})}, store)
        key = await create_api_key(store, name='example', scopes=['run', 'approve'])
        transport = httpx2.ASGITransport(app)  # without it, the client connects to the URL
        async with app.router.lifespan_context(app), Client('http://localhost', key, transport=transport) as client:
            await work(client)


async def work(client: Client) -> None:
    conversation = await client.conversations.create('clerk', name='Prices')
    await client.files.upload(conversation.id, 'prices.csv', b'cake,3\ntea,2\n')
    run = await client.turns.start(conversation.id, 'Write the total of the prices to total.txt.')
    async with client.turns.events(run.id, function_calls=True) as events:
        async for event in events:
            if event.type == 'tool_call':
                print('->', event.name)
            elif event.type == 'end':
                print(event.status)
    async for approval in client.approvals.list(conversation_id=conversation.id):
        print(approval.tool, approval.args)
        answered = await client.approvals.answer(approval, Approve(), resume=True)
        if answered.run_id is not None:
            run = await client.turns.wait(answered.run_id)
    print(run.state, run.output)
    async for version in client.versions.log(conversation.id):
        print(version.kind, version.files_changed)
    print((await client.files.read(run.version_id or '', 'total.txt')).decode(), end='')


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
