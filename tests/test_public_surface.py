"""Every public name and signature. Growing it is a decision in a diff, never an accident."""

from __future__ import annotations

import importlib
import inspect

import pytest
from inline_snapshot import snapshot

import pydantic_deep
import pydantic_deep_backends

PUBLIC_MODULES = (
    'pydantic_deep',
    'pydantic_deep.errors',
    'pydantic_deep.filesystem',
    'pydantic_deep.testing',
    'pydantic_deep.todos',
    'pydantic_deep_backends',
    'pydantic_deep_backends.conformance',
    'pydantic_deep_backends.errors',
    'pydantic_deep_backends.paths',
    'pydantic_deep_backends.protocol',
    'pydantic_deep_backends.search',
    'pydantic_deep_backends.snapshots',
)


def names(module: str) -> list[str]:
    found = importlib.import_module(module)
    if hasattr(found, '__all__'):
        return sorted(found.__all__)
    return sorted(
        n for n, v in vars(found).items() if not n.startswith('_') and getattr(v, '__module__', None) == module
    )


def test_every_public_name() -> None:
    assert {module: names(module) for module in PUBLIC_MODULES} == snapshot()


@pytest.mark.parametrize('module', [pydantic_deep, pydantic_deep_backends])
def test_every_public_name_has_a_docstring_of_its_own(module: object) -> None:
    package = str(getattr(module, '__name__', ''))
    missing = [n for n in names(package) if not inspect.getdoc(getattr(module, n))]
    assert missing == []


def test_the_signature_of_the_factory() -> None:
    parameters = inspect.signature(pydantic_deep.create_deep_agent).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        'model': None,
        'instructions': None,
        'output_type': str,
        'deps_type': pydantic_deep.DeepAgentDeps,
        'name': 'deep-agent',
        'tools': (),
        'toolsets': (),
        'capabilities': (),
        'subagents': (),
        'skills': (),
        'interrupt_on': None,
        'include_todo': True,
        'include_filesystem': True,
        'include_subagents': False,
        'include_skills': False,
        'summarization': False,
        'model_settings': None,
    }
