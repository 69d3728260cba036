"""How a room tells the model of state that changed: a notice, appended to the conversation once for each change.

What was sent before stays as it is, so the prefix that a provider has cached does too, and nothing is said twice: a
room knows what the history says already. (`InstructionPart(on_change='append')` says the same, but makes
pydantic-ai rewrite the history for every request; see the decision on notices in the documentation.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart


@dataclass(kw_only=True)
class Notice:
    """One kind of notice during one run."""

    heading: str
    """Its first line, by which it is found again in a history."""
    known: str
    """The text that the model has been told last; empty if nothing."""

    def tell(self, ctx: RunContext[object], text: str) -> None:
        """Append `text` to the request being prepared, unless the model knows it. Call it in `before_model_request`."""
        if text != self.known:
            self.known = text
            ctx.enqueue(SystemPromptPart(f'{self.heading}\n{text or "none"}'))

    def add_to(self, requests: Sequence[ModelMessage], text: str) -> None:
        """Add `text` to a request that begins a turn, unless the model knows it.

        Args:
            requests: The request as the history has it, and as it is sent, if that is another one.
            text: What to tell.
        """
        if text != self.known:
            self.known = text
            part = SystemPromptPart(f'{self.heading}\n{text or "none"}')
            for message in requests:
                if isinstance(message, ModelRequest):  # pragma: no branch - as long as a turn begins with one
                    message.parts = [*message.parts, part]


def noticed(part: SystemPromptPart, heading: str) -> str | None:
    """Return the text of a notice with that heading; `None` if the part is something else."""
    if not part.content.startswith(f'{heading}\n'):
        return None
    text = part.content[len(heading) + 1 :]
    return '' if text == 'none' else text


def last_noticed(messages: Sequence[ModelMessage], heading: str) -> str:
    """Return the text of the last notice with that heading in a history; empty if there is none."""
    for message in reversed(messages):
        for part in reversed(message.parts):
            # By its kind first: this is asked of every part of a long history.
            if part.part_kind == 'system-prompt' and (text := noticed(part, heading)) is not None:
                return text
    return ''
