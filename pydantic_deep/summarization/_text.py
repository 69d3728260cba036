"""The prompt for a summary, and the text of the summary. Pure.

A summary contains parts that do not depend on a model: the user's first and last request, verbatim, and the state that
capabilities carry over. The model's text is in between.
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
"""Maximum length of the user's first and last request in a summary, in characters: about 1,000 tokens each."""

ASK = """Summarize the conversation above for yourself: it will be replaced by your summary, and you go on from it. \
Call no tools. Under these headings, in at most 600 words, leaving out a heading with nothing under it:
Decisions: what was decided or found out, and why.
Facts: names, paths, numbers, ids, exact values, wishes and limits of the user that may be needed again.
Done: what was done, in order, with results.
Next: what is being done now and what is left.
Take over what an earlier summary says unless it is outdated."""
"""The prompt after the original messages of the conversation, which the provider has cached."""

ASK_TRANSCRIPT = f'<conversation>\n{{transcript}}\n</conversation>\n{ASK}'
"""The prompt for a model that receives a transcript."""

NO_SUMMARY = 'No summary could be made of these {count} messages. search_history finds what they say.'
"""The text of a summary that no model could write."""


def first_request(messages: Iterable[ModelMessage]) -> str:
    """Return the user's first request, shortened to `GOAL_CHARS`."""
    return next((clip(text) for text in _prompts(messages)), '')


def last_request(messages: Sequence[ModelMessage]) -> str:
    """Return the user's last request, shortened to `GOAL_CHARS`."""
    return next((clip(text) for text in _prompts(reversed(messages))), '')


def render_summary(*, goal: str, latest: str, written: str, carried: Iterable[str]) -> str:
    """Return the text of a summary.

    Args:
        goal: The user's first request.
        latest: The user's last request; empty if it is the same, or not replaced.
        written: The text of the model, or a message that there is none.
        carried: The texts that capabilities carry over.
    """
    sections = [f'The user asked first:\n{goal}'] if goal else []
    if latest and latest != goal:
        sections.append(f'The user asked last:\n{latest}')
    return '\n\n'.join([*sections, written, *(text for text in carried if text)])


def render_transcript(messages: Iterable[ModelMessage]) -> str:
    """Return messages as text."""
    return '\n'.join(line for message in messages for line in lines_of(message))


def lines_of(message: ModelMessage) -> list[str]:
    """Return a message as text, with one or more lines for each part and its role. Thinking and files are omitted."""
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
    """Return the text of a prompt, without images and documents."""
    if isinstance(part.content, str):
        return part.content
    texts = (item.content if isinstance(item, TextContent) else item for item in part.content)
    return '\n'.join(text for text in texts if isinstance(text, str))


def clip(text: str, limit: int = GOAL_CHARS) -> str:
    """Return a text, shortened to head and tail if it is too long."""
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
