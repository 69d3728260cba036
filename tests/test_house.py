"""What must hold of the repository itself: where things are, that they are tested, documented and checked."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, settings

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import create_api_key, create_app
from pydantic_deep.testing import ScriptedModel, call

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / 'pydantic_deep'


def test_the_server_is_routes_over_services_over_rows_and_has_two_doors() -> None:
    """004-01: modular routes, services below them, models of rows; a command and a programmatic entry point."""
    routes = sorted(path.stem for path in (PACKAGE / 'server/routes').glob('_*.py'))

    assert {'_admin', '_conversations', '_turns', '_versions'} <= set(routes)
    assert (PACKAGE / 'repository').is_dir()
    assert callable(create_app)
    done = subprocess.run(
        [Path(sys.executable).with_name('pydantic-deep'), 'serve', '--help'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, 'Serve agents over HTTP' in done.stdout) == (0, True)


@pytest.mark.parametrize('layer', ['repository', 'streaming', 'audit', 'fluent', 'server', 'store', 'versions'])
def test_every_layer_has_tests_of_its_own(layer: str) -> None:
    """004-05: repositories, services and routes are tested apart, with fixtures that set up and tear down."""
    tests = ROOT / 'tests' / layer

    assert len(list(tests.glob('test_*.py'))) >= 3
    assert 'yield' in (tests / 'conftest.py').read_text() or 'fixture' in (tests / 'conftest.py').read_text()


@pytest.mark.parametrize('page', ['conversations', 'streaming', 'audit', 'repositories', 'server'])
def test_every_feature_has_a_page_that_the_readme_links_to(page: str) -> None:
    """004-06: Commits are descriptive and scoped; README and docstrings are up to date, with examples of use and the
    specification of the API.

    What is up to date is what runs: every block of Python in the README, the pages and the docstrings is a test. How
    commits are made is a rule for contributors.
    """
    sources = (ROOT / 'tests/test_docs.py').read_text()
    assert "SOURCES = ('README.md', 'docs', 'backends/README.md', 'pydantic_deep'," in sources
    assert '```python' in (ROOT / 'docs/guides' / f'{page}.md').read_text()
    assert '`/openapi.json`' in (ROOT / 'docs/guides/server.md').read_text()
    assert 'One idea a commit, with its tests, docs and changelog line' in (ROOT / 'CONTRIBUTING.md').read_text()
    assert f'docs/guides/{page}.md' in (ROOT / 'README.md').read_text()
    assert f'guides/{page}.md' in (ROOT / 'mkdocs.yml').read_text()


def test_no_example_is_wrong_because_the_machine_is_busy() -> None:
    profile = settings.default
    assert profile is not None
    assert (profile.deadline, HealthCheck.too_slow in profile.suppress_health_check) == (None, True)


def test_one_command_checks_everything_and_runs_what_contributors_run() -> None:
    """004-11: There are CI/CD pipelines for tests and linting.

    Tests, lint, types, imports and docs are one script, on a clean checkout.
    """
    script = (ROOT / '.ci/run').read_text()

    for step in (
        'make test\n',
        'make test-slow',
        'coverage.sh report',
        'make lint types imports docs',
        'make test-newest PYTHON="$(bash scripts/find-python.sh 3.13',
        'make build',
    ):
        assert step in script


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    """A key's client of an application whose agent writes a file when a person lets it."""
    model = ScriptedModel(call('write_file', path='/a.txt', content='Hello'), 'Written.')
    async with open_store('memory:') as store:
        app = create_app({'writer': create_deep_agent(model, interrupt_on={'write_file': True})}, store)
        key = await create_api_key(store, name='test', scopes=['run', 'approve', 'audit'])
        headers = {'authorization': f'Bearer {key}'}
        transport = httpx.ASGITransport(app)
        http = httpx.AsyncClient(transport=transport, base_url='http://localhost', headers=headers)
        async with app.router.lifespan_context(app), http as client:
            yield client


@pytest.mark.anyio
async def test_a_whole_story_goes_from_a_question_to_its_audit(client: httpx.AsyncClient) -> None:
    """004-10: There are unit and integration tests around the core workflows.

    Ask, be asked, approve, read the file of the version, find the run in the audit.
    """
    conversation = (await client.post('/api/conversations', json={'agent': 'writer'})).json()['id']
    path = f'/api/conversations/{conversation}'
    asked = (await client.post(f'{path}/turns', json={'prompt': 'Write it.'})).json()
    (approval,) = asked['approvals']
    answers = {approval['pending_id']: {'decision': 'approve', 'digest': approval['view']['digest']}}
    done = (await client.post(f'{path}/resume', json={'answers': answers})).json()
    file = await client.get(f'/api/versions/{done["version_id"]}/files/a.txt')
    records = (await client.get(f'/api/audit?conversation={conversation}')).json()['items']

    assert (asked['state'], done['state'], done['output']) == ('awaiting_approval', 'complete', 'Written.')
    assert file.text == 'Hello'
    assert [record['status'] for record in records] == ['success', 'awaiting_approval']
