"""Immediate and deferred imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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

RECORD_IMPORT = """
import os, sys

OURS = ('pydantic_deep', 'pydantic_deep_backends')
HELPERS = ('__main__', 'collections', 'io', 'os', 'pathlib')  # the caller of their functions counts
seen = []

def record(event, arguments):
    if event in ('open', 'os.listdir', 'os.scandir', 'environment'):
        frame = sys._getframe(1)
        while frame and package(frame) in HELPERS:
            frame = frame.f_back
        if frame and package(frame) in OURS:
            seen.append((event, arguments[0]))

def package(frame):
    return frame.f_globals.get('__name__', '').partition('.')[0]

class Environment(type(os.environ)):
    def __getitem__(self, name):
        record('environment', [name])
        return super().__getitem__(name)

os.environ.__class__ = Environment
sys.addaudithook(record)
"""
"""Records which files, directories and environment variables our packages read from then on. Files that the import
system and dependencies read do not count."""


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


@pytest.mark.slow
def test_mcp_server_of_an_editor_imports_no_other_api() -> None:
    """An editor starts the process and waits, so it has only the modules of the routes that are tools."""
    program = (
        'import sys, pydantic_deep.server.mcp.stdio\n'
        "print(*[name for name in sys.modules if name.startswith('pydantic_deep.server.routes._')])\n"
        "print(*[name for name in sys.modules if name in ('ag_ui', 'pydantic_deep.server.ui', 'pydantic_deep.server.compat')])\n"
    )
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    routes, others = ran.stdout.splitlines()
    names = ('admin', 'approvals', 'archive', 'conversations', 'parameters', 'turns', 'versions')
    assert sorted(routes.split()) == [f'pydantic_deep.server.routes._{name}' for name in names]
    assert others == ''


@pytest.mark.slow
def test_application_imports_the_protocols_of_extras_with_their_first_request() -> None:
    """Neither the package nor the routes import the SDKs of A2A and MCP."""
    program = (
        'import sys, pydantic_deep.server.routes._routers\n'
        "print(*[name for name in sys.modules if name in ('a2a', 'mcp')])\n"
    )
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert ran.stdout == '\n'


@pytest.mark.slow
def test_import_reads_only_the_directory_of_the_package() -> None:
    """It opens no file and reads no environment variable. The directory is read for `_installation_check`."""
    program = f'{RECORD_IMPORT}\nfrom pydantic_deep import *\nprint(seen)'
    ran = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True, check=True)
    assert ran.stdout == f'{[("os.listdir", str(Path(__file__).parent.parent))]}\n'


@pytest.mark.slow
def test_recording_of_reads_is_complete(tmp_path: Path) -> None:
    """Otherwise the test above would pass for any program."""
    (tmp_path / 'pydantic_deep.py').write_text(
        'import os\nfrom pathlib import Path\n'
        'Path(__file__).read_bytes(), os.environ.get("A"), "B" in os.environ, os.getenv("C"), [*os.scandir("/")]\n'
    )
    program = f'{RECORD_IMPORT}\nimport pydantic_deep\nprint(seen)'
    ran = subprocess.run(
        [sys.executable, '-P', '-c', program],
        env={'PYTHONPATH': str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    reads = [
        ('open', str(tmp_path / 'pydantic_deep.py')),
        *(('environment', name) for name in 'ABC'),
        ('os.scandir', '/'),
    ]
    assert ran.stdout == f'{reads}\n'
