"""How do I find out afterwards who ran an agent, what it did, and how the run ended?"""

from __future__ import annotations

import tempfile

from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditRecord, rehydrate
from pydantic_deep.repository import open_repository


async def main(model: Model | str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = open_repository(f'sqlite:///{directory}/audit.db', AuditRecord, fields=AUDIT_FIELDS)
        async with place as rows:
            agent = create_deep_agent(model, name='clerk', capabilities=[Audit(rows)])
            await agent.run('Keep our hours, 8 to 18, in hours.md.', deps=DeepAgentDeps(metadata={'owner': 'ada'}))
            await agent.run('Is AKIAIOSFODNN7EXAMPLE safe here?', deps=DeepAgentDeps(metadata={'owner': 'ben'}))

            for record in (await rows.list(order_by='started_at')).items:
                print(record.owner, record.status, record.question)
                for call in record.tool_calls:
                    print('  ', call.name, call.outcome, call.arguments.value)

            # The record contains the conversation, so anybody can continue it.
            [hers] = (await rows.list({'owner': 'ada'})).items
            history = await rehydrate(hers)
            result = await agent.run('And on Sundays?', deps=DeepAgentDeps(), message_history=history)
            print(result.output)
            print(await rows.count({'status': 'success'}))


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
