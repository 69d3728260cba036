"""A hook of mkdocs: publishes the OpenAPI document and the JSON Schemas beside the pages of the reference."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import create_app

SCHEMAS = Path(__file__).resolve().parent.parent / 'pydantic_deep/schemas'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents to the files of the site."""
    for name, content in documents().items():
        files.append(File.generated(config, f'reference/{name}', content=content))
    return files


def documents() -> dict[str, str]:
    """Return the contents of the documents, by name."""
    return {
        'openapi.json': json.dumps(asyncio.run(_openapi()), indent=1),
        'events.schema.json': (SCHEMAS / 'events.json').read_text(encoding='utf-8'),
        'views.schema.json': (SCHEMAS / 'views.json').read_text(encoding='utf-8'),
    }


async def _openapi() -> dict[str, object]:
    async with open_store('memory:') as store:
        return create_app({'agent': create_deep_agent()}, store).openapi()
