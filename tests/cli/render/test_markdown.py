"""Markdown on a terminal."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from pydantic_deep.cli.render._markdown import AnswerMarkdown, markdown_blocks, split_blocks, tail_lines

CODE = 'pip install ' + 'a' * 60
URL = 'https://example.com/' + 'b' * 60
TEXT = f"""\
# Title

Some **bold** words and `code` that are longer than one line, {URL} and [a link](http://x.example).

- first item with so many words that the line has to be wrapped
  ```sh
  {CODE}
  ```
- second

3. three
4. four

> A quote with so many words that its line has to be wrapped at 60.

| a | b |
|---|---|
| 1 | 2 |

```python
if True:

    x = '{CODE}'
```
"""


def show(text: str, *, width: int = 60, colors: bool = False) -> str:
    stream = StringIO()
    console = Console(
        file=stream, width=width, force_terminal=True, color_system='standard' if colors else None, no_color=not colors
    )
    console.print(AnswerMarkdown(text), crop=False)
    return stream.getvalue()


def test_a_terminal_shows_all_elements_of_markdown() -> None:
    """Headings, lists, quotes, tables and code are shown without Markdown's marks and without trailing spaces."""
    assert show(TEXT) == snapshot("""\
Title

Some bold words and code that are longer than one line,
https://example.com/bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
and a link (http://x.example).

 • first item with so many words that the line has to be
   wrapped
   pip install aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
 • second

 3. three
 4. four

▌ A quote with so many words that its line has to be wrapped
▌ at 60.


 a  b
 ────
 1  2


if True:

    x = 'pip install aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'
""")


@pytest.mark.parametrize('width', [60, 200])
def test_code_and_long_words_have_no_line_breaks(width: int) -> None:
    """Code blocks, also those of list items, and URLs can be copied: only the terminal wraps them."""
    lines = [line.strip() for line in show(TEXT, width=width).splitlines()]
    assert CODE in lines
    assert f"x = '{CODE}'" in lines
    assert any(URL in line for line in lines)
    assert max(len(line) for line in lines if CODE not in line and URL not in line) <= width


def test_code_has_no_background_color() -> None:
    """Code is highlighted with the palette of the terminal, so it is readable on light and on dark backgrounds."""
    shown = show('```python\nx = 1\n```', colors=True)
    assert '\x1b[' in shown
    assert not re.search(r'\x1b\[[0-9;]*4[0-8]', shown)


def test_markdown_is_escaped_and_shows_the_targets_of_links() -> None:
    """Control characters do not reach the terminal, and the target of a link is printed beside its text."""
    assert show('[here](http://evil.example) \x1b]0;t\x07') == 'here (http://evil.example) \\x1b]0;t\\x07\n'


def test_nothing_of_an_answer_is_left_out() -> None:
    """HTML and placeholders are shown as text, images with their targets where they stand, and long words of tables whole."""
    assert show('Run `cp` <from> <to>, see ![a chart](/a%20b.png) and ![](https://x.example/c.png).') == (
        'Run cp <from> <to>, see Image: a chart (/a%20b.png) and\nImage: https://x.example/c.png.\n'
    )
    assert show('<div>\n\nList<String> &lt;b&gt;\n\n</div>') == '<div>\n\nList<String> <b>\n\n</div>\n'
    path = '/src/' + 'a' * 60 + '.py'
    shown = show(f'| file | lines |\n|---|--:|\n| {path} | 12 |\n', width=40)
    assert path in re.sub(r'\s|12', '', shown)
    assert '…' not in shown


def test_blank_markdown_shows_nothing() -> None:
    """A blank text has no lines and no blocks."""
    assert (show(' \n'), markdown_blocks(' \n\n'), split_blocks('')) == ('', [], ([], ''))


def test_only_the_last_block_can_change() -> None:
    """A streamed text is split into complete blocks and the last one, even if that is a list with blank lines."""
    complete, last = split_blocks('# A\n\nText\nmore\n\n- one\n\n- two')
    assert (complete, last) == (['# A', 'Text\nmore'], '- one\n\n- two')
    complete, last = split_blocks('```\n# no heading\n\nstill code')
    assert (complete, last) == ([], '```\n# no heading\n\nstill code')


def test_the_end_of_a_long_text_fits_the_terminal() -> None:
    """Of a block that is higher than the terminal, the last rows are shown; wrapped lines count with all their rows."""
    console = Console(width=20, file=StringIO(), force_terminal=True)
    text = '```\n' + '\n'.join([*map(str, range(9)), 'x' * 30]) + '\n```'
    assert tail_lines(console, text, 4).plain == '7\n8\n' + 'x' * 30
    assert tail_lines(console, 'a', 4).plain == 'a'
