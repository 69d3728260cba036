"""The notices in a request, wherever they are."""

from __future__ import annotations

from pydantic_ai.messages import SystemPromptPart

from pydantic_deep.testing import SeenRequest


def notices_in(request: SeenRequest) -> list[str]:
    """Return the instructions and system prompts of a request in their order, notices among them."""
    parts = [part for message in request.messages for part in message.parts]
    return [
        *(part.content for part in request.parameters.instruction_parts or []),
        *(part.content for part in parts if isinstance(part, SystemPromptPart)),
    ]
