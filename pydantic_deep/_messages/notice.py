"""Notices to the model about changed state, appended to the conversation once for each change.

Earlier messages remain unchanged, and so does the prefix that a provider has cached. A notice is not repeated: a
capability reads from the history which state the model knows. (`InstructionPart(on_change='append')` has the same
effect, but makes pydantic-ai rewrite the history for every request; see the decision on notices in the documentation.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart


@dataclass(kw_only=True)
class Notice:
    """One kind of notice in one run."""

    heading: str
    """The first line of the notice, which identifies it in a history."""
    known: str
    """The text of the last notice; empty if there is none."""

    def enqueue(self, ctx: RunContext[object], text: str) -> None:
        """Append `text` to the request that is being prepared, unless the model knows it. Call it in
        `before_model_request`.
        """
        if text != self.known:
            self.known = text
            ctx.enqueue(SystemPromptPart(f'{self.heading}\n{text or "none"}'))

    def add_to(self, requests: Sequence[ModelMessage], text: str) -> None:
        """Insert `text` before the prompt in the first request of a turn, unless the model knows it.

        The prompt is last, because a small model may ignore it before a list of files.

        Args:
            requests: The request as stored in the history and, if it differs, as sent.
            text: The text of the notice.
        """
        if text != self.known:
            self.known = text
            part = SystemPromptPart(f'{self.heading}\n{text or "none"}')
            for message in requests:
                if isinstance(message, ModelRequest):  # pragma: no branch - a turn starts with a request
                    message.parts = [part, *message.parts]


def first_requests(ctx: RunContext[object], request_context: ModelRequestContext) -> list[ModelMessage]:
    """Return the last request as stored and as sent, or only one if they are identical."""
    stored, sent = ctx.messages[-1], request_context.messages[-1]
    return [stored] if sent is stored else [stored, sent]


def noticed(part: SystemPromptPart, heading: str) -> str | None:
    """Return the text of a notice with this heading; `None` if the part is not one."""
    if not part.content.startswith(f'{heading}\n'):
        return None
    text = part.content[len(heading) + 1 :]
    return '' if text == 'none' else text


def last_noticed(messages: Sequence[ModelMessage], heading: str) -> str:
    """Return the text of the last notice with this heading in a history; empty if there is none."""
    for message in reversed(messages):
        for part in reversed(message.parts):
            # Compare kinds first, which is fast: this runs for every part of a long history.
            if part.part_kind == 'system-prompt' and (text := noticed(part, heading)) is not None:
                return text
    return ''
