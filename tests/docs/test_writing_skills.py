"""The files and commands of the guide "Write a skill that models use"."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pydantic_deep.cli import main
from pydantic_deep.cli.commands._skill_tests import TIMEOUT_SECONDS
from pydantic_deep.cli.skill_tests._cases import Eval
from pydantic_deep.cli.skill_tests._checks import OPERATIONS
from pydantic_deep.cli.skill_tests._runner import MAX_REQUESTS
from pydantic_deep.cli.skill_tests._scripted import MIN_POINTS, STEM_CHARS
from pydantic_deep.skills import validate_skill

GUIDE = (Path(__file__).parent.parent.parent / 'docs/guides/writing-skills.md').read_text(encoding='utf-8')

BLOCK = re.compile(r'```\w+(?: title="(?P<file>[^"]+)")?\n(?P<text>.*?)```', re.DOTALL)

COMMAND = re.compile(r'^\$ pydantic-deep (.*)\n((?:(?!\$ ).*\n)*)', re.MULTILINE)


def test_commands_print_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files of the guide are written in its order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('COLUMNS', '80')
    codes: list[int] = []
    for block in BLOCK.finditer(GUIDE):
        if block['file']:
            Path(block['file']).parent.mkdir(parents=True, exist_ok=True)
            Path(block['file']).write_text(block['text'])
        for command, shown in COMMAND.findall(block['text']):
            codes.append(main(shlex.split(command)))
            assert capsys.readouterr().out == shown
    assert codes == [0, 1]
    assert [validate_skill(skill) for skill in Path('skills').iterdir()] == [[], []]


def test_every_field_and_operation_is_in_the_guide() -> None:
    rows = [cell for row in re.findall(r'^\| (`.*?) \|', GUIDE, re.MULTILINE) for cell in re.findall(r'`(\w+)`', row)]
    assert {*Eval.model_fields, *OPERATIONS} <= set(rows)


def test_limits_in_the_guide_are_those_of_the_code() -> None:
    assert f'after {MAX_REQUESTS} requests' in GUIDE
    assert f'a limit of {TIMEOUT_SECONDS} seconds' in GUIDE
    assert (MIN_POINTS, STEM_CHARS) == (2, 4)
    assert 'if it has at least two.\nA word has at least four letters, words are equal if their first four' in GUIDE
