"""Every name of every public module is in the reference."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from tests.public_modules import names_and_docstrings, public_modules, public_names

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / 'docs/reference'
DIRECTIVE = re.compile(r'^::: ([\w.]+)$', re.MULTILINE)


def rendered_by(directive: str) -> list[object]:
    """Return the objects rendered by one `:::` directive: a single object, or the public names of a module."""
    try:
        return list(public_names(directive).values())
    except ModuleNotFoundError:
        module, _, name = directive.rpartition('.')
        return [getattr(importlib.import_module(module), name)]


@pytest.fixture(scope='module')
def rendered() -> list[object]:
    pages = ''.join(page.read_text(encoding='utf-8') for page in sorted(REFERENCE.glob('*.md')))
    return [value for directive in DIRECTIVE.findall(pages) for value in rendered_by(directive)]


@pytest.mark.parametrize('module', public_modules())
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
    values = [value for module in public_modules() for value in public_names(module).values()]
    return list(dict.fromkeys(value for value in values if inspect.isclass(value)))


DISCRIMINATORS = {'type'}
"""Fields that tag a type: the signature shows their only value, so they need no description."""


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
        for module in public_modules()
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
