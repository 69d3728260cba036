"""Rules for the repository itself: structure, tests, documentation and checks."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, cast

import httpx
import pytest
from hypothesis import HealthCheck, settings

from pydantic_deep import create_deep_agent, open_store
from pydantic_deep.server import create_api_key, create_app
from pydantic_deep.testing import ScriptedModel, call
from tests.public_modules import PACKAGES, ROOT, is_private, modules, public_modules, public_names

PACKAGE = ROOT / 'pydantic_deep'

MAX_FILES: Final = 20
"""Maximum number of modules in a folder, including `__init__.py`."""

MIN_MIRRORED: Final = 0.8
"""Minimum share of modules with a test file of their name."""


def test_server_has_layers_and_two_entry_points() -> None:
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
def test_every_layer_has_its_own_tests(layer: str) -> None:
    """004-05: repositories, services and routes are tested apart, with fixtures that set up and tear down."""
    tests = ROOT / 'tests' / layer

    assert len(list(tests.glob('test_*.py'))) >= 3
    assert 'yield' in (tests / 'conftest.py').read_text() or 'fixture' in (tests / 'conftest.py').read_text()


@pytest.mark.parametrize('page', ['conversations', 'streaming', 'audit', 'repositories', 'server'])
def test_every_feature_has_a_page_linked_from_the_readme(page: str) -> None:
    """004-06: Commits are descriptive and scoped; README and docstrings are up to date, with examples of use and the
    specification of the API.

    Up to date means that it runs: every Python block of the README, the pages and the docstrings is a test.
    CONTRIBUTING
    has the rule for commits.

    """
    sources = (ROOT / 'tests/docs/test_docs.py').read_text()
    assert "SOURCES = ('README.md', 'docs', 'backends/README.md', 'pydantic_deep'," in sources
    assert '```python' in (ROOT / 'docs/guides' / f'{page}.md').read_text()
    assert '`/openapi.json`' in (ROOT / 'docs/guides/server.md').read_text()
    assert 'One idea a commit, with its tests, docs and changelog line' in (ROOT / 'CONTRIBUTING.md').read_text()
    assert f'docs/guides/{page}.md' in (ROOT / 'README.md').read_text()
    assert f'guides/{page}.md' in (ROOT / 'mkdocs.yml').read_text()


def test_hypothesis_has_no_deadline() -> None:
    profile = settings.default
    assert profile is not None
    assert (profile.deadline, HealthCheck.too_slow in profile.suppress_health_check) == (None, True)


def test_ci_script_runs_all_checks() -> None:
    """004-11: There are CI/CD pipelines for tests and linting.

    Tests, lint, types, imports and docs are one script, on a clean checkout.
    """
    script = (ROOT / '.ci/run').read_text()

    for step in (
        'make demo PYTHON="$newest"\n',
        'make coverage\n',
        'make -j2 --output-sync=target types wheels test-js lint imports docs licences test-clients\n',
        'make test-newest PYTHON="$oldest"\n',
    ):
        assert step in script


def test_both_distributions_state_the_same_requirements() -> None:
    """The root distribution contains the backends package, so it must state the same requirements."""
    root, backends = (tomllib.loads((ROOT / folder / 'pyproject.toml').read_text()) for folder in ('.', 'backends'))
    shared = ('version', 'license', 'requires-python', 'classifiers')
    assert [backends['project'][key] for key in shared] == [root['project'][key] for key in shared]
    assert set(backends['project']['dependencies']) <= set(root['project']['dependencies'])
    assert backends['build-system'] == root['build-system']


def test_pip_commands_name_the_distribution_and_its_extras() -> None:
    """`pydantic-deep` on PyPI is another project, so an extra of that name would install it."""
    project = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']
    files = [*ROOT.glob('*.md'), *(ROOT / 'docs').rglob('*.md')]
    files += [path for folder in PACKAGES.values() for path in folder.rglob('*.py')]
    commands = {
        command
        for path in files
        for command in re.findall(r"""pip install ['"]([\w-]+)\[([a-z,]+)\]""", path.read_text())
        if command[0] != 'pydantic-ai-slim'
    }

    assert {name for name, _ in commands} == {project['name']}
    assert {extra for _, extras in commands for extra in extras.split(',')} <= set(project['optional-dependencies'])


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    """An authenticated client of an app with an agent that writes a file after approval."""
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
async def test_workflow_from_prompt_to_approval_and_audit(client: httpx.AsyncClient) -> None:
    """004-10: There are unit and integration tests around the core workflows.

    Send a prompt, approve the call, read the file of the version, and find the run in the audit.

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


def top_level_package(module: str) -> str:
    """Return the package that owns the private modules of a module: `pydantic_deep.store` for everything below it, and
    `pydantic_deep` for `pydantic_deep._text`.

    """
    package, *parts = module.split('.')
    if parts and parts[0].startswith('_'):
        return package
    is_nested = len(parts) > 1 or (parts and modules()[module].name == '__init__.py')
    return f'{package}.{parts[0]}' if package == 'pydantic_deep' and is_nested else package


@cache
def imports() -> Mapping[str, set[str]]:
    """Return the project modules imported by each module, anywhere in the file and for any purpose."""
    return {module: set(_imports_of(module, path)) - {module} for module, path in modules().items()}


def _imports_of(module: str, path: Path) -> Iterator[str]:
    package = module if path.name == '__init__.py' else module.rpartition('.')[0]
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split('.')[: 1 - node.level or None] if node.level else []
            base = '.'.join([*parents, *filter(None, [node.module])])
            names = [f'{base}.{alias.name}' for alias in node.names]
        for name in names:
            if name in modules():
                yield name
            elif name.rpartition('.')[0] in modules():
                yield name.rpartition('.')[0]


def circles() -> set[frozenset[str]]:
    """Return the largest groups of modules that import each other in a cycle."""
    reached: dict[str, set[str]] = {}
    for module in modules():
        waiting, reached[module] = [*imports()[module]], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in reached[module]:
                reached[module].add(name)
                waiting += imports()[name]
    return {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in modules()
        if module in reached[module]
    }


def test_modules_have_no_import_cycles() -> None:
    assert circles() == set()


def test_folders_have_a_limited_number_of_modules() -> None:
    folders = [*PACKAGES.values(), ROOT / 'tests', ROOT / 'backends' / 'tests']
    counts = Counter(path.parent for folder in folders for path in folder.rglob('*.py'))

    assert {str(folder.relative_to(ROOT)) for folder, count in counts.items() if count > MAX_FILES} == set()


def test_modules_have_a_test_file_of_their_name() -> None:
    """`pydantic_deep/todos/_history.py` is tested in `tests/todos/test_history.py`. Modules without a function that does
    something, such as types, constants and protocols, need no test.
    """
    tests = {'pydantic_deep': ROOT / 'tests', 'pydantic_deep_backends': ROOT / 'backends' / 'tests'}
    expected = {
        tests[package] / path.relative_to(folder).with_name(f'test_{path.stem.lstrip("_")}.py')
        for package, folder in PACKAGES.items()
        for path in modules().values()
        if path.is_relative_to(folder) and path.name != '__init__.py' and has_behavior(path)
    }
    missing = sorted(str(path.relative_to(ROOT)) for path in expected if not path.exists())

    assert len(missing) <= (1 - MIN_MIRRORED) * len(expected), missing


def has_behavior(path: Path) -> bool:
    """Return whether a module defines a function, at any depth, with more than a docstring or an ellipsis."""
    functions = (
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return any(not _is_constant(statement) for function in functions for statement in function.body)


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_public_class_names_are_unique() -> None:
    classes: dict[str, set[type]] = defaultdict(set)
    for module in public_modules():
        for value in _public_values(module):
            if isinstance(value, type):
                classes[value.__name__].add(cast('type[object]', value))

    assert {name for name, found in classes.items() if len(found) > 1} == set()


def _public_values(module: str) -> list[object]:
    return list(public_names(module).values())


def test_private_modules_are_not_imported_by_other_packages() -> None:
    """A private module of `pydantic_deep` itself is visible to all its subpackages."""
    found = {
        (module, name)
        for module, imported in imports().items()
        for name in imported
        if is_private(name) and not is_visible(name, module)
    }

    assert found == set()


def is_visible(private: str, module: str) -> bool:
    """Return whether a module may import a private one."""
    owner = top_level_package(private)
    return owner == top_level_package(module) or (owner == 'pydantic_deep' == module.split('.')[0])
