"""Markdown on a terminal: blocks that can be printed while an answer streams, and that can be copied."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.containers import Renderables
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    Heading,
    ListItem,
    Markdown,
    MarkdownElement,
    Paragraph,
    TableDataElement,
)
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from ._terminal_text import escape_prose
from ._wrapping import wrapped_parts

CODE_THEME = 'ansi_dark'
"""Colors of the terminal's own palette, which are readable on a light and on a dark background."""


_PARSER = MarkdownIt('commonmark', {'html': False}).enable(['strikethrough', 'table'])
"""HTML is text: Rich would leave out each `<name>` of an answer."""


def _parse(text: str) -> list[Token]:
    """Parse Markdown. Images become texts, since Rich prints them before their paragraph and without their targets."""
    tokens = _PARSER.parse(text)
    for child in (child for token in tokens for child in token.children or () if child.type == 'image'):
        child.type, child.tag, child.children = 'text', '', None
        child.content = (
            f'Image: {child.content} ({child.attrs["src"]})' if child.content else f'Image: {child.attrs["src"]}'
        )
    return tokens


class CopyableCode(CodeBlock):
    """A code block without padding, background and line breaks of its own: the terminal wraps it, so copies are exact."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the highlighted lines."""
        syntax = Syntax('', self.lexer_name, theme=self.theme, background_color='default')
        code = syntax.highlight(self.text.plain.rstrip())
        code.rstrip()
        code.no_wrap, code.overflow = True, 'ignore'
        yield code


class WrappedParagraph(Paragraph):
    """A paragraph with line breaks between words. The terminal wraps longer words, such as URLs."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines."""
        for line in self.text.split('\n', allow_blank=True):
            for part in wrapped_parts(line, options.max_width):
                part.no_wrap, part.overflow, part.justify = True, 'ignore', None
                yield part


class Quote(BlockQuote):
    """A quote whose lines are not cropped."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, each after a bar."""
        yield from _indented(console, options, self.elements, self.style, '▌ ', '▌ ')


class Item(ListItem):
    """A list item whose lines are not cropped."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines, the first one after a bullet."""
        yield from _indented(console, options, self.elements, self.style, ' • ', '   ')

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        """Yield the lines, the first one after its number."""
        width = len(str(last_number)) + 3
        yield from _indented(console, options, self.elements, self.style, f'{number}. '.rjust(width), ' ' * width)


class LeftHeading(Heading):
    """A heading at the left margin, at every level."""

    LEVEL_ALIGN: ClassVar = {}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the text, with the style of its level."""
        yield self.text


class WholeCell(TableDataElement):
    """A cell of a table whose long words are broken, not cut."""

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content.overflow = 'fold'


class AnswerMarkdown(Markdown):
    """Markdown from the model. Targets of links are printed, since their texts may be misleading.

    Lines have no trailing spaces, and long words such as URLs are not broken.
    """

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        'fence': CopyableCode,
        'code_block': CopyableCode,
        'heading_open': LeftHeading,
        'paragraph_open': WrappedParagraph,
        'blockquote_open': Quote,
        'list_item_open': Item,
        'td_open': WholeCell,
        'th_open': WholeCell,
    }

    def __init__(self, text: str, *, theme: str | None = None) -> None:
        """Parse the text, with control characters escaped.

        Args:
            text: The Markdown.
            theme: The colors of code; `CODE_THEME` by default.
        """
        super().__init__('', hyperlinks=False, code_theme=theme or CODE_THEME)
        self.parsed = _parse(escape_prose(text))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the rendered lines."""
        rendered = super().__rich_console__(console, options)
        segments = (
            segment for segment in rendered if isinstance(segment, Segment)
        )  # Rich's Markdown yields only these
        lines = [_without_trailing_space(line) for line in Segment.split_lines(segments)]
        shown = [number for number, line in enumerate(lines) if line]
        for line in lines[shown[0] : shown[-1] + 1] if shown else ():
            yield from line
            yield Segment.line()


def markdown_lines(console: Console, text: str, *, theme: str | None = None) -> list[Text]:
    """Return the lines of rendered Markdown. The terminal wraps those that are longer than it is wide."""
    return [
        Text.assemble(*((segment.text, segment.style or '') for segment in line))
        for line in Segment.split_lines(console.render(AnswerMarkdown(text, theme=theme)))
    ]


def tail_lines(console: Console, text: str, height: int, *, theme: str | None = None) -> Text:
    """Return the last lines of rendered Markdown that fit into a number of rows of the terminal."""
    shown: list[Text] = []
    for content in reversed(markdown_lines(console, text, theme=theme)):
        height -= max(1, -(-cell_len(content.plain) // console.width))
        if height < 0:
            break
        shown.append(content)
    return Text('\n').join(reversed(shown))


def _indented(
    console: Console, options: ConsoleOptions, elements: Renderables, style: Style, first: str, rest: str
) -> Iterator[Segment]:
    """Yield the lines of elements, each after a prefix. Rich's own elements crop them to the width."""
    segments = console.render(elements, options.update(width=max(options.max_width - cell_len(first), 1)))
    prefix = first
    for line in Segment.split_lines(segments):
        yield Segment(prefix, style)
        yield from Segment.apply_style(line, style)
        yield Segment.line()
        prefix = rest


def _without_trailing_space(line: list[Segment]) -> list[Segment]:
    while line and not line[-1].text.rstrip():
        line = line[:-1]
    if line:
        text, style, control = line[-1]
        line = [*line[:-1], Segment(text.rstrip(), style, control)]
    return line


def split_blocks(text: str) -> tuple[list[str], str]:
    """Split Markdown into its complete blocks and the last block, which more text can still change.

    A block is a paragraph, a list, a table, a code block or another element at the top level.
    """
    lines = text.split('\n')
    edges = [0, *list(_block_starts(text))[1:], len(lines)]
    *blocks, last = ['\n'.join(lines[start:end]) for start, end in pairwise(edges)]
    return [block.strip('\n') for block in blocks], last


def markdown_blocks(text: str) -> list[str]:
    """Return all blocks of complete Markdown that are not blank."""
    blocks, last = split_blocks(text)
    return [block for block in (*blocks, last) if block.strip()]


def _block_starts(text: str) -> Iterator[int]:
    """Yield the first line of each block."""
    for token in _parse(text):
        if token.level == 0 and token.nesting >= 0 and token.map is not None:
            yield token.map[0]
