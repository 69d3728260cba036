"""The documents that the documentation publishes."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_documents_are_those_of_the_package() -> None:
    """The documentation has the OpenAPI document with all routes, and the schemas that are in the package."""
    pytest.importorskip('mkdocs')
    documents = runpy.run_path(str(ROOT / 'scripts/publish_schemas.py'))['documents']

    found: dict[str, Any] = {name: json.loads(text) for name, text in documents().items()}

    assert [*found] == ['openapi.json', 'events.schema.json', 'views.schema.json']
    assert '/api/conversations' in found['openapi.json']['paths']
    assert found['events.schema.json'] == json.loads((ROOT / 'pydantic_deep/schemas/events.json').read_text())
