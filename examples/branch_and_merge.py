"""How do I try two alternatives from one version of an agent's work, and merge the results?"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic_ai.models import Model

from pydantic_deep import LocalBackend, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.versions import MergeConflictError


async def main(model: Model | str) -> None:
    """Run two turns from one version, compare them, merge them, and restore the first version."""
    agent = create_deep_agent(model, name='editor')
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory, 'work')
        work.mkdir()
        (work / 'report.md').write_text('# Sales\n\nNorth: 120\n\nSouth: 80\n')
        async with open_store(f'sqlite:///{directory}/agents.db') as store:
            editor = VersionedAgent(agent, store)
            root = await editor.create(name='report', backend=LocalBackend(work))

            # Two children of one version. The directory has the files of the first; the second works on a view.
            dated = await root.advance('Put the year into the title of report.md.', branch='dated')
            summed = await root.advance('Add the total at the end of report.md.', branch='summed')

            for file in (await dated.diff(summed)).files:
                print(file.diff)

            try:
                both = await dated.merge(summed)
            except MergeConflictError as error:
                print(error)
                return
            await both.checkout()
            print((work / 'report.md').read_text())

            await root.checkout()
            print((work / 'report.md').read_text().splitlines()[0])
            print([(version.kind, version.branch) for version in await editor.list()])


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
