"""What is said of messages that are replaced: what a model is asked, and what the summary says. Pure.

A summary has what no model can forget to copy: what the user asked for first and last, in their words, and what the
rooms carry over. What a model has written stands between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic_ai.messages import (
    CompactionPart,
    ModelMessage,
    ModelRequest,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

GOAL_CHARS = 4_000
"""How much of what the user asked first and last stays word for word: some 1,000 tokens each."""

ASK = """Summarize the conversation above for yourself: it will be replaced by your summary, and you go on from it. \
Call no tools. Under these headings, in at most 600 words, leaving out a heading with nothing under it:
Decisions: what was decided or found out, and why.
Facts: names, paths, numbers, ids, exact values, wishes and limits of the user that may be needed again.
Done: what was done, in order, with results.
Next: what is being done now and what is left.
Take over what an earlier summary says unless it is outdated."""
"""What a model is asked. It comes after the very messages of the conversation, which its provider has in its cache."""

ASK_TRANSCRIPT = f'<conversation>\n{{transcript}}\n</conversation>\n{ASK}'
"""What a model is asked that has not had the conversation."""

NO_SUMMARY = 'No summary could be made of these {count} messages. search_history finds what they say.'
"""What a summary says where no model could write it."""


def first_request(messages: Iterable[ModelMessage]) -> str:
    """Return what the user asked first, cut to `GOAL_CHARS`."""
    return next((clip(text) for text in _prompts(messages)), '')


def last_request(messages: Sequence[ModelMessage]) -> str:
    """Return what the user asked last, cut to `GOAL_CHARS`."""
    return next((clip(text) for text in _prompts(reversed(messages))), '')


def render_summary(*, goal: str, latest: str, written: str, carried: Iterable[str]) -> str:
    """Return the text of a summary.

    Args:
        goal: What the user asked first.
        latest: What they asked last; empty if that is the same, or not replaced.
        written: What a model has written, or that none could.
        carried: What the rooms carry over.
    """
    said = [f'The user asked first:\n{goal}'] if goal else []
    if latest and latest != goal:
        said.append(f'The user asked last:\n{latest}')
    return '\n\n'.join([*said, written, *(text for text in carried if text)])


def render_transcript(messages: Iterable[ModelMessage]) -> str:
    """Return what messages say, as text."""
    return '\n'.join(line for message in messages for line in lines_of(message))


def lines_of(message: ModelMessage) -> list[str]:
    """Return what a message says, a line or more for each part, with who says it; nothing of thinking and files."""
    lines: list[str] = []
    for part in message.parts:
        match part:
            case UserPromptPart() if text := text_of(part):
                lines.append(f'user: {text}')
            case TextPart():
                lines.append(f'assistant: {part.content}')
            case ToolCallPart():
                lines.append(f'call {part.tool_name}: {part.args_as_json_str()}')
            case ToolReturnPart():
                lines.append(f'result of {part.tool_name}: {part.model_response_str()}')
            case CompactionPart(content=str(content)):
                lines.append(f'summary: {content}')
            case _:
                pass
    return lines


def text_of(part: UserPromptPart) -> str:
    """Return the text of a prompt; images and documents in it have none."""
    if isinstance(part.content, str):
        return part.content
    texts = (item.content if isinstance(item, TextContent) else item for item in part.content)
    return '\n'.join(text for text in texts if isinstance(text, str))


def clip(text: str, limit: int = GOAL_CHARS) -> str:
    """Return a text, or its head and tail with what is left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f'{text[:half]}\n[{len(text) - 2 * half:,} characters left out]\n{text[-half:]}'


def _prompts(messages: Iterable[ModelMessage]) -> Iterable[str]:
    for message in messages:
        if isinstance(message, ModelRequest):
            for part in message.parts:
                if isinstance(part, UserPromptPart) and (text := text_of(part).strip()):
                    yield text
