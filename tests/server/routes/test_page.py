"""The files of the web page."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import pytest

import pydantic_deep.server

pytestmark = pytest.mark.anyio

STATIC = Path(pydantic_deep.server.__file__).parent / 'static'


async def test_only_static_files_of_the_page_are_served(nobody: httpx.AsyncClient):
    """The page and its files need no key; other files of the package are not served."""
    for path, kind in (('/', 'text/html'), ('/static/page.js', 'javascript'), ('/static/unseen.js', 'javascript')):
        response = await nobody.get(path)
        assert response.status_code == 200
        assert kind in response.headers['content-type']
    for path in ('/static/none.js', '/static/..%2F_api_keys.py', '/static/%2e%2e/_api_keys.py'):
        assert (await nobody.get(path)).status_code in (401, 404)


async def test_page_may_run_its_own_scripts_only(nobody: httpx.AsyncClient):
    """The policy allows no inline scripts, no `eval`, no other host, and no text that becomes HTML."""
    policy = (await nobody.get('/')).headers['content-security-policy']

    assert policy.startswith("default-src 'self'; ")
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in policy
    assert 'unsafe' not in policy
    assert 'http' not in policy


def test_page_is_small():
    """All scripts and style sheets together have at most 350 kB, compressed."""
    files = [file for file in STATIC.iterdir() if file.suffix in ('.js', '.css')]

    assert sum(len(gzip.compress(file.read_bytes())) for file in files) < 350_000


def test_licences_of_bundled_packages_are_shipped():
    """The licence of each bundled package is beside the bundle."""
    licences = (STATIC / 'licences.txt').read_text()

    assert all(f'{name} ' in licences for name in ('@preact/signals', 'highlight.js', 'lowlight', 'marked', 'preact'))
