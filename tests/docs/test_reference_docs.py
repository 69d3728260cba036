"""Every public name has its place in the reference."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / 'docs/reference'
DIRECTIVE = re.compile(r'^::: ([\w.]+)$', re.MULTILINE)

PUBLIC_MODULES = (
    'pydantic_deep',
    'pydantic_deep.approvals',
    'pydantic_deep.audit',
    'pydantic_deep.audit.errors',
    'pydantic_deep.budgets',
    'pydantic_deep.caching',
    'pydantic_deep.cli',
    'pydantic_deep.errors',
    'pydantic_deep.extensions',
    'pydantic_deep.filesystem',
    'pydantic_deep.fluent',
    'pydantic_deep.fluent.errors',
    'pydantic_deep.models',
    'pydantic_deep.repository',
    'pydantic_deep.repository.conformance',
    'pydantic_deep.repository.duckdb',
    'pydantic_deep.repository.errors',
    'pydantic_deep.repository.iceberg',
    'pydantic_deep.retries',
    'pydantic_deep.server',
    'pydantic_deep.skills',
    'pydantic_deep.store',
    'pydantic_deep.store.analytics',
    'pydantic_deep.store.conformance',
    'pydantic_deep.store.errors',
    'pydantic_deep.streaming',
    'pydantic_deep.subagents',
    'pydantic_deep.summarization',
    'pydantic_deep.testing',
    'pydantic_deep.todos',
    'pydantic_deep.tokenizers',
    'pydantic_deep.tokens',
    'pydantic_deep.usage',
    'pydantic_deep.versions',
    'pydantic_deep.versions.errors',
    'pydantic_deep_backends',
    'pydantic_deep_backends.conformance',
    'pydantic_deep_backends.errors',
    'pydantic_deep_backends.paths',
    'pydantic_deep_backends.protocol',
    'pydantic_deep_backends.search',
    'pydantic_deep_backends.snapshots',
)


def public_names(module: str) -> dict[str, object]:
    """Return what a module offers by name: `__all__`, else what it defines itself."""
    found = importlib.import_module(module)
    if hasattr(found, '__all__'):
        return {name: getattr(found, name) for name in found.__all__}
    body = ast.parse(inspect.getsource(found)).body
    defined = [node.name for node in body if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))]
    assigned = [name for name, _ in names_and_docstrings(body)]
    return {name: getattr(found, name) for name in [*defined, *assigned] if not name.startswith('_')}


def rendered_by(directive: str) -> list[object]:
    """Return what one `:::` shows: an object, or all that a module offers."""
    try:
        return list(public_names(directive).values())
    except ModuleNotFoundError:
        module, _, name = directive.rpartition('.')
        return [getattr(importlib.import_module(module), name)]


@pytest.fixture(scope='module')
def rendered() -> list[object]:
    pages = ''.join(page.read_text(encoding='utf-8') for page in sorted(REFERENCE.glob('*.md')))
    return [value for directive in DIRECTIVE.findall(pages) for value in rendered_by(directive)]


@pytest.mark.parametrize('module', PUBLIC_MODULES)
def test_every_public_name_is_on_a_page(module: str, rendered: list[object]) -> None:
    missing = [name for name, value in public_names(module).items() if not any(value is found for found in rendered)]
    assert missing == []


def test_no_directive_hides_a_public_member() -> None:
    chosen = [page.name for page in REFERENCE.glob('*.md') if re.search(r'^ +members:', page.read_text(), re.MULTILINE)]
    assert chosen == []


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / 'mkdocs.yml').read_text(encoding='utf-8')
    pages = [f'reference/{page.name}' for page in REFERENCE.glob('*.md')]
    assert [page for page in pages if f'- {page}' not in navigation] == []


def public_classes() -> list[type]:
    values = [value for module in PUBLIC_MODULES for value in public_names(module).values()]
    return list(dict.fromkeys(value for value in values if inspect.isclass(value)))


def names_and_docstrings(body: list[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Yield each name that the statements assign, and whether a docstring follows, without which no page shows it."""
    for node, after in zip(body, [*body[1:], ast.Pass()], strict=True):
        is_described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target), is_described
        elif isinstance(node, ast.Assign):
            yield ast.unparse(node.targets[0]), is_described


DISCRIMINATORS = {'type'}
"""What says of a value which it is: the signature has its one value, and there is no more to say."""


def has_fields(described: type) -> bool:
    return hasattr(described, '_fields') or is_dataclass(described)


@pytest.mark.parametrize('described', [c for c in public_classes() if has_fields(c)], ids=lambda c: c.__name__)
def test_every_field_has_a_docstring(described: type) -> None:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(described))).body
    assert isinstance(node, ast.ClassDef)
    inherited = {name for base in described.__mro__[1:] for name in vars(base).get('__annotations__', {})}
    fields = [name for name, is_described in names_and_docstrings(node.body) if not is_described]
    left_out = inherited | DISCRIMINATORS
    assert [name for name in fields if not name.startswith('_') and name not in left_out] == []


def test_every_alias_and_constant_has_a_docstring() -> None:
    wanted = {
        name
        for module in PUBLIC_MODULES
        for name, value in public_names(module).items()
        if not (inspect.isclass(value) or inspect.isfunction(value))
    }
    packages = (ROOT / 'pydantic_deep', ROOT / 'backends/pydantic_deep_backends')
    sources = [source for package in packages for source in package.rglob('*.py')]
    described = {
        name
        for source in sources
        for name, is_described in names_and_docstrings(ast.parse(source.read_text(encoding='utf-8')).body)
        if is_described
    }
    assert wanted - described == set()
