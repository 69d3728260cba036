"""The requirements in `*.toml` beside this file, each of which must be in the docstring of a test."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent

REQUIREMENTS: dict[str, str] = {
    id: text for file in sorted(HERE.glob('*.toml')) for id, text in tomllib.loads(file.read_text()).items()
}
"""Requirement texts by id: three digits of the document, and the number of the requirement in it."""

ID = re.compile(r'\b00\d-\d\d[a-z]?\b')


def _docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of the tests in a file, each on one line."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith('test_'):
            yield ' '.join((ast.get_docstring(node) or '').split())


@pytest.fixture(scope='module')
def docstrings() -> list[str]:
    files = [*ROOT.glob('tests/**/test_*.py'), *ROOT.glob('backends/tests/**/test_*.py')]
    named = [file for file in files if ID.search(file.read_text())]
    return [text for file in named for text in _docstrings(file) if ID.search(text)]


@pytest.mark.parametrize('id', REQUIREMENTS)
def test_every_requirement_is_quoted_in_the_docstring_of_a_test(id: str, docstrings: list[str]) -> None:
    wanted = f'{id}: {REQUIREMENTS[id]}'

    assert any(wanted in text for text in docstrings), f'No test has the docstring {wanted!r}'


def test_no_docstring_names_an_unknown_requirement(docstrings: list[str]) -> None:
    documents = {id[:3] for id in REQUIREMENTS}
    named = {id for text in docstrings for id in ID.findall(text) if id[:3] in documents}

    assert named - set(REQUIREMENTS) == set()


def test_list_is_as_long_as_the_documents() -> None:
    documents = ('000', '001', '002', '003', '004')
    numbers = {document: sum(id[:3] == document for id in REQUIREMENTS) for document in documents}

    assert numbers == {'000': 39, '001': 35, '002': 24, '003': 30, '004': 34}
    assert len(REQUIREMENTS) == 162
