"""How do I give an agent instructions that it loads only when a task needs them?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model

from pydantic_deep import BUNDLED_SKILLS, DeepAgentDeps, Skill, create_deep_agent, discover_skills

INVOICE = """\
---
name: writing-invoices
description: Use this skill when the user wants an invoice. Gives the layout that the bookkeeper takes.
---

Head it with the number, then one line for each item, then the sum. The rates are in `rates.md`.
"""

GREETING = Skill('greeting', 'Use this skill when you write to a customer.', body='Begin with "Servus".')


async def main(model: Model | str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, 'writing-invoices')
        folder.mkdir()
        folder.joinpath('SKILL.md').write_text(INVOICE)
        folder.joinpath('rates.md').write_text('A cake is 3, a tea is 2.\n')
        Path(directory, 'broken').mkdir()
        Path(directory, 'broken', 'SKILL.md').write_text('No frontmatter here.\n')

        catalog = discover_skills([directory])
        print(*catalog.skills)
        for problem in catalog.diagnostics:
            print(f'{Path(problem.path).parent.name}, line {problem.line}: {problem.severity} {problem.code}')

        agent = create_deep_agent(model, skills=[directory, GREETING, BUNDLED_SKILLS])
        result = await agent.run('Write an invoice for two cakes to Ada.', deps=DeepAgentDeps())
        for message in result.new_messages():
            for part in message.parts:
                if isinstance(part, ToolCallPart):
                    print(part.tool_name, part.args_as_json_str())
        print(result.output)


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
