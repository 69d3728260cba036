"""The answer on standard output."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from typer.testing import Result

from pydantic_deep.testing import ScriptedModel

Invoke = Callable[..., Result]


@pytest.mark.parametrize(('command', 'stdin'), [(('run', 'Go'), ''), (('chat',), 'Go\n')])
def test_answer_is_escaped_on_stdout(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], stdin: str
) -> None:
    monkeypatch.setenv('FORCE_COLOR', '1')  # with it, Rich treats any stream as a terminal
    result = invoke(*command, model=ScriptedModel('**Hi** \x1b]0;owned\x07'), stdin=stdin)
    assert '\x1b[1mHi\x1b[0m \\x1b]0;owned\\x07' in result.stdout
    assert not set('\x07') & set(result.stdout)
