"""The token usage of a conversation: a bar with a legend on a terminal, plain lines elsewhere."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from rich.text import Text

from pydantic_deep.cli._schemas import ContextUsage, RequestTokens
from pydantic_deep.tokens import TokenCounter, count_tokens_approximately
from pydantic_deep.usage import UsageReport, usage_report
from pydantic_deep.versions import AgentVersion

KINDS: Final = (
    ('system', 'blue', 'instructions'),
    ('tools', 'cyan', 'schemas of tools'),
    ('skills', 'magenta', 'catalogue and loaded skills'),
    ('files', 'green', 'file tools and uploads'),
    ('summary', 'yellow', 'summaries of earlier messages'),
    ('history', 'red', 'all other messages'),
)
"""The kinds of tokens, each with its color and description."""

MAX_BAR_CHARS: Final = 72
"""Maximum width of the bar."""


async def load_context_usage(version: AgentVersion[Any, Any], *, context_window: int | None = None) -> ContextUsage:
    """Return the token usage of a version, counted with the tokenizer of its model if that is installed."""
    counter = exact_counter(version.model or '')
    usage = await usage_report(version, counter=counter or count_tokens_approximately, context_window=context_window)
    return context_usage(version.id, usage, is_exact=counter is not None)


def context_usage(version: str, usage: UsageReport, *, is_exact: bool) -> ContextUsage:
    """Return the token usage of a version.

    Args:
        version: The id of the version.
        usage: The counted tokens, and the usage that the provider reported.
        is_exact: Whether the tokenizer of the model counted them. Otherwise they are estimated.
    """
    last = usage.last
    return ContextUsage(
        version=version,
        is_exact=is_exact,
        system=usage.system,
        tools=usage.tools,
        skills=usage.skills,
        files=usage.files,
        summary=usage.summary,
        history=usage.history,
        counted=usage.counted,
        context_window=usage.context_window,
        last_request=last
        and RequestTokens(
            input_tokens=last.input_tokens,
            cache_read_tokens=last.cache_read_tokens,
            cache_write_tokens=last.cache_write_tokens,
            output_tokens=last.output_tokens,
        ),
        cost=None if usage.cost is None else str(usage.cost),
        unpriced_requests=usage.unpriced_requests,
    )


def render_context(usage: ContextUsage, *, width: int | None) -> list[Text]:
    """Render the token usage as lines.

    Args:
        usage: The token usage.
        width: The columns of the terminal; `None` for other outputs, which get no bar.
    """
    whole = usage.context_window or usage.counted or 1
    lines = [] if width is None else [_bar(usage, min(width, MAX_BAR_CHARS), whole)]
    for kind, style, about in KINDS:
        line = _legend_line(usage, kind, style, about, whole, has_mark=width is not None)
        if width is not None:
            line.truncate(width, overflow='ellipsis')  # folded lines would break the columns
        lines.append(line)
    lines.append(Text(_total_line(usage)))
    last = usage.last_request
    if last is not None:
        lines.append(
            Text(
                f'The last request, as the provider counts: {last.input_tokens:,} sent, {last.cache_read_tokens:,} of '
                f'them cached, {last.output_tokens:,} written.',
                'dim',
            )
        )
    if usage.cost is not None:
        lines.append(Text(describe_cost(usage), 'dim'))
    return lines


def describe_cost(usage: ContextUsage) -> str:
    """Return the cost of the conversation as a sentence."""
    if usage.cost is None:
        return 'The price of the model is unknown.'
    without = f', without {usage.unpriced_requests:,} requests' if usage.unpriced_requests else ''
    return f'Cost so far: ${Decimal(usage.cost):.4f}{without}.'


def exact_counter(model: str) -> TokenCounter | None:
    """Return the tokenizer of a model; `None` if it is not known or not installed."""
    try:
        from pydantic_deep.tokenizers import load_tokenizer
    except ModuleNotFoundError:
        return None
    tokenizer = load_tokenizer(model)
    return tokenizer if tokenizer.is_exact else None


def _bar(usage: ContextUsage, width: int, whole: int) -> Text:
    """Return the bar, which represents the context window, or the counted tokens if the window is unknown."""
    bar, total, filled = Text(), 0, 0
    for kind, style, _ in KINDS:
        total += _tokens(usage, kind) or 0
        end = min(width, round(total * width / whole))  # from the running sum, so that rounding errors do not add up
        bar.append('█' * (end - filled), style)
        filled = end
    return bar.append('░' * (width - filled), 'dim')


def _legend_line(usage: ContextUsage, kind: str, style: str, about: str, whole: int, *, has_mark: bool) -> Text:
    tokens = _tokens(usage, kind)
    amount = 'not known' if tokens is None else f'{tokens:>9,} {tokens / whole:>5.0%}'
    mark = ('█ ', style) if has_mark else ''
    return Text.assemble(mark, f'{kind:<8}{amount:>15}  ', (about, 'dim'))


def _total_line(usage: ContextUsage) -> str:
    how = 'counted by the tokenizer of the model' if usage.is_exact else 'estimated'
    if usage.context_window is None:
        return f'{usage.counted:,} tokens, {how}. The context window of the model is unknown.'
    return f'{usage.counted:,} of {usage.context_window:,} tokens ({usage.counted / usage.context_window:.0%}), {how}.'


def _tokens(usage: ContextUsage, kind: str) -> int | None:
    return getattr(usage, kind)
