"""The live block in a window that gets narrower: the rows that are erased before it is drawn again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import StringIO

import pytest
from rich.console import Console

from pydantic_deep.cli.terminal import _live_block
from pydantic_deep.cli.terminal._progress import ProgressDisplay
from pydantic_deep.streaming import TextEvent
from pydantic_deep.testing import FakeClock

ROWS_ABOVE = re.compile(r'(?:\x1b\[1A\x1b\[2K)+')


@pytest.fixture(autouse=True)
def rare_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the block only with each printed line."""
    monkeypatch.setattr(_live_block, 'REFRESH_PER_SECOND', 0.001)
    for name in ('TMUX', 'XTERM_VERSION', 'STY'):
        monkeypatch.delenv(name, raising=False)


def erased_rows(*texts: str, width: int) -> int:
    """Return how many rows above the cursor are erased when a line is printed, after texts were drawn at 60 columns."""
    stream = StringIO()
    console = Console(file=stream, width=60, force_terminal=True, color_system=None, _environ={'TERM': 'xterm'})
    with ProgressDisplay(console, clock=FakeClock().monotonic, shows_answer=True) as progress:
        for text in texts:
            progress.show(TextEvent(text=text))
        progress.notify('drawn')
        before = len(stream.getvalue())
        console.width = width
        progress.notify('drawn again')
        written = stream.getvalue()[before:]
    found = ROWS_ABOVE.search(written)
    assert found is not None
    return found[0].count('\x1b[1A')


@pytest.mark.parametrize(
    ('width', 'rows', 'environ'),
    [
        (60, 3, {}),
        (80, 3, {}),
        (30, 6, {}),
        (15, 11, {}),
        (30, 3, {'XTERM_VERSION': 'XTerm(379)'}),
        (30, 3, {'STY': '1.pts-0.host'}),
        (30, 6, {'XTERM_VERSION': 'XTerm(379)', 'TMUX': '/tmp/tmux-0/default,1,0'}),
    ],
)
def test_wrapped_rows_are_erased_in_a_narrower_window(
    width: int, rows: int, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal wraps the lines of the block, of 0, 59, 39 and 49 columns, again. xterm and GNU screen do not."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert erased_rows('word ' * 20, width=width) == rows


def test_paragraph_is_permanent_as_soon_as_the_next_one_begins() -> None:
    """The block has what is written of a paragraph or a list, after a blank line, and the usage."""
    assert erased_rows('- One.\n', '- Two', width=60) == 3
    assert erased_rows('One.\n\n', 'Two', width=60) == 2
