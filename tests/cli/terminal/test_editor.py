"""Editing of text in the user's editor."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from pydantic_deep.cli.terminal._editor import EditingFailedError, NoEditorError, edit_text
from pydantic_deep.cli.terminal._terminal import Terminal

pytestmark = pytest.mark.anyio

MakeEditor = Callable[[str], str]


@pytest.fixture
def terminal(tmp_path: Path) -> Generator[Terminal]:
    """A terminal with files as its streams. The test editors neither read nor draw."""
    (tmp_path / 'keys').touch()
    with (tmp_path / 'keys').open() as stdin, (tmp_path / 'screen').open('w') as stdout:
        yield Terminal(stdin=stdin, stdout=stdout)


@pytest.fixture
def make_editor(tmp_path: Path) -> MakeEditor:
    """Create an editor that runs a program with the path of the file in `path`."""

    def make(program: str) -> str:
        script = tmp_path / 'the editor.py'
        script.write_text(f'import pathlib, sys\npath = pathlib.Path(sys.argv[-1])\n{program}\n')
        return shlex.join([sys.executable, str(script), '--wait'])

    return make


@pytest.mark.parametrize('variable', ['VISUAL', 'EDITOR'])
async def test_edited_text_is_returned(terminal: Terminal, make_editor: MakeEditor, variable: str) -> None:
    editor = make_editor("path.write_text(f'{path.name} {oct(path.parent.stat().st_mode)[-3:]} {path.read_text()}!')")
    text = await edit_text('über', name='a.yaml', terminal=terminal, variables={variable: editor})
    assert text == 'a.yaml 700 über!'


async def test_visual_takes_precedence_over_editor(terminal: Terminal, make_editor: MakeEditor) -> None:
    variables = {'VISUAL': make_editor("path.write_text('v')"), 'EDITOR': 'nothing-like-it'}
    assert await edit_text('', name='a', terminal=terminal, variables=variables) == 'v'


@pytest.mark.parametrize('variables', [{}, {'EDITOR': ''}, {'EDITOR': 'no-such-editor -x'}])
async def test_missing_editor_is_reported(terminal: Terminal, variables: dict[str, str]) -> None:
    with pytest.raises(NoEditorError, match=r'VISUAL|no-such-editor'):
        await edit_text('', name='a', terminal=terminal, variables=variables)


@pytest.mark.parametrize(
    ('program', 'sentence'),
    [
        ('sys.exit(3)', 'exited with code 3; nothing was changed'),
        ('path.write_bytes(bytes([255]))', 'cannot be read'),
        ('path.unlink()', 'cannot be read'),
    ],
)
async def test_failed_editor_changes_nothing(
    terminal: Terminal, make_editor: MakeEditor, program: str, sentence: str
) -> None:
    with pytest.raises(EditingFailedError, match=sentence):
        await edit_text('a', name='a', terminal=terminal, variables={'EDITOR': make_editor(program)})
