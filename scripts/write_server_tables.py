"""Writes the tables of routes and settings in docs/reference/http.md, between their markers.

`--check` only compares the page and reports the result in its exit code.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import ServerSettings, create_app

PAGE = Path(__file__).resolve().parent.parent / 'docs/reference/http.md'


def main(arguments: list[str]) -> int:
    """Run the action of the first argument and return the exit code."""
    before = PAGE.read_text()
    after = render(before, asyncio.run(read_openapi()))
    if arguments == ['--check']:
        return int(before != after)
    PAGE.write_text(after)
    return 0


async def read_openapi() -> dict[str, Any]:
    """Return the OpenAPI document of the application."""
    async with open_store('memory:') as store:
        return create_app({'agent': create_deep_agent()}, store).openapi()


def render(page: str, document: dict[str, Any]) -> str:
    """Return the page with updated tables."""
    for name, table in (('routes', routes(document)), ('settings', settings())):
        marked = f'<!-- {name} -->\n\n{table}\n\n<!-- end of {name} -->'
        page = re.sub(
            f'<!-- {name} -->.*?<!-- end of {name} -->', lambda _, marked=marked: marked, page, flags=re.DOTALL
        )
    return page


def routes(document: dict[str, Any]) -> str:
    """Return the table of routes, in the order of the OpenAPI document."""
    rows = ['| route | description |', '|---|---|']
    for path, operations in document['paths'].items():
        rows += [f'| `{method.upper()} {path}` | {operation["summary"]} |' for method, operation in operations.items()]
    return '\n'.join(rows)


def settings() -> str:
    """Return the table of settings."""
    rows = ['| setting | default | description |', '|---|---|---|']
    for name, field in ServerSettings.model_fields.items():
        default = 'none' if field.default in (None, ()) else f'`{field.default!r}`'
        rows.append(f'| `{name}` | {default} | {" ".join((field.description or "").split())} |')
    return '\n'.join(rows)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
