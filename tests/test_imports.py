"""Immediate and deferred imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pydantic_deep
import pydantic_deep_backends

LATER = [
    'pydantic_deep.approvals',
    'pydantic_deep.skills',
    'pydantic_deep.subagents',
    'pydantic_deep_backends.overlay',
    'pydantic_deep_backends.sandbox',
    'yaml',
]


@pytest.mark.parametrize('package', [pydantic_deep, pydantic_deep_backends])
def test_every_public_name_is_available(package: object) -> None:
    names: list[str] = [*getattr(package, '__all__')]  # noqa: B009 - module attributes have no declared type
    assert set(names) <= set(dir(package))
    assert all(getattr(package, name) is not None for name in names)
    with pytest.raises(AttributeError, match="has no attribute 'Typo'"):
        getattr(package, 'Typo')  # noqa: B009


@pytest.mark.slow
def test_optional_features_are_imported_lazily() -> None:
    program = (
        'import sys, pydantic_deep\n'
        f'print(*[name for name in {LATER} if name in sys.modules])\n'
        'pydantic_deep.Approvals, pydantic_deep.Skills, pydantic_deep.Subagents, pydantic_deep.SandboxBackend\n'
        'pydantic_deep.OverlayBackend\n'
        f'print(*[name for name in {LATER} if name in sys.modules])\n'
    )
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ['', ' '.join(LATER[:-1])]
